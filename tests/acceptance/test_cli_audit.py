"""`postlude audit` as an operator uses it: list, verify, export."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from postlude import Postlude
from postlude.core.pseudonym import TARGET, pseudonym
from tests.acceptance.cli_shop import ONE_OF_EACH, Answer, InProcess, on_shop
from tests.databases import Databases
from tests.tampering import chained, literal, rewrite, tamper, write

Ask = Callable[..., Answer]


@pytest.fixture(params=ONE_OF_EACH)
def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh()


@pytest.fixture
def ask(url: str, capsys: pytest.CaptureFixture[str]) -> Ask:
    run = InProcess(capsys)
    return lambda *arguments: run(*arguments, "--database", url)


def test_a_chain_is_verified_and_what_was_linked_first_is_said(ask: Ask, url: str) -> None:
    on_shop(url, lambda shop: write(shop, "a", "b"))
    first = ask("audit", "verify")
    assert (first.code, "2 records were linked first." in first.err) == (0, True)
    assert "2 records: all as they were linked." in first.out
    again = ask("audit", "verify", "--json")
    assert (again.code, again.json["ok"], again.json["linked"], again.json["links"]) == (0, True, 0, 2)
    assert again.json["hash"] in first.out


def test_every_record_that_was_touched_is_named_and_the_exit_code_is_1(ask: Ask, url: str) -> None:
    on_shop(url, lambda shop: write(shop, "a", "b", "c"))
    ask("audit", "verify")
    records = on_shop(url, lambda shop: chained(shop.store.audits))
    changed, removed = (literal(url, one.id) for one in records[:2])
    asyncio.run(
        tamper(
            url,
            f"UPDATE postlude_audit SET actor = 'bob' WHERE id = {changed}",
            f"DELETE FROM postlude_audit WHERE id = {removed}",
        )
    )
    answer = ask("audit", "verify")
    assert answer.code == 1
    assert f"changed: record {records[0].id} (position 1)" in answer.out
    assert f"missing: record {records[1].id} (position 2) is missing" in answer.out
    found = ask("audit", "verify", "--json")
    assert found.code == 1
    assert [(one["kind"], one["record"]) for one in found.json["problems"]] == [
        ("changed", str(records[0].id)),
        ("missing", str(records[1].id)),
    ]
    export = ask("audit", "export")
    assert (export.code, len(export.out.splitlines())) == (1, 2)
    assert "1 records of the chain are missing" in export.err


def test_an_export_is_a_copy_to_verify_with(ask: Ask, url: str, tmp_path: Path) -> None:
    on_shop(url, lambda shop: write(shop, "a", "b", "c"))
    copy = tmp_path / "audit.jsonl"
    exported = ask("audit", "export", "--output", str(copy), "--json")
    assert (exported.code, exported.json) == (0, {"exported": 3, "output": str(copy)})
    assert [json.loads(line)["target"] for line in copy.read_text().splitlines()] == ["a", "b", "c"]
    assert ask("audit", "export").out == copy.read_text()
    assert [one["position"] for one in ask("audit", "export", "--json").json["records"]] == [1, 2, 3]
    fine = ask("audit", "verify", "--copy", str(copy), "--json")
    assert (fine.code, fine.json["copied"]) == (0, 3)
    records = on_shop(url, lambda shop: chained(shop.store.audits))
    asyncio.run(rewrite(url, records[:2]))
    assert ask("audit", "verify").code == 0
    answer = ask("audit", "verify", "--copy", str(copy))
    assert answer.code == 1
    assert f"cut_off: record {records[2].id} (position 3) is in the copy and not in" in answer.out


def test_records_of_a_subject_are_listed_by_an_id_that_is_stored_nowhere(ask: Ask, url: str) -> None:
    async def request(shop: Postlude) -> None:
        await shop.start()
        key = await shop.store.audits.pseudonym_key()
        await write(shop, TARGET + pseudonym(key, "ann@example.com"), action="erasure_requested")

    on_shop(url, request)
    (one,) = ask("audit", "list", "--subject", "ann@example.com", "--json").json["items"]
    assert one["action"] == "erasure_requested"
    assert "ann@example.com" not in json.dumps(one)
    assert ask("audit", "list", "--subject", "bob@example.com", "--json").json["items"] == []
    assert ask("audit", "list", "--subject", "ann", "--target", "x").code == 2
