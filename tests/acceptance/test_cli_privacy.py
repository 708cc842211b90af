"""`postlude privacy`, and what commands show of payloads: masked, unless somebody says why not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import pytest

from postlude import Postlude
from tests.acceptance.cli_shop import ONE_OF_EACH, InProcess, end, postlude, start
from tests.acceptance.obstacles import standing_in_the_way, wait_for
from tests.databases import Databases
from tests.sealing import SignedUp, app_with, append, listed, ring, seal_of

T = TypeVar("T")
ANN = SignedUp(user_id="u1", email="ann@example.org", person="ann")
PLAIN = SignedUp(user_id="u2", email="bob@example.org")
EVENTS = 2000


@pytest.fixture(params=ONE_OF_EACH)
def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh()


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("POSTLUDE_KEYS", listed("k2", "k1"))
    run = InProcess(capsys)
    return lambda *arguments: run(*arguments, "--database", url)


def on_app(url: str, work: Callable[[Postlude], Awaitable[T]]) -> T:
    async def within() -> T:
        async with app_with(url, ring("k1", "k2")) as app:
            app.route(SignedUp)
            return await work(app)

    return asyncio.run(within())


def put(url: str, *events: SignedUp) -> list[UUID]:
    async def work(app: Postlude) -> list[UUID]:
        return [await append(app, one) for one in events]

    return on_app(url, work)


def audits(url: str) -> list[Any]:
    return on_app(url, lambda app: app.insight.audits())


def test_payloads_are_masked_until_somebody_says_why_not(ask, url: str) -> None:
    (event_id,) = put(url, ANN)
    shown = ask("events", "show", str(event_id), "--json").json["event"]["payload"]
    assert shown == {"user_id": "<text>", "email": "<sealed>", "person": "<text>", "homes": []}
    text = ask("events", "show", str(event_id))
    assert '"email":"<sealed>"' in text.out
    assert "--reveal" in text.err
    (line,) = ask("events", "export").out.splitlines()
    assert json.loads(line)["payload"] == shown
    assert audits(url) == []

    why = ("--reveal", "--reason", "ticket 7", "--actor", "mira")
    revealed = ask("events", "show", str(event_id), *why, "--json").json["event"]["payload"]
    assert revealed["email"] == "ann@example.org"
    assert "ann@example.org" in ask("events", "show", str(event_id), *why).out
    exported = ask("events", "export", *why, "--json").json["events"]
    assert [one["payload"]["email"] for one in exported] == ["ann@example.org"]
    told = [(one["actor"], one["action"], one["target"], one["reason"]) for one in reversed(audits(url))]
    assert told == [("mira", "reveal", target, "ticket 7") for target in (str(event_id), str(event_id), "events")]


def test_revealing_needs_a_reason(ask, url: str) -> None:
    (event_id,) = put(url, ANN)
    for wrong in (("--reveal",), ("--reveal", "--reason", " "), ("--reason", "x")):
        for command in (("events", "show", str(event_id)), ("events", "export")):
            answer = ask(*command, *wrong, "--json")
            assert (answer.code, answer.json["error"]["code"]) == (2, "configuration.refused")
    assert audits(url) == []


def test_what_cannot_be_opened_stays_sealed_when_revealed(ask, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (event_id,) = put(url, PLAIN)
    monkeypatch.delenv("POSTLUDE_KEYS")
    shown = ask("events", "show", str(event_id), "--reveal", "--reason", "x", "--json").json["event"]["payload"]
    assert (shown["user_id"], shown["email"][:7]) == ("u2", "sealed:")


def test_masking_can_be_turned_off_but_seals_stay(ask, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (event_id,) = put(url, PLAIN)
    monkeypatch.setenv("POSTLUDE_PRIVACY__MASK", "false")
    shown = ask("events", "show", str(event_id), "--json").json["event"]["payload"]
    assert (shown["user_id"], shown["email"][:7]) == ("u2", "sealed:")


def test_keys_are_rotated(ask, url: str) -> None:
    ids = put(url, ANN, PLAIN)
    answer = ask("privacy", "rotate", "--actor", "mira", "--json")
    assert (answer.code, answer.json["key"], answer.json["resealed"], answer.json["left"]) == (0, "k2", 1, 0)
    assert on_app(url, lambda app: seal_of(app, ids[1])).key == "k2"
    assert ask("operation", "show", answer.json["operation"], "--json").json["status"] == "done"
    again = ask("privacy", "rotate")
    assert (again.code, again.out) == (0, "0 events are sealed again, with k2.\n")
    assert {one["actor"] for one in audits(url)} == {"mira"}


def test_what_no_key_opens_is_said(ask, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(url, PLAIN)
    monkeypatch.setenv("POSTLUDE_KEYS", listed("k3"))
    answer = ask("privacy", "rotate")
    assert (answer.code, answer.out) == (1, "0 events are sealed again, with k3.\n")
    assert "1 stay as they are" in answer.err


def test_keys_of_subjects_that_nothing_unwraps_are_counted(ask, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(url, ANN)
    monkeypatch.setenv("POSTLUDE_KEYS", listed("k3"))
    answer = ask("privacy", "rotate", "--json")
    assert (answer.code, answer.json["left"], answer.json["keys_left"]) == (1, 0, 1)
    assert "The keys of 1 data subject stay as they are" in ask("privacy", "rotate").err


def test_shredding_a_stranger_says_so(ask, url: str) -> None:
    answer = ask("privacy", "shred", "nobody", "--reason", "asked by mail")
    assert (answer.code, answer.out.splitlines()[0]) == (
        0,
        "It had no key of its own: nothing was sealed for it alone, and nothing will be.",
    )
    again = ask("privacy", "shred", "nobody", "--reason", "asked by mail")
    assert (again.code, again.out) == (1, "It was shredded before.\n")


def test_without_keys_nothing_is_rotated(ask, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POSTLUDE_KEYS")
    answer = ask("privacy", "rotate", "--json")
    assert (answer.code, answer.json["error"]["code"]) == (2, "configuration.refused")


def test_a_subject_is_shredded_and_never_named(ask, url: str) -> None:
    (event_id,) = put(url, ANN)
    shred = ("privacy", "shred", "ann", "--reason", "asked by mail", "--actor", "mira")
    first, second = ask(*shred), ask(*shred, "--json")
    assert (first.code, first.out) == (0, "Shredded.\n")
    assert (second.code, second.json) == (1, {"shredded": False, "had_key": False})
    (record,) = audits(url)
    assert (record["action"], record["actor"], record["reason"]) == ("shred", "mira", "asked by mail")
    assert "ann" not in record["target"]
    shown = ask("events", "show", str(event_id), "--reveal", "--reason", "x", "--json").json["event"]["payload"]
    assert shown["email"].startswith("sealed:")


def test_a_rotation_killed_in_the_middle_is_resumed(url: str) -> None:
    """A real process, a real kill."""

    async def fill(app: Postlude) -> list[UUID]:
        async with app.transaction() as tx:
            found = [SignedUp(user_id=f"u{n}", email=f"{n}@example.org") for n in range(EVENTS)]
            return await app.outbox.append_many(tx, found)

    ids = on_app(url, fill)
    keys = {"POSTLUDE_KEYS": listed("k2", "k1")}
    with standing_in_the_way(url, "postlude_event", "event_id", EVENTS * 3 // 4) as is_half_way:
        process = start("privacy", "rotate", "--database", url, **keys)
        try:
            wait_for(is_half_way, process)
        finally:
            end(process)
    (operation,) = on_app(url, lambda app: app.insight.operations())
    assert operation.status == "running"
    assert operation.done > 0
    resumed = postlude("operation", "resume", str(operation.id), "--database", url, "--json", **keys)
    assert resumed.json["status"] == "done", resumed
    assert resumed.json["done"] == EVENTS

    async def used(app: Postlude) -> set[str | None]:
        return {(await seal_of(app, one)).key for one in (ids[0], ids[EVENTS // 2], ids[-1])}

    assert on_app(url, used) == {"k2"}
    assert postlude("privacy", "rotate", "--database", url, "--json", **keys).json["resealed"] == 0
