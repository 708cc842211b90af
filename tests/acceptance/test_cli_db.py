"""`postlude db` and `doctor`, from an empty database to a healthy one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from postlude import Postlude
from tests.acceptance.cli_shop import APP, POISON, Answer, InProcess, on_shop, place, postlude
from tests.engine import connect, query

NOWHERE = "postgresql://me:s3cret@127.0.0.1:1/shop"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> InProcess:
    return InProcess(capsys)


def _statuses(answer) -> dict[str, str]:
    return {one["check"]: one["status"] for one in answer.json["checks"]}


def test_an_empty_database_is_upgraded_once(run, empty_database_url: str) -> None:
    on = ("--database", empty_database_url, "--json")
    before = run("db", "status", *on)
    assert (before.code, before.json["version"]) == (1, 0)
    assert before.json["pending"]
    applied = run("db", "upgrade", *on)
    assert (applied.code, applied.json["applied"]) == (0, before.json["pending"])
    after = run("db", "status", *on)
    assert (after.code, after.json["pending"], after.json["lanes"]) == (0, [], 64)
    assert run("db", "upgrade", *on).json["applied"] == []
    verified = run("db", "verify", *on)
    assert (verified.code, verified.json) == (0, {"problems": []})


def test_only_one_phase_is_applied_when_asked(run, empty_database_url: str) -> None:
    applied = run("db", "upgrade", "--phase", "pre", "--database", empty_database_url, "--json").json["applied"]
    assert applied
    assert all("_pre_" in name for name in applied)
    assert run("db", "upgrade", "--phase", "later", "--database", empty_database_url, "--json").code == 2


def test_verify_finds_what_is_missing(run, database_url: str) -> None:
    asyncio.run(query(database_url, "DROP INDEX postlude_delivery_hot"))
    answer = run("db", "verify", "--database", database_url, "--json")
    assert answer.code == 1
    assert "postlude_delivery_hot" in answer.json["problems"][0]
    assert run("db", "verify", "--database", database_url).code == 1
    assert _statuses(run("doctor", "--database", database_url, "--json"))["schema"] == "fail"


def test_status_of_a_file_that_is_not_there_does_not_make_it(run, tmp_path: Path) -> None:
    assert run("db", "status", "--database", f"sqlite:///{tmp_path}/new.db").code == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", [NOWHERE, "sqlite:///nowhere/at/all.db"], ids=["postgres", "sqlite"])
def test_sql_is_printed_without_connecting(run, url: str) -> None:
    answer = run("db", "sql", "--database", url)
    assert answer.code == 0
    assert "CREATE TABLE" in answer.out
    assert "postlude_delivery" in answer.out
    assert run("db", "sql", "--database", url, "--json").json["sql"].strip() == answer.out.strip()


def test_sql_can_be_applied_by_hand_and_finished_by_an_upgrade(run, any_postgres_database) -> None:
    url = any_postgres_database.fresh(schema=False)

    async def apply(script: str) -> None:
        connection = await connect(url)
        await connection.execute(script)
        await connection.close()

    asyncio.run(apply(run("db", "sql", "--database", url).out))
    assert run("db", "upgrade", "--database", url, "--json").json["applied"] == []
    assert run("db", "status", "--database", url).code == 0
    assert run("db", "verify", "--database", url).code == 0


def test_doctor_finds_a_working_database_well(run, database_url: str) -> None:
    answer = run("doctor", "--database", database_url, "--json")
    assert (answer.code, answer.json["healthy"]) == (0, True)
    assert _statuses(answer) | {"workers": "warn"} == _statuses(answer)
    expected = {"connection", "schema", "clock", "disk", "settings", "lanes", "unserved", "dead letters", "paused"}
    assert expected <= _statuses(answer).keys()
    if database_url.startswith("postgresql"):
        assert {"partitions", "pool"} <= _statuses(answer).keys()
    assert set(_statuses(answer).values()) == {"ok", "warn"}
    assert run("doctor", "--production", "--database", database_url).code == 1


def test_doctor_is_content_with_production_while_a_worker_runs(sqlite_url: str) -> None:
    place(sqlite_url, "lamp")

    async def work(shop: Postlude) -> Answer:
        async with shop.worker():
            return await asyncio.to_thread(postlude, "doctor", "--production", "--database", sqlite_url)

    answer = on_shop(sqlite_url, work)
    assert answer.code == 0, answer
    assert "257 of 257 owned" in answer.out
    assert "All is well." in answer.out


def test_doctor_says_what_waits_for_somebody(run, database_url: str) -> None:
    place(database_url, POISON)
    place(database_url, "lamp", relay=False)
    run("destination", "pause", "default", "--reason", "moving", "--database", database_url)
    answer = run("doctor", "--database", database_url, "--json")
    warned = {one["check"]: one for one in answer.json["checks"] if one["status"] == "warn"}
    assert {"unserved", "dead letters", "paused", "workers"} <= warned.keys()
    assert "handler:reserve (1)" in warned["dead letters"]["message"]
    assert all(one["hint"] for one in warned.values())
    people = run("doctor", "--database", database_url)
    assert "postlude outbox list --status dead" in people.out
    assert "It works." in people.out


def test_doctor_on_an_empty_database_names_the_cure(run, any_postgres_database) -> None:
    answer = run("doctor", "--json", "--database", any_postgres_database.fresh(schema=False))
    assert answer.code == 1
    assert answer.json["checks"][-1] == {
        "check": "schema", "status": "fail", "message": "it is not there", "hint": "Run `postlude db upgrade`.",
    }  # fmt: skip


@pytest.mark.parametrize("command", [["doctor"], ["db", "status"], ["outbox", "stats"], ["destination", "list"]])
def test_a_dead_port_is_exit_3_without_the_password(run, command: list[str]) -> None:
    answer = run(*command, "--database", NOWHERE)
    assert answer.code == 3
    assert "hint:" in answer.err
    assert "s3cret" not in answer.out + answer.err
    assert run(*command, "--database", NOWHERE, "--json").json["error"]["code"] == "database.unavailable"


def test_the_database_comes_from_the_environment(sqlite_url: str) -> None:
    assert postlude("db", "status", POSTLUDE_DATABASE=sqlite_url).code == 0
    assert postlude("doctor", "--app", APP, "--json", database=sqlite_url).json["healthy"] is True


def test_a_schema_of_its_own_is_found_by_the_settings(run, any_postgres_url: str, monkeypatch) -> None:
    monkeypatch.setenv("POSTLUDE_SCHEMA", "elsewhere")
    assert run("db", "status", "--database", any_postgres_url).code == 1
    missing = run("outbox", "stats", "--database", any_postgres_url, "--json")
    assert (missing.code, missing.json["error"]["code"]) == (1, "schema.missing")
    assert run("db", "upgrade", "--database", any_postgres_url).code == 0
    assert run("outbox", "stats", "--database", any_postgres_url, "--json").code == 0
