"""The duty that links and copies: within a second, in order, through outages, and nothing is lost."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from postlude import (
    AuditBroken,
    AuditRecord,
    ConfigurationError,
    FileAuditSink,
    Filter,
    Postlude,
    Reject,
    SinkUnavailable,
)
from postlude.runtime.duties import chain
from postlude.runtime.duties.chain import Chain
from postlude.runtime.watchers import Watchers
from tests.engine import Noted, held, make_app, note, routed_app, until
from tests.tampering import chained, literal, rewrite, tamper, write


class Sink:
    """Takes records, or does not."""

    def __init__(self) -> None:
        self.taken: list[int | None] = []
        self.is_down = False

    async def append(self, records: Sequence[AuditRecord]) -> None:
        if self.is_down:
            raise OSError("ann@example.com has no space left")
        self.taken += [record.position for record in records]


def duty_of(app: Postlude) -> Chain:
    (duty,) = (one for one in app.engine.duties() if isinstance(one, Chain))
    duty.epochs = {0: 1}
    return duty


async def shipped_is(app: Postlude, position: int) -> bool:
    return await app.store.audits.shipped("siem") == position


async def positions(app: Postlude) -> list[int | None]:
    return [one.position async for one in app.audit.export()]


async def test_a_worker_links_and_copies_what_operators_did(database_url: str, tmp_path: Path) -> None:
    copy = tmp_path / "audit.jsonl"
    app = routed_app(database_url, audit={"file": str(copy)})
    sink = Sink()
    app.audit.add_sink(sink, name="siem")
    async with app, app.worker():
        await app.actions.pause("default", actor="ann", reason="broken")
        await app.actions.resume("default", actor="ann", reason="mended")
        await until(lambda: sink.taken == [1, 2])
        assert await FileAuditSink(copy).position() == 2
        assert [one.action for one in await chained(app.store.audits)] == ["pause", "resume"]
        await until(lambda: shipped_is(app, 2))


async def test_what_commits_late_is_linked_all_the_same(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "REACH", 0.0)
    monkeypatch.setattr(chain, "STRETCH", 2)
    monkeypatch.setattr(chain, "REST", 1)
    async with make_app(postgres_url) as app, held(postgres_url) as late:
        duty = duty_of(app)
        await late.connection.execute(
            "INSERT INTO postlude_audit (id, actor, action, target, reason)"
            " VALUES (gen_random_uuid(), 'ann', 'late', 'x', '')"
        )
        await write(app, "a", "b", "c", "d", "e")
        await duty.round()
        assert len(await positions(app)) == 5
        await late.commit()
        for _ in range(8):
            await duty.round()
        assert [one.target for one in await chained(app.store.audits)] == ["a", "b", "c", "d", "e", "x"]
        assert (await app.audit.verify()).ok


async def test_many_records_are_linked_in_bounded_rounds(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "BATCH", 2)
    async with make_app(database_url) as app:
        sink = Sink()
        app.audit.add_sink(sink, name="siem")
        await write(app, *"abcde")
        told: list[int] = []
        assert (await app.maintenance.run("chain", told.append)).rows == 5
        assert told[:3] == [2, 4, 5]
        assert sink.taken == [1, 2, 3, 4, 5]


async def test_a_sink_that_is_down_gets_everything_later_in_order(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "postlude")
    async with make_app(database_url) as app:
        await app.maintenance.run("chain")
        down, well, duty = Sink(), Sink(), duty_of(app)
        app.audit.add_sink(down, name="down")
        app.audit.add_sink(well, name="well")
        down.is_down = True
        for target in "abc":
            await write(app, target)
            await duty._take_turn(Watchers([]))
        assert (down.taken, well.taken) == ([], [1, 2, 3]), "linking and the others go on"
        said = [record.getMessage() for record in caplog.records]
        assert said == ["duty:chain: the audit sink down takes no records (OSError)"], "once an outage"
        (told,) = [one for one in await app.maintenance.duties() if one.name == "chain"]
        assert told.error == "SinkUnavailable: the audit sink down takes no records (OSError)"
        with pytest.raises(SinkUnavailable):
            await app.maintenance.run("chain")
        down.is_down = False
        await duty._take_turn(Watchers([]))
        assert (down.taken, well.taken) == ([1, 2, 3], [1, 2, 3])
        (told,) = [one for one in await app.maintenance.duties() if one.name == "chain"]
        assert told.error is None
        assert caplog.records[-1].getMessage() == "duty:chain goes on"
        assert "ann@example.com" not in caplog.text


async def test_sinks_get_everything_now_when_asked(database_url: str) -> None:
    async with make_app(database_url) as app:
        sink = Sink()
        app.audit.add_sink(sink, name="siem")
        await write(app, "a", "b")
        assert await app.audit.ship() == 2
        assert await app.audit.ship() == 0
        assert sink.taken == [1, 2]
        sink.is_down = True
        await write(app, "c")
        with pytest.raises(SinkUnavailable, match="siem"):
            await app.audit.ship()


async def test_a_sink_goes_on_where_it_stood_after_a_restart(database_url: str) -> None:
    for taken in ([1, 2], [3]):
        async with make_app(database_url) as app:
            sink = Sink()
            app.audit.add_sink(sink, name="siem")
            await write(app, *map(str, taken))
            await app.maintenance.run("chain")
            assert sink.taken == taken


async def test_a_copy_that_was_lost_is_made_again(sqlite_url: str, tmp_path: Path) -> None:
    copy = tmp_path / "audit.jsonl"
    async with make_app(sqlite_url, audit={"file": str(copy)}) as app:
        await write(app, "a", "b")
        await app.maintenance.run("chain")
        copy.unlink()
        await write(app, "c")
        await app.maintenance.run("chain")
        report = await app.audit.verify(copy)
        assert (report.ok, report.copied) == (True, 3)


async def test_a_missing_record_does_not_keep_the_others_from_their_copy(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with make_app(database_url) as app:
        await write(app, "a", "b", "c")
        await app.audit.link()
        gone = (await chained(app.store.audits))[1].id
        await tamper(database_url, f"DELETE FROM postlude_audit WHERE id = {literal(database_url, gone)}")
        sink = Sink()
        app.audit.add_sink(sink, name="siem")
        await app.maintenance.run("chain")
        assert sink.taken == [1, 3]
        assert str(gone) in caplog.text


async def test_a_last_record_that_is_missing_does_not_keep_shipping_from_its_end(
    sqlite_url: str, tmp_path: Path
) -> None:
    async with make_app(sqlite_url) as app:
        sink = FileAuditSink(tmp_path / "copy.jsonl")
        app.audit.add_sink(sink, name="file")
        await write(app, "a", "b")
        await app.audit.link()
        last = (await chained(app.store.audits))[-1]
        await tamper(sqlite_url, f"DELETE FROM postlude_audit WHERE id = {literal(sqlite_url, last.id)}")
        assert (await app.audit.ship(), await sink.position()) == (0, 1)
        await write(app, "c")
        assert (await app.audit.ship(), await sink.position()) == (1, 3)


async def test_a_copy_does_not_go_on_behind_another_history(database_url: str, tmp_path: Path) -> None:
    """After a restore of an older backup the new records take positions that the copy has already."""
    async with make_app(database_url) as app:
        sink = FileAuditSink(tmp_path / "copy.jsonl")
        app.audit.add_sink(sink, name="file")
        await write(app, "a", "b")
        await app.audit.ship()
        backup = await chained(app.store.audits)
        await write(app, "c", "d")
        await app.audit.ship()
        await rewrite(database_url, backup)
        await write(app, "x", "y", "z")
        with pytest.raises(AuditBroken, match="position 4 is another record"):
            await app.audit.ship()
        assert await sink.position() == 4


async def test_a_broken_head_stops_linking_and_not_copying(database_url: str) -> None:
    async with make_app(database_url) as app:
        await write(app, "a", "b")
        await app.audit.link()
        await tamper(database_url, "UPDATE postlude_meta SET value = '0:' WHERE name = 'audit_head'")
        await write(app, "c")
        sink = Sink()
        app.audit.add_sink(sink, name="siem")
        with pytest.raises(AuditBroken, match="does not fit its last link at position 2"):
            await app.maintenance.run("chain")
        assert sink.taken == [1, 2]


async def test_an_idle_chain_writes_nothing(sqlite_url: str) -> None:
    async with make_app(sqlite_url) as app:
        await app.maintenance.run("chain")
        duty = duty_of(app)
        await duty._take_turn(Watchers([]))
        (before,) = [one for one in await app.maintenance.duties() if one.name == "chain"]
        assert before.next_at is not None
        for _ in range(5):
            await duty._take_turn(Watchers([]))
        (after,) = [one for one in await app.maintenance.duties() if one.name == "chain"]
        assert before.ran_at == after.ran_at


async def test_each_database_has_a_copy_of_its_own(tmp_path: Path) -> None:
    urls = {name: f"sqlite:///{tmp_path / name}.db" for name in ("main", "branch")}
    app = make_app(urls["main"], audit={"file": str(tmp_path / "audit.jsonl")}, databases={"branch": urls["branch"]})
    async with app:
        for name, engine in app.databases.items():
            (sink,) = engine.audit.sinks.values()
            assert isinstance(sink, FileAuditSink)
            assert sink.path.name == ("audit.jsonl" if name == "default" else f"audit.{name}.jsonl")


async def test_a_sink_needs_a_name_of_its_own(sqlite_url: str) -> None:
    app = make_app(sqlite_url, audit={"file": "audit.jsonl"})
    for name in ("file", "", " "):
        with pytest.raises(ConfigurationError, match="cannot be named"):
            app.audit.add_sink(Sink(), name=name)


async def test_an_action_within_a_handler_names_its_trace(database_url: str) -> None:
    app = make_app(database_url)

    @app.on(Noted, name="guard", transactional=False)
    async def guard(noted: Noted) -> None:
        if noted.n == 1:
            raise Reject("no")
        await app.actions.discard(Filter(status="dead"), actor="guard", reason="known")
        await app.actions.pause("handler:guard", actor="guard", reason="enough")

    async with app:
        await note(app, "a", 1)
        await app.drain()
        await note(app, "b", 2)
        await app.drain()
        (event,) = await app.insight.list(status="sent")
        story = await app.insight.event(event.event_id)
        trace = story.event.headers["traceparent"].split("-")[1]
        found = {one.action: one.trace_id for one in await app.audit.list(actor="guard")}
        assert found == {"discard": trace, "pause": trace}
