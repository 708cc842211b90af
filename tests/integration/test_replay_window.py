"""The replay window: to a broker goes nothing that its consumers may have forgotten, and nothing is half done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from postlude import BeyondWindow, Filter, Message, Postlude
from postlude.cli.main import execute
from postlude.insight import actions, bulk
from postlude.ports.operating import Operation
from tests.engine import Noted, make_app, query

WHO: dict[str, Any] = {"actor": "ann", "reason": "tests"}
HOURS = 48


def shop(url: str, hours: int = HOURS) -> Postlude:
    """Everything goes to the broker and to a handler."""
    app = make_app(url, inbox={"replay_window_hours": hours})
    app.route(Noted)

    @app.on(Noted, name="count")
    async def count(noted: Noted) -> None: ...

    return app


async def sent(app: Postlude, *ages: float) -> list[UUID]:
    """Events of so many hours ago, all delivered."""
    noted = [Message(Noted(key=f"k{n}", n=n), id=_id_of(n)) for n in range(len(ages))]
    async with app.transaction() as tx:
        ids = await app.outbox.append_many(tx, noted)
    await app.drain()
    for event_id, hours in zip(ids, ages, strict=True):
        await age(app, event_id, hours)
    return ids


def _id_of(n: int) -> UUID:
    """Each of a millisecond of its own: PostgreSQL would not end a page between two of the same."""
    moment = int(time.time() * 1000) - 60_000 + n
    return UUID(int=moment << 80 | 0x7 << 76 | 0x2 << 62 | n)


async def age(app: Postlude, event_id: UUID, hours: float) -> None:
    """As if it had been made earlier: no test can wait for days."""
    url = str(app.settings.database)
    changes = {
        "sqlite": f"created_at = created_at - {hours * 3600} WHERE event_id = x'{event_id.hex}'",
        "postgres": f"created_at = created_at - interval '{hours} hours' WHERE event_id = '{event_id}'",
    }
    await query(url, f"UPDATE postlude_event SET {changes[app.store.dialect]}")


async def waiting(app: Postlude) -> int:
    return sum((await app.insight.counts()).values())


async def test_one_that_is_too_old_keeps_all_ids_from_being_replayed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "BATCH", 2)
    async with shop(database_url) as app:
        ids = await sent(app, 1, 2, 3, 49, 50)
        with pytest.raises(BeyondWindow, match=r"2 events were made longer ago .*replay_window_hours = 48") as refused:
            await app.actions.replay(ids, to="default", **WHO)
        assert refused.value.code == "replay.beyond_window"
        assert str(ids[4]) in refused.value.args[0]
        assert str(ids[3]) in refused.value.args[0]
        assert str(ids[2]) not in refused.value.args[0]
        assert "inbox.retention_hours" in refused.value.hint
        assert "--since" in refused.value.hint
        assert await waiting(app) == 0
        assert await app.insight.audits() == []
        assert await app.actions.replay([*ids[:3], uuid4()], to="default", **WHO) == ids[:3]
        assert await app.drain() == 3


async def test_a_filter_is_refused_before_it_begins_and_may_be_narrowed(database_url: str) -> None:
    async with shop(database_url) as app:
        ids = await sent(app, 1, 47, 49, 50, 51, 52)
        with pytest.raises(BeyondWindow, match=r"4 events were .*, \.\.\.") as refused:
            await app.actions.replay(Filter(), to="default", **WHO)
        assert sum(str(one) in refused.value.args[0] for one in ids[2:]) == 3, "some are named"
        assert (await waiting(app), await app.insight.operations(), await app.insight.audits()) == (0, [], [])
        since = datetime.now(UTC) - timedelta(hours=47.5)
        assert set(await app.actions.replay(Filter(since=since), to="default", **WHO)) == set(ids[:2])
        until = datetime.now(UTC) - timedelta(hours=51.5)
        with pytest.raises(BeyondWindow, match="1 event was") as refused:
            await app.actions.replay(Filter(until=until), to="default", **WHO)
        assert str(ids[5]) in refused.value.args[0]


async def test_what_the_filter_does_not_mean_may_be_as_old_as_it_likes(database_url: str) -> None:
    async with shop(database_url) as app:
        ids = await sent(app, 1, 500)
        assert await app.actions.replay(Filter(key="k0"), to="default", **WHO) == ids[:1]
        with pytest.raises(BeyondWindow):
            await app.actions.replay(Filter(key="k1"), to="default", **WHO)


async def test_handlers_of_this_app_may_see_everything_again(database_url: str) -> None:
    async with shop(database_url) as app:
        ids = await sent(app, 1, 500)
        assert set(await app.actions.replay(Filter(), to="handler:count", **WHO)) == set(ids)
        assert await app.drain() == 2
        assert await app.actions.replay(ids, to="handler:count", **WHO) == ids


async def test_zero_hours_are_no_limit(database_url: str) -> None:
    async with shop(database_url, hours=0) as app:
        ids = await sent(app, 1, 5000)
        assert set(await app.actions.replay(Filter(), to="default", **WHO)) == set(ids)
        assert await app.drain() == 2
        assert await app.actions.replay(ids, to="default", **WHO) == ids


async def test_the_window_is_thirty_days_unless_it_is_set(database_url: str) -> None:
    app = make_app(database_url)
    app.route(Noted)
    async with app:
        young, old = await sent(app, 719, 721)
        assert await app.actions.replay([young], to="default", **WHO) == [young]
        with pytest.raises(BeyondWindow, match="replay_window_hours = 720"):
            await app.actions.replay([old], to="default", **WHO)


# ---------------------------------------------------------------- while it runs


def once_told(after: int, act: Callable[[], None]) -> Callable[[Operation], None]:
    """Does something when so many are done."""

    def tell(operation: Operation) -> None:
        if operation.done == after:
            act()

    return tell


async def test_a_page_that_meets_one_stops_and_can_be_resumed(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was young enough when the operation began may not be so when its page comes."""
    monkeypatch.setattr(bulk, "PAGE", 2)
    async with shop(database_url) as app, shop(database_url, hours=0) as unlimited:
        ids = await sent(app, 1, 1, 1, 1, 1)
        later = once_told(await first_page(app), lambda: app.clock.advance(HOURS * 3600))
        with pytest.raises(BeyondWindow) as refused:
            await app.actions.replay(Filter(), to="default", told=later, **WHO)
        (running,) = await app.insight.operations()
        assert 0 < running.done < 5
        assert running.status == "running"
        assert await waiting(app) == running.done, "what was done stays done"
        for verb in ("resume", "cancel"):
            assert f"postlude operation {verb} {running.id}" in refused.value.hint
        with pytest.raises(BeyondWindow):
            await app.actions.resume_operation(running.id, actor="bob")
        ended = await unlimited.actions.resume_operation(running.id, actor="bob")
        assert (ended.status, ended.done) == ("done", 5)
        assert await waiting(app) == len(ids)


async def test_an_operation_that_met_one_can_be_given_up(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 2)
    async with shop(database_url) as app:
        await sent(app, 1, 1, 1, 1, 1)
        later = once_told(0, lambda: app.clock.advance(HOURS * 3600))
        with pytest.raises(BeyondWindow):
            await app.actions.replay(Filter(), to="default", told=later, **WHO)
        (running,) = await app.insight.operations()
        assert await app.actions.cancel_operation(running.id, **WHO)
        assert await waiting(app) == 0


async def first_page(app: Postlude) -> int:
    planned = await app.actions.bulk.plan("replay", Filter(), to="default", **WHO)
    return len((await app.actions.bulk.preview(planned, bulk.PAGE)).rows)


# ---------------------------------------------------------------- the command line


@pytest.fixture
def ask(
    capsys: pytest.CaptureFixture[str], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, dict[str, Any]]]:
    monkeypatch.setenv("POSTLUDE_INBOX__REPLAY_WINDOW_HOURS", str(HOURS))

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        replay = ("events", "replay", "--to", "default", "--reason", "lost", "--database", database_url, "--json")
        code = execute([*replay, *arguments])
        return code, msgspec.json.decode(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("is_dry", [False, True], ids=["done", "dry run"])
def test_the_command_refuses_and_so_does_its_dry_run(ask: Any, database_url: str, is_dry: bool) -> None:
    young, old = asyncio.run(_prepare(database_url))
    dry = ["--dry-run"] if is_dry else []
    for which in (["--all"], ["--since", "3d"], [str(young), str(old)]):
        code, answer = ask(*which, *dry)
        assert code == 1
        assert answer["error"]["code"] == "replay.beyond_window"
        assert str(old) in answer["error"]["message"]
        assert "--since" in answer["error"]["hint"]
    assert asyncio.run(_open(database_url)) == 0
    for which in (["--since", "40h"], [str(young)]):
        code, answer = ask(*which, "--dry-run")
        assert (code, answer["events"]) == (0, [str(young)])
    code, answer = ask("--since", "40h", *dry)
    assert (code, answer["events"]) == (0, [str(young)])


async def _prepare(url: str) -> list[UUID]:
    async with shop(url) as app:
        return await sent(app, 1, 50)


async def _open(url: str) -> int:
    async with shop(url) as app:
        return await waiting(app)
