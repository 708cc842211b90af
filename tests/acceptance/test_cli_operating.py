"""`postlude outbox`, `events` and `destination`: what an operator sees and does, on both databases."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.acceptance.cli_shop import APP, ONE_OF_EACH, POISON, Answer, InProcess, items, on_shop, place, postlude
from tests.databases import Databases

REVEALED = ("--reveal", "--reason", "tests")


@pytest.fixture(params=ONE_OF_EACH)
def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh()


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], url: str):
    """Runs a command on the database of the test."""
    run = InProcess(capsys)
    return lambda *arguments: run(*arguments, "--database", url)


def test_a_dead_letter_is_listed_requeued_and_discarded(ask, url: str) -> None:
    good, bad = place(url, "lamp", POISON)
    listed = ask("outbox", "list", "--status", "dead", "--json")
    assert items(listed, "event_id", "destination", "attempts") == [(str(bad), "handler:reserve", 1)]
    assert "Reject" in items(listed, "error")[0][0]

    dry = ask("outbox", "requeue", str(bad), "--reason", "try", "--dry-run", "--json")
    assert (dry.code, dry.json["changed"], dry.json["dry_run"]) == (0, 1, True)
    assert ask("outbox", "stats", "--json").json["counts"]["dead"] == 1

    done = ask("outbox", "requeue", str(bad), "--reason", "shelf built", "--actor", "ann", "--json")
    assert (done.code, done.json["events"]) == (0, [str(bad)])
    assert "come after what followed them" in done.json["notes"][0]
    assert ask("outbox", "stats", "--json").json["counts"] == {
        "pending": 0, "claimed": 0, "failed": 1, "scheduled": 0, "dead": 0,
    }  # fmt: skip

    nothing = ask("outbox", "requeue", str(bad), str(good), "--reason", "again", "--json")
    assert (nothing.code, nothing.json["changed"]) == (1, 0)

    assert ask("outbox", "bury", "--type", "order.placed", "--reason", "not now", "--json").json["changed"] == 1
    assert ask("outbox", "discard", "--key", "o-1", "--since", "1h", "--reason", "gone", "--json").json["changed"] == 1
    shown = ask("outbox", "show", str(bad), "--json").json
    assert ("handler:reserve", "discarded") in [(one["destination"], one["outcome"]) for one in shown["receipts"]]
    assert shown["deliveries"] == []

    audits = on_shop(url, lambda shop: shop.insight.audits())
    told = [(one["action"], one["target"], one["reason"]) for one in reversed(audits)]
    assert told == [(a, str(bad), r) for a, r in (("requeue", "shelf built"), ("bury", "not now"), ("discard", "gone"))]
    assert audits[-1]["actor"] == "ann"
    assert "@" in audits[0]["actor"]


def test_everything_must_be_said(ask, url: str) -> None:
    place(url, POISON, POISON, "lamp")
    refused = ask("outbox", "requeue", "--reason", "all of them", "--json")
    assert (refused.code, refused.json["error"]["hint"]) == (2, "Give event ids or filters, or --all.")
    both = ask("outbox", "requeue", str(uuid4()), "--type", "order.placed", "--reason", "both", "--json")
    assert both.code == 2
    assert ask("outbox", "requeue", "--all", "--reason", "all", "--dry-run", "--json").json["changed"] == 2
    assert ask("outbox", "requeue", "--all", "--reason", "all", "--json").json["changed"] == 2


@pytest.mark.parametrize("missing", ["--reason", "ids"])
def test_an_action_needs_its_reason_and_real_ids(ask, missing: str) -> None:
    arguments = (
        ["outbox", "discard", "--all"] if missing == "--reason" else ["outbox", "discard", "o-1", "--reason", "x"]
    )
    answer = ask(*arguments, "--json")
    assert (answer.code, answer.json["error"]["code"]) == (2, "usage")


def test_lists_are_filtered_and_paged(ask, url: str) -> None:
    ids = place(url, "lamp", "lamp", "lamp", relay=False)
    seen: list[str] = []
    after: list[str] = []
    while True:
        page = ask("outbox", "list", "--destination", "default", "--limit", "2", "--json", *after)
        seen += [one[0] for one in items(page, "event_id")]
        if page.json["after"] is None:
            break
        after = ["--after", page.json["after"]]
    assert seen == [str(one) for one in ids]
    assert items(ask("outbox", "list", "--key", "o-1", "--json"), "key") == [("o-1",)] * 3
    assert items(ask("outbox", "list", "--until", "1h", "--json"), "key") == []
    assert items(ask("outbox", "list", "--type", "other", "--json"), "key") == []


@pytest.mark.parametrize(
    "wrong",
    [["--status", "nearly"], ["--since", "yesterday"], ["--after", "x"], ["--limit", "0"], ["--status", "sent", "--after", "x"]],
)  # fmt: skip
def test_a_wrong_filter_is_refused(ask, wrong: list[str]) -> None:
    answer = ask("outbox", "list", "--json", *wrong)
    assert answer.code == 2
    assert answer.json["error"]["message"]


def test_settled_deliveries_are_listed_too(ask, url: str) -> None:
    place(url, "lamp")
    sent = items(ask("outbox", "list", "--status", "sent", "--json"), "destination", "status")
    assert sorted(sent) == [("default", "sent"), ("handler:reserve", "sent"), ("handler:wait", "sent")]


def test_an_event_is_shown_with_what_it_says(ask, url: str) -> None:
    (event_id,) = place(url, "lamp")
    shown = ask("events", "show", str(event_id), *REVEALED, "--json").json
    assert shown["event"]["payload"] == {"order_id": "o-0", "product": "lamp"}
    assert len(shown["receipts"]) == 3
    text = ask("events", "show", str(event_id), *REVEALED).out
    assert '"product":"lamp"' in text
    assert "handler:reserve" in text
    unknown = ask("events", "show", str(uuid4()), "--json")
    assert (unknown.code, unknown.json["error"]["code"]) == (1, "insight.not_found")


def test_events_are_exported_whole(ask, url: str, tmp_path: Path) -> None:
    ids = place(url, "lamp", "chair")
    lines = [json.loads(line) for line in ask("events", "export", *REVEALED).out.splitlines()]
    assert {line["event_id"] for line in lines} == {str(one) for one in ids}
    assert {line["payload"]["product"] for line in lines} == {"lamp", "chair"}
    target = tmp_path / "events.jsonl"
    answer = ask("events", "export", "--since", "1h", "--output", str(target), *REVEALED, "--json")
    assert answer.json == {"exported": 2, "output": str(target)}
    assert [json.loads(line) for line in target.read_text().splitlines()] == lines
    assert ask("events", "export", "--type", "other").out == ""
    assert ask("events", "export", "--output", str(tmp_path / "no" / "where")).code == 2
    assert [path.name for path in tmp_path.glob("*.jsonl*")] + [path.name for path in tmp_path.glob(".*")] == [
        target.name
    ]


def test_a_destination_is_paused_and_resumed(ask, url: str) -> None:
    place(url, "lamp")

    def paused() -> list[str]:
        found = ask("destination", "list", "--json").json["destinations"]
        return [one["name"] for one in found if one["paused_at"] is not None]

    pause = ("destination", "pause", "default", "--reason", "broker moves")
    assert [ask(*pause).code, ask(*pause).code] == [0, 1]
    assert paused() == ["default"]
    resume = ("destination", "resume", "default", "--reason", "moved", "--json")
    assert [ask(*resume).json["changed"], ask(*resume).json["changed"]] == [True, False]
    assert paused() == []
    assert ask("destination", "pause", "nowhere", "--reason", "x").code == 1


def test_people_get_tables_that_keep_ids_whole(ask, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, bad = place(url, "lamp", POISON)
    monkeypatch.setenv("COLUMNS", "80")
    listed: Answer = ask("outbox", "list", "--status", "dead")
    assert str(bad) in listed.out
    assert max(map(len, listed.out.splitlines())) <= 80
    for command in (["outbox", "stats"], ["destination", "list"], ["outbox", "show", str(bad)]):
        shown = ask(*command)
        assert shown.code == 0
        assert "handler:reserve" in shown.out
        assert "\x1b" not in shown.out


def test_an_app_brings_its_own_database(sqlite_url: str) -> None:
    place(sqlite_url, "lamp", relay=False)
    answer = postlude("outbox", "stats", "--app", APP, "--json", database=sqlite_url)
    assert answer.json["counts"]["pending"] == 3
    assert answer.json["unserved"] == {"default": 1, "handler:reserve": 1, "handler:wait": 1}


def test_looking_at_a_file_that_is_not_there_does_not_make_it(tmp_path: Path, capsys) -> None:
    answer = InProcess(capsys)("outbox", "stats", "--json", "--database", f"sqlite:///{tmp_path}/typo.db")
    assert (answer.code, answer.json["error"]["code"]) == (3, "database.unavailable")
    assert list(tmp_path.iterdir()) == []
