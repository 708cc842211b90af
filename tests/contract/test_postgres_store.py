"""PostgreSQL passes the contract of stores, in a schema of its own name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
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
from tests.conftest import SERVERS
from tests.databases import PostgresDatabases, PostgresTemplates, finish

SCHEMA = "out box"
Open = Callable[[str], Awaitable[PostgresStore]]


def _store(url: str, clock: ManualClock, driver: str = "asyncpg") -> PostgresStore:
    return PostgresStore(url, clock=clock, schema=SCHEMA, pool=PoolOptions(min=1, max=4), driver=driver)


def _install(url: str) -> None:
    async def upgrade() -> None:
        store = _store(url, ManualClock())
        await store.open()
        await store.schema.upgrade(lanes=LANES)
        await store.close()

    finish(upgrade())


@pytest.fixture(scope="session")
def installed() -> Iterator[PostgresTemplates]:
    """By server, a database that the stores of the contract are copied from; its own tests of upgrades make theirs."""
    templates = PostgresTemplates(SERVERS, _install)
    yield templates
    templates.drop_all()


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
    def servers(self, postgres_database: PostgresDatabases) -> PostgresDatabases:
        return postgres_database

    @pytest.fixture
    def refusal(self) -> type[Exception]:
        return asyncpg.IntegrityConstraintViolationError

    @pytest.fixture
    def prefix(self) -> str:
        return f'"{SCHEMA}".'

    @pytest.fixture
    async def opened(self, clock: ManualClock, driver: str) -> AsyncIterator[Open]:
        async with AsyncExitStack() as stack:

            async def opened(url: str) -> PostgresStore:
                store = _store(url, clock, driver)
                assert store.database.driver.name == driver
                await store.open()
                stack.push_async_callback(store.close)
                return store

            yield opened

    @pytest.fixture
    async def blanks(self, servers: PostgresDatabases, opened: Open) -> tuple[PostgresStore, PostgresStore]:
        url = servers.fresh(schema=False)
        return await opened(url), await opened(url)

    @pytest.fixture
    def url(self, servers: PostgresDatabases, installed: PostgresTemplates) -> str:
        return servers.copy_of(installed[servers.name])

    @pytest.fixture
    async def store(self, url: str, opened: Open) -> PostgresStore:
        return await opened(url)

    @pytest.fixture
    async def other(self, url: str, opened: Open) -> PostgresStore:
        return await opened(url)


class TestPostgresStoreThroughPsycopg(TestPostgresStore):
    """The same through the other driver, on one version."""

    @pytest.fixture
    def adapter(self) -> Adapter:
        return AsyncPsycopgAdapter()

    @pytest.fixture
    def driver(self) -> str:
        return "psycopg"

    @pytest.fixture
    def servers(self, any_postgres_database: PostgresDatabases) -> PostgresDatabases:
        return any_postgres_database

    @pytest.fixture
    def refusal(self) -> type[Exception]:
        return psycopg.IntegrityError
