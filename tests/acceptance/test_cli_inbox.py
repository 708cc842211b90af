"""`postlude inbox`, and what `doctor` and `events show` say of consumers, on both databases."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from postlude import ConfigurationError, NaiveDatetime, Postlude
from postlude.core.envelope import BrokerMessage
from tests.acceptance.cli_shop import InProcess
from tests.consuming import ONE_OF_EACH, Unreliable, counted, noted, open_books, raw, service
from tests.databases import Databases
from tests.engine import until

T = TypeVar("T")


@pytest.fixture(params=ONE_OF_EACH)
def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    made = databases_on(request.param).fresh()
    asyncio.run(open_books(made))
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> InProcess:
    return InProcess(capsys)


@pytest.fixture
def ask(run: InProcess, url: str):
    return lambda *arguments: run(*arguments, "--database", url)


def on_service(url: str, work: Callable[[Postlude], Awaitable[T]], *messages: BrokerMessage) -> T:
    """Publish these, let both consumers take them, and do something more."""

    async def within() -> T:
        broker = Unreliable(reads=False)
        await broker.publish(messages)
        async with service(url, broker, "billing", "shipping") as app:
            await app.drain()
            return await work(app)

    return asyncio.run(within())


async def nothing(app: Postlude) -> None:
    """Only take what is there."""


def test_stats_tell_what_each_consumer_took(ask, url: str) -> None:
    twice = noted(1)
    view = on_service(url, counted, twice, twice, raw(b"?"), noted(2, ce_type="test.other"))
    assert (view.open, view.dead) == (0, 1)  # the app knows its handlers

    told = {one["name"]: one for one in ask("inbox", "stats", "--json").json["consumers"]}
    assert list(told) == ["billing", "shipping"]
    for one in told.values():
        counts = [one[name] for name in ("received", "duplicates", "ignored", "unreadable", "lag")]
        assert counts == [4, 1, 1, 1, 0]
        assert (one["open"], one["dead"]) == (None, None)
        assert one["lag_age_seconds"] >= 0
        assert one["last_at"]

    shown = ask("inbox", "stats")
    assert shown.code == 0
    assert "billing" in shown.out
    assert "--app MODULE:ATTR" in shown.err


def test_stats_of_a_database_without_consumers_say_so(ask) -> None:
    assert ask("inbox", "stats").out == "No consumer has joined a broker yet.\n"
    assert ask("inbox", "stats", "--json").json == {"consumers": []}


def test_list_shows_what_was_seen(ask, url: str) -> None:
    first, second = noted(1), noted(2)
    on_service(url, nothing, first)
    on_service(url, nothing, second)
    everything = ask("inbox", "list", "--json").json["items"]
    ids = {message.headers["ce_id"] for message in (first, second)}
    assert [(one["consumer"], one["topic"]) for one in everything[:2]] in (
        [("billing", "noted"), ("shipping", "noted")],
        [("shipping", "noted"), ("billing", "noted")],
    )
    assert {one["event_id"] for one in everything} == ids
    assert {one["event_id"] for one in everything[:2]} == {second.headers["ce_id"]}

    mine = ask("inbox", "list", "--consumer", "billing", "--limit", "1", "--json").json["items"]
    assert [(one["consumer"], one["event_id"]) for one in mine] == [("billing", second.headers["ce_id"])]
    assert len(ask("inbox", "list", "--topic", "noted", "--since", "1h", "--json").json["items"]) == 4
    for filters in (["--topic", "other"], ["--until", "1h"], ["--consumer", "nobody"]):
        assert ask("inbox", "list", *filters, "--json").json["items"] == []
        assert ask("inbox", "list", *filters).out == "No message fits.\n"

    shown = ask("inbox", "list", "--limit", "2")
    assert second.headers["ce_id"] in shown.out
    assert "There may be more" in shown.err


def test_what_cannot_be_asked_is_refused(ask, url: str) -> None:
    assert ask("inbox", "list", "--since", "1h", "--until", "2h").code == 2
    assert ask("inbox", "list", "--limit", "0").code == 2

    async def wrong(app: Postlude) -> None:
        from datetime import datetime

        with pytest.raises(ConfigurationError, match="limit must lie between"):
            await app.insight.inbox(limit=0)
        with pytest.raises(NaiveDatetime):
            await app.insight.inbox(since=datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake

    on_service(url, wrong)


def test_a_database_that_cannot_be_reached_ends_with_3(run: InProcess) -> None:
    away = run("inbox", "stats", "--database", "postgresql://127.0.0.1:1/x", "--json")
    assert (away.code, away.json["error"]["code"]) == (3, "database.unavailable")


def test_the_bytes_of_an_unreadable_message_are_shown_as_they_came(ask, url: str) -> None:
    payload = bytes(range(256))
    on_service(url, nothing, raw(payload, tenant="t"))
    dead = ask("outbox", "list", "--status", "dead", "--destination", "consumer:billing", "--json").json["items"]
    told = ("--reveal", "--reason", "tests")
    event = ask("events", "show", dead[0]["event_id"], *told, "--json").json["event"]
    assert base64.b64decode(event["payload_base64"]) == payload
    assert event["headers"]["tenant"] == "t"
    assert event["headers"]["postlude-reason"] == "the message has no attributes of a CloudEvent"
    assert "postlude-reason" in ask("events", "show", dead[0]["event_id"]).out


def test_doctor_tells_of_a_consumer_that_nobody_serves(ask, url: str) -> None:
    def finding() -> tuple[str, str]:
        (found,) = [one for one in ask("doctor", "--json").json["checks"] if one["check"] == "consumers"][:1]
        return found["status"], found["message"]

    assert not [one for one in ask("doctor", "--json").json["checks"] if one["check"] == "consumers"]

    async def while_served(app: Postlude) -> tuple[str, str]:
        async with app.worker():
            await until(lambda: _is_told(app))
            return await asyncio.to_thread(finding)

    status, message = on_service(url, while_served, noted(1))
    assert (status, message) == ("ok", "all are served; lag: billing 0, shipping 0")
    status, message = finding()
    assert status == "warn"
    assert message.startswith("billing: no live worker takes its messages; its lag was last told")


async def _is_told(app: Postlude) -> bool:
    return all(one.lag_age_seconds is not None for one in await app.insight.consumers())
