"""Sagas: a run is written by whoever knows its version, and a process runs once at a time."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from postlude.core.lifecycle import Status
from postlude.core.saga.instance import Instance, SagaStatus
from postlude.errors import InvalidKey, NotEncodable
from postlude.ports.records import Filter
from postlude.ports.store import Store
from postlude.testing.contracts.arrange import Arranged, StoreUnderTest, Undo, undone
from postlude.testing.contracts.saga_arrange import (
    BEGAN,
    LIVE,
    MINE,
    NAME,
    following,
    lines,
    on_its_way,
    play,
    saga,
    started,
    write,
)

MOMENT = 0.1
"""Long enough for what nothing holds back to be done; a slow machine only makes the test milder."""


class SagasContract(StoreUnderTest):
    async def test_an_instance_is_kept_whole(self, given: Arranged) -> None:
        one = saga(error="charge:Refused", turned=True, held="Died")
        await started(given, one)
        scripts = given.store.saga_scripts
        for lock in (False, True):
            assert await play(given, scripts.get(one.id, lock=lock)) == one
            assert await play(given, scripts.find(NAME, "o-1", lock=lock)) == one
            assert await play(given, scripts.get(uuid4(), lock=lock)) is None
            assert await play(given, scripts.find(NAME, "o-2", lock=lock)) is None
            assert await play(given, scripts.find("other", "o-1", lock=lock)) is None

    async def test_a_write_is_guarded_by_the_version(self, given: Arranged) -> None:
        one = saga()
        await started(given, one)
        second = following(one, state={"n": 2})
        assert await write(given, second, lines("succeeded"))
        assert not await write(given, following(one, state={"n": 3}), lines("failed"))
        assert not await write(given, following(following(second)), lines("failed"))
        assert not await write(given, following(saga("o-2")), lines("failed")), "nobody started it"
        assert await given.store.sagas.get(one.id) == second
        assert await given.store.sagas.history(one.id, limit=10) == lines("succeeded")

    async def test_of_many_writers_one_wins(self, given: Arranged) -> None:
        one = saga()
        await started(given, one)
        rivals = [following(one, state=n) for n in range(4)]
        won = await asyncio.gather(*(write(given, rival, lines(f"rival {rival.state}")) for rival in rivals))
        assert sum(won) == 1
        winner = rivals[won.index(True)]
        assert await given.store.sagas.get(one.id) == winner
        assert await given.store.sagas.history(one.id, limit=10) == lines(f"rival {winner.state}")

    @pytest.mark.parametrize("status", LIVE)
    async def test_a_process_never_runs_twice_at_a_time(self, given: Arranged, status: SagaStatus) -> None:
        first = saga(status=status)
        await started(given, first, saga("o-2"), saga(name="other"))
        second = saga(generation=2)
        assert not await write(given, second, lines("started"))
        assert await given.store.sagas.get(second.id) is None
        assert await given.store.sagas.history(second.id, limit=10) == []
        assert await write(given, following(first, status=SagaStatus.compensated))
        assert not await write(given, saga(generation=1)), "that generation has been"
        assert await write(given, second)
        assert await given.store.sagas.newest(NAME, "o-1") == second
        assert await play(given, given.store.saga_scripts.find(NAME, "o-1", lock=True)) == second

    async def test_an_id_is_used_once(self, given: Arranged) -> None:
        one = saga()
        await started(given, one)
        assert not await write(given, saga("o-2", id=one.id), lines("started"))
        assert await given.store.sagas.get(one.id) == one

    async def test_of_many_that_start_at_once_one_does(self, given: Arranged) -> None:
        rivals = [saga() for _ in range(4)]
        won = await asyncio.gather(*(write(given, rival) for rival in rivals))
        assert sum(won) == 1
        assert await given.store.sagas.newest(NAME, "o-1") == rivals[won.index(True)]

    async def test_what_is_rolled_back_never_was(self, given: Arranged) -> None:
        one = saga()
        with undone():
            async with given.store.transaction() as tx:
                assert await given.adapter.play(tx, given.store.saga_scripts.write(one, lines("started"), was=0))
                raise Undo
        assert await given.store.sagas.get(one.id) is None
        assert await given.store.sagas.history(one.id, limit=10) == []

    @pytest.mark.parametrize("way", ["get", "find"])
    async def test_a_lock_holds_others_back(self, given: Arranged, other: Store, way: str) -> None:
        one = saga()
        await started(given, one)
        second = following(one)

        def read(store: Store) -> Any:
            scripts = store.saga_scripts
            return scripts.get(one.id, lock=True) if way == "get" else scripts.find(NAME, "o-1", lock=True)

        waiting = asyncio.Event()

        async def wait() -> Instance | None:
            waiting.set()
            async with other.transaction() as tx:
                found: Instance | None = await given.adapter.play(tx, read(other))
                return found

        async with given.store.transaction() as tx:
            assert await given.adapter.play(tx, read(given.store)) == one
            task = asyncio.create_task(wait())
            await waiting.wait()
            done, _ = await asyncio.wait({task}, timeout=MOMENT)
            assert not done
            assert await given.adapter.play(tx, given.store.saga_scripts.write(second, (), was=1))
        assert await task == second

    async def test_with_locks_nobody_loses(self, given: Arranged) -> None:
        one = saga(state=0)
        await started(given, one)

        async def add() -> bool:
            scripts = given.store.saga_scripts
            async with given.store.transaction() as tx:
                found = await given.adapter.play(tx, scripts.get(one.id, lock=True))
                assert found is not None
                counted = following(found, state=found.state + 1)
                return await given.adapter.play(tx, scripts.write(counted, lines("added"), was=found.version))

        assert await asyncio.gather(*(add() for _ in range(6))) == [True] * 6
        stored = await given.store.sagas.get(one.id)
        assert stored is not None
        assert (stored.state, stored.version) == (6, 7)

    async def test_a_signal_that_changed_nothing_is_in_the_history(self, given: Arranged) -> None:
        one = saga()
        assert await write(given, one, lines("started", "begun"))
        ignored = lines("duplicate", step="reserve", attempt=3, detail="StepSucceeded")
        for _ in range(2):
            await play(given, given.store.saga_scripts.note(one.id, one.version, ignored))
        assert await write(given, following(one), lines("succeeded"))
        await play(given, given.store.saga_scripts.note(one.id, 2, []))
        await play(given, given.store.saga_scripts.note(uuid4(), 1, ignored))
        history = await given.store.sagas.history(one.id, limit=10)
        assert history == [*lines("started", "begun"), *ignored, *ignored, *lines("succeeded")]
        assert await given.store.sagas.history(one.id, limit=2) == history[-2:], "the last ones, in order"
        versions = await given.run("SELECT version, saga_id FROM {}postlude_saga_step ORDER BY number")
        assert [version for version, _ in versions] == [1, 1, 1, 1, 2]

    async def test_only_what_is_scheduled_is_cancelled(self, given: Arranged) -> None:
        one = saga()
        waits = [await on_its_way(given, one.id, available_at=BEGAN) for _ in range(2)]
        elsewhere = await on_its_way(given, one.id, "handler:other", available_at=BEGAN)
        pending = await on_its_way(given, one.id)
        scripts = given.store.saga_scripts
        every = [*waits, elsewhere, pending, uuid4()]
        assert await play(given, scripts.cancel(MINE, [])) == 0
        assert await play(given, scripts.cancel(MINE, every)) == 2
        assert await play(given, scripts.cancel(MINE, every)) == 0
        open_there = await given.store.records.list_open(Filter(), after=0, limit=10)
        assert [row["event_id"] for row in open_there] == [elsewhere, pending]
        story = await given.store.records.story(waits[0])
        assert story is not None
        (receipt,) = story.receipts
        assert (receipt["outcome"], receipt["actor"], receipt["attempts"]) == ("discarded", "saga", 0)

    async def test_a_delivery_is_buried_with_what_its_saga_says_of_it(self, given: Arranged) -> None:
        fence, bury = await given.own(MINE), given.store.saga_scripts.bury
        event_id = await on_its_way(given, uuid4(), key="o-1")
        (read,) = await given.pending(MINE)
        with undone():
            async with given.store.transaction() as tx:
                assert await given.adapter.play(tx, bury(fence, read, "{}"))
                raise Undo
        assert await given.pending(MINE) == [read]
        assert await play(given, bury(fence, read, '{"kind":"Boom"}'))
        (row,) = await given.store.records.list_open(Filter(status="dead"), after=0, limit=10)
        assert (row["event_id"], row["attempts"], row["blocks"]) == (event_id, 1, False)
        assert row["last_error"] == '{"kind":"Boom"}'
        assert not await play(given, bury(fence, read, "{}")), "it is not as it was read any more"

    async def test_a_claimed_one_has_its_attempt_counted_already(self, given: Arranged) -> None:
        fence = await given.own(MINE)
        await on_its_way(given, uuid4(), key="o-1")
        (read,) = await given.pending(MINE)
        assert await given.store.settling.start(fence, [read], 5.0) == {read.seq}
        read.status, read.attempts = Status.claimed, 1
        assert await play(given, given.store.saga_scripts.bury(fence, read, "{}"))
        (row,) = await given.store.records.list_open(Filter(status="dead"), after=0, limit=10)
        assert row["attempts"] == 1

    async def test_nothing_is_buried_without_the_fence(self, given: Arranged) -> None:
        fence = await given.own(MINE)
        await on_its_way(given, uuid4())
        (read,) = await given.pending(MINE)
        bury = given.store.saga_scripts.bury
        assert not await play(given, bury(replace(fence, destination="saga:other"), read, "{}"))
        assert not await play(given, bury(replace(fence, epochs={}), read, "{}"))
        await given.store.ownership.release_lanes(fence)
        assert not await play(given, bury(fence, read, "{}"))
        again = await given.own(MINE, worker=fence.worker)
        assert not await play(given, bury(fence, read, "{}")), "owned again, but since another epoch"
        assert await play(given, bury(again, read, "{}"))

    @pytest.mark.parametrize("process_id", [" ", "'; --", "ü/→/😀", "😀" * 512, "a\nb\t%s:x$1?", "\ufffd\x7f"])
    async def test_odd_process_ids_are_kept(self, given: Arranged, process_id: str) -> None:
        one = saga(process_id, name="n" * 200)
        await started(given, one)
        assert await given.store.sagas.newest(one.name, process_id) == one
        assert await play(given, given.store.saga_scripts.find(one.name, process_id, lock=True)) == one

    @pytest.mark.parametrize("process_id", ["", "x" * 513, "a\0b", "\ud800"])
    async def test_what_could_be_no_key_is_no_process_id(self, given: Arranged, process_id: str) -> None:
        scripts = given.store.saga_scripts
        with pytest.raises(InvalidKey):
            await play(given, scripts.write(saga(process_id), (), was=0))
        with pytest.raises(InvalidKey):
            await play(given, scripts.find(NAME, process_id, lock=False))
        with pytest.raises(InvalidKey):
            await given.store.sagas.newest(NAME, process_id)

    async def test_anybodys_words_can_be_a_reason(self, given: Arranged) -> None:
        one = saga(error="charge:\0", state={"text": "a\0b" * 500_000, "n": 2**200})
        assert await write(given, one, lines("failed", detail="no\0\ud800way" * 10_000))
        assert await given.store.sagas.get(one.id) == one
        (told,) = await given.store.sagas.history(one.id, limit=10)
        assert told.detail == "no\ufffd\ufffdway" * 10_000
        with pytest.raises(NotEncodable):
            await write(given, following(one, error="charge:\ud800"))
