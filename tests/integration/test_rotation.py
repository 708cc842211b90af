"""New keys and dropped keys: re-sealing that survives a kill, wrapped keys, shredding for good."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any
from uuid import UUID

import msgspec
import pytest

from postlude import ConfigurationError, KeyUnknown, Postlude, Shredded
from postlude.core.sealing import HEADER
from postlude.errors import OperationRunning
from postlude.insight import bulk
from postlude.ports.operating import Operation
from tests.engine import query, until
from tests.integration.test_operations import Killed, killed_after
from tests.sealing import SignedUp, Whole, app_with, append, dead_codes, handled, ring, seal_of, stored

WHO: dict[str, Any] = {"actor": "mira", "reason": "asked by mail"}
OF_ANN = SignedUp(user_id="u", email="ann@example.org", person="ann")
OF_BOB = SignedUp(user_id="u", email="bob@example.org", person="bob")


def numbered(n: int) -> SignedUp:
    return SignedUp(user_id=f"u{n}", email=f"{n}@example.org")


async def fill(url: str, count: int) -> list[UUID]:
    async with app_with(url, ring("k1")) as app:
        handled(app)
        async with app.transaction() as tx:
            return await app.outbox.append_many(tx, [*map(numbered, range(count)), OF_ANN, OF_BOB])


async def keys_in_use(app: Postlude, ids: list[UUID]) -> set[str | None]:
    return {(await seal_of(app, one)).key for one in ids}


async def test_rotation_seals_everything_again(database_url: str) -> None:
    ids = await fill(database_url, 12)
    async with app_with(database_url, ring("k2", "k1")) as app:
        ended = await app.privacy.rotate(**WHO)
        assert (ended.status, ended.done, ended.total, ended.destination) == ("done", 12, 12, "k2")
        assert await keys_in_use(app, ids) == {"k2", None}
        again = await app.privacy.rotate(**WHO)
        assert (again.done, again.total) == (0, 0)
        records = [(one["action"], one["actor"], one["reason"]) for one in await app.insight.audits()]
        assert records == [("reseal", "mira", "asked by mail"), ("rewrap", "mira", "asked by mail")]
        assert (await app.insight.audits(target=str(ended.id)))[0]["detail"] == {"events": 12, "key": "k2"}
    async with app_with(database_url, ring("k2")) as app:
        got = handled(app)
        await app.drain()
    assert sorted(got, key=lambda one: (one.user_id, one.email)) == sorted(
        [*map(numbered, range(12)), OF_ANN, OF_BOB], key=lambda one: (one.user_id, one.email)
    )


async def test_a_rotation_that_was_killed_goes_on_where_it_stood(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "PAGE", 4)
    ids = await fill(database_url, 11)
    async with app_with(database_url, ring("k2", "k1")) as app:
        with pytest.raises(Killed):
            await app.privacy.rotate(told=killed_after(2), **WHO)
        assert await keys_in_use(app, ids[:-2]) == {"k1", "k2"}
    for keys in (None, ring("k3", "k1")):
        async with app_with(database_url, keys) as app:
            (running,) = await app.insight.operations(status="running")
            with pytest.raises(ConfigurationError if keys is None else KeyUnknown):
                await app.actions.resume_operation(running.id, actor="bob")
    async with app_with(database_url, ring("k2", "k1")) as app:
        (running,) = await app.insight.operations(status="running")
        assert (running.action, running.done, running.total) == ("reseal", 8, 11)
        with pytest.raises(OperationRunning, match="8 of 11"):
            await app.privacy.rotate(**WHO)
        ended = await app.actions.resume_operation(running.id, actor="bob")
        assert (ended.status, ended.done) == ("done", 11)
        assert await keys_in_use(app, ids[:-2]) == {"k2"}
    async with app_with(database_url, ring("k2")) as app:
        got = handled(app)
        await app.drain()
        assert len(got) == 13


async def test_a_page_that_fails_changes_nothing(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor and what it stands for commit together: one who comes too late with a page does nothing."""
    ids = await fill(database_url, 3)
    async with app_with(database_url, ring("k2", "k1")) as app:
        taken: list[tuple[Operation, Any]] = []
        real = app.privacy.reseal

        async def twice(operation: Operation, page: Any) -> Any:
            taken.append((operation, page))
            return await real(operation, page)

        app.actions.bulk.turns["reseal"] = twice
        await app.privacy.rotate(**WHO)
        before = [(await stored(app, one)).payload for one in ids]
        assert await real(*taken[0]) is None
        assert [(await stored(app, one)).payload for one in ids] == before
        assert len(await app.insight.audits(target=str(taken[0][0].id))) == 1


async def test_two_that_rotate_share_the_work(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "PAGE", 3)
    await fill(database_url, 20)
    async with app_with(database_url, ring("k2", "k1")) as app, app_with(database_url, ring("k2", "k1")) as other:
        with pytest.raises(Killed):
            await app.privacy.rotate(told=killed_after(1), **WHO)
        (running,) = await app.insight.operations(status="running")
        both = await asyncio.gather(
            app.actions.resume_operation(running.id, actor="ann"),
            other.actions.resume_operation(running.id, actor="bob"),
        )
        assert [(one.status, one.done) for one in both] == [("done", 20)] * 2


async def test_what_no_key_opens_stays_and_is_counted(database_url: str) -> None:
    ids = await fill(database_url, 2)
    async with app_with(database_url, ring("k0")) as app:
        handled(app)
        lost = await append(app, numbered(9))
    async with app_with(database_url, ring("k2", "k1")) as app:
        ended = await app.privacy.rotate(**WHO)
        assert (ended.status, ended.done, ended.total) == ("done", 2, 3)
        assert await keys_in_use(app, ids[:2]) == {"k2"}
        assert (await seal_of(app, lost)).key == "k0"


async def test_headers_of_others_do_not_stop_a_rotation(database_url: str) -> None:
    await fill(database_url, 1)
    async with app_with(database_url, ring("k2", "k1")) as app:
        app.route(Whole)
        whole = await append(app, Whole(note="n"), headers={"tenant": "t"})
        plain = "'{\"postlude-sealed\": 7}'"
        broken = "'not json'" if app.store.dialect == "sqlite" else plain
        for number, headers in enumerate((plain, broken)):
            key = f"x'{number:032x}'" if app.store.dialect == "sqlite" else f"'{UUID(int=number)}'"
            await query(
                database_url,
                "INSERT INTO postlude_event (event_id, type, topic, payload, headers)"
                f" VALUES ({key}, 't', 't', {_empty(app)}, {headers})",
            )
        assert (await app.privacy.rotate(**WHO)).done == 1
        assert (await stored(app, whole)).headers["tenant"] == "t"


def _empty(app: Postlude) -> str:
    return "x'7b7d'" if app.store.dialect == "sqlite" else "'{}'"


# ---------------------------------------------------------------- shredding


async def test_nothing_of_a_shredded_subject_is_opened_again(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    got = handled(app)
    async with app:
        ann, bob = await append(app, OF_ANN), await append(app, OF_BOB)
        subject = (await seal_of(app, ann)).subject
        assert await app.privacy.shred("ann", **WHO)
        assert not await app.privacy.shred("ann", **WHO)
        (record,) = await app.insight.audits()
        assert (record["action"], record["target"], record["actor"]) == ("shred", f"subject:{subject}", "mira")
        await app.drain()
        assert got == [OF_BOB]
        assert "privacy.shredded" in str(await dead_codes(app, ann))
        found = await query(database_url, f"SELECT key_id, key FROM postlude_subject WHERE subject = '{subject}'")
        assert found == [(None, None)]
        with pytest.raises(Shredded):
            await append(app, OF_ANN)
        await append(app, OF_BOB)
        await app.drain()
        assert got == [OF_BOB, OF_BOB], bob
        await app.actions.requeue([ann], actor="mira", reason="again")
        await app.drain()
        assert "privacy.shredded" in str(await dead_codes(app, ann))


async def test_a_subject_that_never_had_a_key_is_shredded_too(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    handled(app)
    async with app:
        assert await app.privacy.shred("ann", **WHO)
        with pytest.raises(Shredded):
            await append(app, OF_ANN)
        with pytest.raises(ConfigurationError):
            await app.privacy.shred("bob", actor=" ", reason="r")


async def test_a_reason_for_shredding_does_not_say_who_and_an_id_need_not_be_text(sqlite_url: str) -> None:
    async with app_with(sqlite_url, ring("k1")) as app:
        with pytest.raises(ConfigurationError, match="names the subject"):
            await app.privacy.shred("ann@example.org", actor="mira", reason="ann@example.org asked")
        with pytest.raises(ConfigurationError, match="subject id"):
            await app.privacy.shred(" ", actor="mira", reason="asked")
        assert await app.privacy.shred(7, actor="mira", reason="asked")
        assert not await app.privacy.shred("7", actor="mira", reason="asked")


async def test_shredding_is_part_of_the_callers_transaction(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    got = handled(app)
    async with app:
        await append(app, OF_ANN)
        with pytest.raises(ZeroDivisionError):
            async with app.transaction() as tx:
                await app.privacy.shred("ann", tx=tx, **WHO)
                raise ZeroDivisionError
        assert await app.insight.audits() == []
        await app.drain()
    assert got == [OF_ANN]


async def test_a_worker_that_runs_already_knows_at_once(database_url: str) -> None:
    app, other = app_with(database_url, ring("k1")), app_with(database_url, ring("k1"))
    got, _ = handled(app), handled(other)
    async with app, other, app.worker():
        await append(other, OF_ANN)
        await until(lambda: got == [OF_ANN])
        late = await append(other, OF_ANN, available_at=_later())
        assert await other.privacy.shred("ann", **WHO)
        app.clock.ahead += 7200

        async def is_dead() -> bool:
            return (await other.insight.counts())["dead"] == 1

        await until(is_dead)
        assert "privacy.shredded" in str(await dead_codes(other, late))
    assert got == [OF_ANN]


def _later() -> Any:
    from datetime import UTC, datetime, timedelta

    return datetime.now(UTC) + timedelta(hours=1)


async def test_rotation_counts_the_keys_that_it_cannot_wrap_again(database_url: str) -> None:
    await fill(database_url, 0)
    async with app_with(database_url, ring("k2")) as app:
        assert (await app.privacy.rotate(**WHO)).keys_left == 2
    async with app_with(database_url, ring("k2", "k1")) as app:
        assert (await app.privacy.rotate(**WHO)).keys_left == 0
        assert await app.privacy.has_key("ann")
        assert not await app.privacy.has_key("stranger")
        assert await app.privacy.shred("stranger", **WHO)
        assert not await app.privacy.shred("stranger", **WHO)


async def test_rotation_leaves_shredded_subjects_alone(database_url: str) -> None:
    await fill(database_url, 0)
    async with app_with(database_url, ring("k1")) as app:
        await app.privacy.shred("ann", **WHO)
    async with app_with(database_url, ring("k2", "k1")) as app:
        await app.privacy.rotate(**WHO)
    found = await query(database_url, "SELECT key_id FROM postlude_subject ORDER BY key_id IS NULL")
    assert found == [("k2",), (None,)]


async def test_another_database_cannot_open_what_a_subject_has_sealed(database: Any) -> None:
    producer, consumer = app_with(database.fresh(), ring("k1")), app_with(database.fresh(), ring("k1"))
    consumer._opened_brokers["default"] = producer.broker()
    producer.route(SignedUp)

    @consumer.on(SignedUp, topic="events.test.signed_up", consumer="c", name="h")
    async def h(one: SignedUp) -> None:
        raise AssertionError("nobody can open it")

    async with producer, consumer:
        event_id = await append(producer, OF_ANN)
        await producer.drain()

        async def is_dead() -> bool:
            return (await consumer.insight.counts())["dead"] == 1

        async with consumer.worker():
            await until(is_dead)
        assert "privacy.key_unknown" in str(await dead_codes(consumer, event_id))


# ---------------------------------------------------------------- costs


async def test_a_sealed_append_asks_for_one_key_and_a_plain_one_for_none(sqlite_url: str) -> None:
    app = app_with(sqlite_url, ring("k1"))
    handled(app)
    async with app:
        await append(app, OF_ANN)
        asked: list[str] = []
        async with app.transaction() as tx:
            assert isinstance(tx, sqlite3.Connection)
            tx.set_trace_callback(asked.append)
            await app.outbox.append(tx, OF_ANN)
            by_subject = _tables(asked)
            await app.outbox.append(tx, numbered(1))
            by_ring = _tables(asked)
            await app.outbox.append_many(tx, [OF_ANN, OF_BOB, OF_ANN])
            many = _tables(asked)
            tx.set_trace_callback(None)
    assert by_subject.count("postlude_subject") == 1
    assert len(by_subject) > 1
    assert "postlude_subject" not in by_ring
    assert many.count("postlude_subject") == 3, "one look, and the first key of bob, and a look at it"


def _tables(asked: list[str]) -> list[str]:
    """Of the statements since the last time, the table each begins with; what triggers do is theirs."""
    found = [one.split("postlude_", 1)[1].split()[0].strip("(") for one in asked if not one.startswith("--")]
    asked.clear()
    return [f"postlude_{one}" for one in found]


async def test_opening_asks_once_a_batch(database_url: str) -> None:
    app = app_with(database_url, ring("k1"))
    app.route(SignedUp, open_sealed=True)
    async with app:
        async with app.transaction() as tx:
            await app.outbox.append_many(tx, [OF_ANN, OF_BOB] * 10)
        asked: list[int] = []
        real = app.store.subjects.keys

        async def counted(subjects: Any) -> Any:
            asked.append(len(subjects))
            return await real(subjects)

        app.store.subjects.keys = counted  # type: ignore[method-assign]  # eyes on what the store is asked
        await app.drain()
        messages = app.broker().messages()
    assert len(messages) == 20
    assert all(b"example.org" in one.payload and HEADER not in one.headers for one in messages)
    assert set(asked) <= {1, 2}
    assert len(asked) <= 2, "by lanes it may be two waves, never one for each"
    assert msgspec.json.decode(messages[0].payload, type=SignedUp) in (OF_ANN, OF_BOB)
