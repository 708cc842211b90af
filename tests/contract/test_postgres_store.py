"""PostgreSQL passes the contract of stores, in a schema of its own name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import pytest

from postlude.enlist.asyncpg import AsyncpgAdapter
from postlude.storage.postgres.connection import PoolOptions
from postlude.storage.postgres.store import PostgresStore
from postlude.testing.clock import ManualClock
from postlude.testing.contracts.arrange import LANES
from postlude.testing.contracts.store import StoreContract
from tests.databases import Databases

SCHEMA = "out box"


class TestPostgresStore(StoreContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def adapter(self) -> AsyncpgAdapter:
        return AsyncpgAdapter()

    @pytest.fixture
    def refusal(self) -> type[Exception]:
        return asyncpg.IntegrityConstraintViolationError

    @pytest.fixture
    def prefix(self) -> str:
        return f'"{SCHEMA}".'

    @pytest.fixture
    async def blanks(
        self, postgres_database: Databases, clock: ManualClock
    ) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
        url = postgres_database.fresh(schema=False)
        async with AsyncExitStack() as stack:
            pool = PoolOptions(min=1, max=4)
            stores = [PostgresStore(url, clock=clock, schema=SCHEMA, pool=pool) for _ in range(2)]
            for store in stores:
                await store.open()
                stack.push_async_callback(store.close)
            yield stores[0], stores[1]

    @pytest.fixture
    async def store(self, blanks: tuple[PostgresStore, PostgresStore]) -> PostgresStore:
        await blanks[0].schema.upgrade(lanes=LANES)
        return blanks[0]

    @pytest.fixture
    async def other(self, blanks: tuple[PostgresStore, PostgresStore], store: PostgresStore) -> PostgresStore:
        return blanks[1]
