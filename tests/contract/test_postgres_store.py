"""PostgreSQL passes the contract of stores, in a schema of its own name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import asyncpg
import psycopg
import pytest

from postlude.enlist.asyncpg import AsyncpgAdapter
from postlude.enlist.psycopg import AsyncPsycopgAdapter
from postlude.ports.enlist import Adapter
from postlude.storage.postgres.driver import PoolOptions
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
    def adapter(self) -> Adapter:
        return AsyncpgAdapter()

    @pytest.fixture
    def driver(self) -> str:
        return "asyncpg"

    @pytest.fixture
    def servers(self, postgres_database: Databases) -> Databases:
        return postgres_database

    @pytest.fixture
    def refusal(self) -> type[Exception]:
        return asyncpg.IntegrityConstraintViolationError

    @pytest.fixture
    def prefix(self) -> str:
        return f'"{SCHEMA}".'

    @pytest.fixture
    async def blanks(
        self, servers: Databases, clock: ManualClock, driver: str
    ) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
        url = servers.fresh(schema=False)
        async with AsyncExitStack() as stack:
            pool = PoolOptions(min=1, max=4)
            stores = [PostgresStore(url, clock=clock, schema=SCHEMA, pool=pool, driver=driver) for _ in range(2)]
            assert {store.database.driver.name for store in stores} == {driver}
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


class TestPostgresStoreThroughPsycopg(TestPostgresStore):
    """The same through the other driver, on one version."""

    @pytest.fixture
    def adapter(self) -> Adapter:
        return AsyncPsycopgAdapter()

    @pytest.fixture
    def driver(self) -> str:
        return "psycopg"

    @pytest.fixture
    def servers(self, any_postgres_database: Databases) -> Databases:
        return any_postgres_database

    @pytest.fixture
    def refusal(self) -> type[Exception]:
        return psycopg.IntegrityError
