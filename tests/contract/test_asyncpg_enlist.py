"""The adapter of asyncpg's connections knows what only PostgreSQL can do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from postlude.enlist.asyncpg import AsyncpgAdapter
from postlude.errors import ConnectionClosed
from postlude.storage.postgres.driver import PoolOptions
from postlude.storage.postgres.store import PostgresStore
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import Arranged, event


class Connections:
    """Opened by the test, closed by the fixture."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opened: list[Any] = []

    async def open(self) -> Any:
        self.opened.append(await asyncpg.connect(self.url))
        return self.opened[-1]


@pytest.fixture
async def store(any_postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(any_postgres_url, clock=ManualClock(), pool=PoolOptions(min=1, max=3))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def handles(any_postgres_url: str) -> AsyncIterator[Connections]:
    connections = Connections(any_postgres_url)
    yield connections
    for connection in connections.opened:
        await connection.close()


class TestAsyncpgAdapter:
    @pytest.fixture
    def given(self, store, store_adapter) -> Arranged:
        return Arranged(store, store_adapter)

    @pytest.fixture
    def adapter(self) -> AsyncpgAdapter:
        return AsyncpgAdapter()

    @pytest.fixture
    def store_adapter(self) -> AsyncpgAdapter:
        return AsyncpgAdapter()

    async def test_a_pooled_connection_fits_until_it_is_given_back(
        self, given: Arranged, adapter: AsyncpgAdapter, any_postgres_url: str
    ) -> None:
        async with asyncpg.create_pool(any_postgres_url, min_size=1, max_size=1) as pool:
            async with pool.acquire() as connection, connection.transaction():
                assert adapter.fits(connection)
                await adapter.play(connection, given.store.scripts.append([event()]))
            with pytest.raises(ConnectionClosed):
                adapter.require_transaction(connection)
        assert len(await given.pending()) == 1

    @pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
    async def test_any_isolation_level_may_append(
        self, given: Arranged, adapter: AsyncpgAdapter, handles: Connections, isolation: str
    ) -> None:
        handle = await handles.open()
        async with handle.transaction(isolation=isolation):
            await adapter.play(handle, given.store.scripts.append([event(), event()]))
        assert len(await given.pending()) == 2
