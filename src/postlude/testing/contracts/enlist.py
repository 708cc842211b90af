"""The contract of an enlist adapter: what it does on a caller's handle, and what it leaves to the caller."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import contextlib
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import uuid4

import pytest

from postlude.core.statement import Call, Script, Statement
from postlude.errors import ConnectionClosed, IdConflict, NotInTransaction, SchemaMissing
from postlude.ports.append import Prepared
from postlude.ports.enlist import Adapter, Ended
from postlude.ports.privacy import SubjectKey
from postlude.ports.store import Store
from postlude.testing.contracts.arrange import TO, Arranged, Undo, event, undone


class Handles(Protocol):
    """The caller's side: handles of one kind, on the database of the store. All of them are closed by the fixture."""

    async def open(self) -> Any:
        """A handle that is in no transaction yet."""

    async def autocommit(self) -> Any:
        """A handle that would commit a statement by itself."""

    async def begin(self, handle: Any) -> None: ...
    async def commit(self, handle: Any) -> None: ...
    async def rollback(self, handle: Any) -> None: ...
    async def close(self, handle: Any) -> None: ...

    async def break_out(self, handle: Any) -> None:
        """Commit and begin again, as somebody does who was only lent the handle."""

    async def fail(self, handle: Any) -> None:
        """Let a statement fail, as a caller who goes on regardless."""

    def nested(self, handle: Any) -> AbstractAsyncContextManager[Any]:
        """A savepoint as the handle's own users write it."""


class EnlistContract:
    """A subclass gives `adapter`, `handles` and `store`, opened and upgraded, with `store_adapter` for its own."""

    @pytest.fixture
    def given(self, store: Store, store_adapter: Adapter) -> Arranged:
        return Arranged(store, store_adapter)

    @pytest.fixture
    async def handle(self, handles: Handles) -> Any:
        """A handle in a transaction."""
        handle = await handles.open()
        await handles.begin(handle)
        return handle

    async def test_it_knows_its_own_handles(self, adapter: Adapter, handle: Any, store: Store) -> None:
        assert adapter.fits(handle)
        assert not adapter.fits(object())
        assert not adapter.fits("connection")
        assert adapter.dialect(handle) == store.dialect

    async def test_an_append_commits_with_the_caller(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        one = event()
        adapter.require_transaction(handle)
        assert await _append(adapter, given, handle, one) == [one.event_id]
        assert await given.store.reading.events([one.event_id]) == {}
        await handles.commit(handle)
        assert list(await given.store.reading.events([one.event_id])) == [one.event_id]
        assert [delivery.event_id for delivery in await given.pending()] == [one.event_id]

    async def test_an_append_rolls_back_with_the_caller(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        await _append(adapter, given, handle, event(), event())
        await handles.rollback(handle)
        assert await given.pending() == []

    async def test_many_stand_in_the_order_given(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        many = [event(lane=index % 4) for index in range(50)]
        await _append(adapter, given, handle, *many)
        await handles.commit(handle)
        assert [delivery.event_id for delivery in await given.pending()] == [one.event_id for one in many]

    async def test_keys_of_data_subjects_come_with_the_caller(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        scripts = given.store.subject_scripts
        keys = {name: SubjectKey(name, "k1", bytes(range(256)) + name.encode()) for name in (uuid4().hex, uuid4().hex)}
        assert len(await adapter.play(handle, given.store.scripts.pseudonym_key())) >= 32
        assert await adapter.play(handle, scripts.add(list(keys.values()))) == keys
        assert await adapter.play(handle, scripts.keys(list(keys))) == keys
        assert await given.store.subjects.keys(list(keys)) == {}
        await handles.commit(handle)
        assert await given.store.subjects.keys(list(keys)) == keys

    async def test_autocommit_is_refused(self, adapter: Adapter, handles: Handles) -> None:
        with pytest.raises(NotInTransaction) as refused:
            adapter.require_transaction(await handles.autocommit())
        assert refused.value.hint

    async def test_a_closed_handle_is_refused(self, given: Arranged, adapter: Adapter, handles: Handles) -> None:
        handle = await handles.open()
        await handles.close(handle)
        with pytest.raises(ConnectionClosed):
            adapter.require_transaction(handle)
        with pytest.raises(ConnectionClosed):
            await _append(adapter, given, handle, event())
        assert not adapter.is_in_transaction(handle)

    async def test_it_sees_whether_the_transaction_is_still_open(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        await _append(adapter, given, handle, event())
        assert adapter.is_in_transaction(handle)
        await handles.commit(handle)
        assert not adapter.is_in_transaction(handle)

    async def test_the_same_id_is_a_no_op_even_uncommitted(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        one = event()
        await _append(adapter, given, handle, one)
        assert await _append(adapter, given, handle, one) == [one.event_id]
        await handles.commit(handle)
        assert len(await given.pending()) == 1

    async def test_a_conflict_leaves_the_transaction_usable(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        one = event(payload=b"1")
        await _append(adapter, given, handle, one)
        with pytest.raises(IdConflict, match=str(one.event_id)):
            await _append(adapter, given, handle, event(id=one.event_id, payload=b"2"))
        await _append(adapter, given, handle, event())
        await handles.commit(handle)
        assert len(await given.pending()) == 2

    async def test_a_savepoint_undoes_only_its_own_part(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        before, inside, after = event(), event(), event()
        await _append(adapter, given, handle, before)
        with undone():
            async with adapter.savepoint(handle):
                await _append(adapter, given, handle, inside)
                raise Undo
        await _append(adapter, given, handle, after)
        await handles.commit(handle)
        assert [one.event_id for one in await given.pending()] == [before.event_id, after.event_id]

    async def test_a_savepoint_that_ends_well_commits_nothing(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        async with adapter.savepoint(handle):
            await _append(adapter, given, handle, event())
        assert adapter.is_in_transaction(handle)
        assert await given.pending() == []
        await handles.commit(handle)
        assert len(await given.pending()) == 1

    async def test_savepoints_nest(self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any) -> None:
        async with adapter.savepoint(handle):
            await _append(adapter, given, handle, event())
            with undone():
                async with adapter.savepoint(handle):
                    await _append(adapter, given, handle, event())
                    raise Undo
        await handles.commit(handle)
        assert len(await given.pending()) == 1

    async def test_a_savepoint_of_the_callers_own_undoes_what_was_appended_in_it(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        before, inside, after = event(), event(), event()
        await _append(adapter, given, handle, before)
        with undone():
            async with handles.nested(handle):
                adapter.require_transaction(handle)
                await _append(adapter, given, handle, inside)
                raise Undo
        async with handles.nested(handle):
            adapter.require_transaction(handle)
            await _append(adapter, given, handle, after)
        await handles.commit(handle)
        assert [one.event_id for one in await given.pending()] == [before.event_id, after.event_id]

    async def test_everything_an_event_can_carry_arrives(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        """Types that drivers find hard: bytes, ids, arrays with gaps, JSON, times."""
        causes, saga, due = event(), uuid4(), datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
        payload = bytes(range(256)) + b"%s %(name)s :name '' \\"
        full: dict[str, Any] = {
            "payload": payload,
            "headers": '{"a": "%s :b \\" \u20ac"}',
            "causation_id": causes.event_id,
            "saga_id": saga,
            "subjects": ("s'1", "s,2", "{s}", '"'),
            "entity": "order",
            "max_attempts": 3,
        }
        one = event("k'1", **full)
        two = event(None, to=(TO, "other"), **full)
        many = [event("k-2", available_at=due, **full), event(), event(to=(TO, "other"), priority=0)]
        for batch in ([one], [two], many):
            await _append(adapter, given, handle, *batch)
        await handles.commit(handle)
        stored = await given.store.reading.events([one.event_id for one in (one, two, *many)])
        assert len(stored) == 5
        for given_event in (one, two, many[0]):
            found = stored[given_event.event_id]
            assert (found.payload, found.causation_id, found.saga_id) == (payload, causes.event_id, saga)
            assert found.headers == {"a": '%s :b " \u20ac'}
            assert (found.entity, found.key) == ("order", given_event.key)
        assert [one.priority for one in await given.pending()] == [1, 1, 1, 0]
        assert len(await given.pending("other")) == 2
        status = "SELECT status FROM {}postlude_delivery WHERE max_attempts = 3 ORDER BY 1"
        assert [row[0] for row in await given.run(status)] == ["pending"] * 3 + ["scheduled"]

    async def test_a_transaction_that_ends_inside_a_savepoint_is_told(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        await _append(adapter, given, handle, event())
        with pytest.raises(Ended):  # noqa: PT012 - it is raised at the end of the block
            async with adapter.savepoint(handle):
                await handles.break_out(handle)
                await _append(adapter, given, handle, event())
        await handles.rollback(handle)
        assert len(await given.pending()) == 1

    async def test_a_mark_tells_one_transaction_from_the_next(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        """Or the handle begins nothing by itself, or there is no mark and a savepoint has to tell."""
        await _append(adapter, given, handle, event())
        mark = adapter.mark(handle)
        async with adapter.savepoint(handle):
            await _append(adapter, given, handle, event())
            assert adapter.mark(handle) == mark
        await handles.commit(handle)
        if mark is None:
            return
        assert not adapter.is_in_transaction(handle)
        with contextlib.suppress(NotInTransaction):
            adapter.require_transaction(handle)
            await _append(adapter, given, handle, event())
            assert adapter.mark(handle) != mark

    async def test_a_transaction_that_has_failed_is_told(
        self, given: Arranged, adapter: Adapter, handles: Handles, handle: Any
    ) -> None:
        if given.store.dialect == "sqlite":
            return  # a statement that fails there leaves its transaction as it was
        await handles.fail(handle)
        with pytest.raises(NotInTransaction, match="has failed"):  # noqa: PT012 - the one or the other must tell
            adapter.require_transaction(handle)
            await _append(adapter, given, handle, event())

    async def test_a_missing_schema_is_told(self, adapter: Adapter, handle: Any) -> None:
        with pytest.raises(SchemaMissing, match="postlude db upgrade"):
            await adapter.play(handle, _of_no_table())

    async def test_a_handler_settles_on_the_callers_handle(
        self, given: Arranged, adapter: Adapter, handles: Handles
    ) -> None:
        await given.append(event())
        fence, (entry,) = await given.own(), await given.pending()
        handle = await handles.open()
        await handles.begin(handle)
        assert await adapter.play(handle, given.store.scripts.settle_handled(fence, entry, 1.0))
        await handles.rollback(handle)
        assert len(await given.seqs()) == 1
        await handles.begin(handle)
        assert await adapter.play(handle, given.store.scripts.settle_handled(fence, entry, 1.0))
        await handles.commit(handle)
        assert await given.seqs() == []


async def _append(adapter: Adapter, given: Arranged, handle: Any, *events: Prepared) -> list[Any]:
    return await adapter.play(handle, given.store.scripts.append(events))


def _of_no_table() -> Script[None]:
    yield Call(Statement("gone", "SELECT seq FROM postlude_gone"), {})
