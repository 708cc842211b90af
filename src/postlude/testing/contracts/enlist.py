"""The contract of an enlist adapter: what it does on a caller's handle, and what it leaves to the caller."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

from typing import Any, Protocol

import pytest

from postlude.errors import ConnectionClosed, IdConflict, NotInTransaction
from postlude.ports.append import Prepared
from postlude.ports.enlist import Adapter
from postlude.ports.store import Store
from postlude.testing.contracts.arrange import Arranged, Undo, event, undone


class Handles(Protocol):
    """The caller's side: handles of one kind, on the database of the store. All of them are closed by the fixture."""

    async def open(self) -> Any:
        """A handle that is in no transaction and would commit a statement by itself."""

    async def begin(self, handle: Any) -> None: ...
    async def commit(self, handle: Any) -> None: ...
    async def rollback(self, handle: Any) -> None: ...
    async def close(self, handle: Any) -> None: ...


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
        assert adapter.dialect == store.dialect

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

    async def test_autocommit_is_refused(self, adapter: Adapter, handles: Handles) -> None:
        with pytest.raises(NotInTransaction) as refused:
            adapter.require_transaction(await handles.open())
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
