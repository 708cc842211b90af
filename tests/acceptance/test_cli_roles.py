"""Least privilege on a real PostgreSQL: the app may append, the worker may work, the viewer may look; nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from postlude import Filter, IdConflict, Postlude
from tests.acceptance.cli_shop import POISON, InProcess, OrderPlaced, on_shop, place, shop_on
from tests.databases import PostgresDatabases

DENIED = asyncpg.InsufficientPrivilegeError
TABLES = ("event", "delivery", "receipt", "lane", "worker", "destination", "audit", "operation", "duty", "meta")


class Roles:
    """Users of one database, each with one part; they are gone with the test, for roles belong to the whole server."""

    def __init__(self, url: str, run: InProcess) -> None:
        self.url = url
        self._run = run
        self._made: list[str] = []

    def user(self, part: str) -> str:
        """The database's address for a new user with that part."""
        name = f"test_{part}_{uuid4().hex[:8]}"
        group = f"{name}_part"
        granted = self._run("db", "sql", "--role", part, "--name", group, "--database", self.url)
        assert granted.code == 0
        self._execute(f'{granted.out}\nCREATE ROLE "{name}" LOGIN; GRANT "{group}" TO "{name}";')
        self._execute(granted.out)  # safe to repeat
        self._made += [name, group]
        split = urlsplit(self.url)
        return split._replace(netloc=f"{name}@{split.hostname}:{split.port}").geturl()

    def drop(self) -> None:
        for name in self._made:
            self._execute(f'DROP OWNED BY "{name}"; DROP ROLE "{name}";')

    def _execute(self, script: str) -> None:
        async def execute() -> None:
            connection = await asyncpg.connect(self.url)
            try:
                await connection.execute(script)
            finally:
                await connection.close()

        asyncio.run(execute())


@pytest.fixture
def roles(any_postgres_database: PostgresDatabases, capsys: pytest.CaptureFixture[str]) -> Iterator[Roles]:
    made = Roles(any_postgres_database.fresh(), InProcess(capsys))
    yield made
    made.drop()


def allowed(url: str) -> set[str]:
    """What a user may do to whole tables, such as `INSERT event`; asked of PostgreSQL itself."""

    async def ask() -> set[str]:
        connection = await asyncpg.connect(url)
        try:
            rights = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
            return {
                f"{right} {table}"
                for right in rights
                for table in TABLES
                if await connection.fetchval("SELECT has_table_privilege($1, $2)", f"postlude_{table}", right)
            }
        finally:
            await connection.close()

    return asyncio.run(ask())


async def refused(work: Callable[[], Awaitable[Any]]) -> None:
    """However it is wrapped, the server's refusal is at the bottom."""
    with pytest.raises(Exception, match="permission denied") as caught:
        await work()
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, DENIED):
        error = error.__cause__
    assert isinstance(error, DENIED), caught.value


def test_the_app_may_append_and_nothing_more(roles: Roles) -> None:
    url = roles.user("app")

    async def work(shop: Postlude) -> None:
        async with shop.transaction() as tx:
            event_id = await shop.outbox.append(tx, OrderPlaced(order_id="o-1"))
            await shop.outbox.append_many(tx, [OrderPlaced(order_id="o-2"), OrderPlaced(order_id="o-3")])
        async with shop.transaction() as tx:
            assert await shop.outbox.append(tx, OrderPlaced(order_id="o-1"), id=event_id) == event_id
        with pytest.raises(IdConflict):
            async with shop.transaction() as tx:
                await shop.outbox.append(tx, OrderPlaced(order_id="o-9"), id=event_id)
        await refused(shop.drain)
        await refused(lambda: shop.insight.event(event_id))
        await refused(lambda: shop.actions.discard([event_id], actor="ann", reason="x"))

    on_shop(url, work)
    assert allowed(url) == {"INSERT event", "INSERT delivery", "SELECT meta"}
    assert on_shop(roles.url, lambda shop: shop.drain()) == 9


def test_the_worker_may_work_and_nothing_more(roles: Roles) -> None:
    url = roles.user("worker")
    place(roles.url, "lamp", POISON, relay=False)

    async def work(shop: Postlude) -> None:
        assert await shop.drain() == 5
        async with shop.worker() as worker:
            await worker.tick()
        assert (await shop.insight.counts())["dead"] == 1
        await refused(lambda: shop.actions.requeue(Filter(), actor="ann", reason="x"))
        await refused(lambda: shop.store.upkeep.make_partitions(21))

    on_shop(url, work)
    assert allowed(url) == {
        "SELECT meta", "SELECT event", "INSERT event", "SELECT receipt", "INSERT receipt",
        "SELECT delivery", "INSERT delivery", "UPDATE delivery", "DELETE delivery",
        "SELECT worker", "INSERT worker", "UPDATE worker", "DELETE worker",
        "SELECT lane", "INSERT lane", "UPDATE lane", "SELECT destination", "INSERT destination",
        "SELECT duty", "INSERT duty", "UPDATE duty", "INSERT audit",
    }  # fmt: skip


def test_the_viewer_may_look_and_nothing_more(roles: Roles, capsys: pytest.CaptureFixture[str]) -> None:
    _, dead = place(roles.url, "lamp", POISON)
    url, run = roles.user("viewer"), InProcess(capsys)
    looks = [
        ["doctor"], ["db", "verify"], ["outbox", "stats"], ["outbox", "list"], ["events", "show", str(dead)],
        ["events", "export"], ["destination", "list"], ["operation", "list"], ["maintenance", "list"], ["audit", "list"],
        ["outbox", "requeue", "--all", "--reason", "x", "--dry-run"],
    ]  # fmt: skip
    for command in looks:
        answer = run(*command, "--database", url, "--json")
        assert answer.code == 0, (command, answer)
    for command in (
        ["outbox", "requeue", str(dead)],
        ["outbox", "discard", "--all"],
        ["destination", "pause", "default"],
    ):
        answer = run(*command, "--reason", "x", "--database", url, "--json")
        assert (answer.code, answer.json["error"]["code"]) == (1, "database.refused"), (command, answer)
    assert allowed(url) == {f"SELECT {table}" for table in TABLES}

    async def append() -> None:
        shop = shop_on(url)
        try:
            async with shop.transaction() as tx:
                await shop.outbox.append(tx, OrderPlaced(order_id="o-1"))
        finally:
            await shop.close()

    asyncio.run(refused(append))


def test_roles_are_for_postgresql(capsys: pytest.CaptureFixture[str]) -> None:
    run = InProcess(capsys)
    assert run("db", "sql", "--role", "app", "--database", "sqlite:///x.db").code == 2
    assert run("db", "sql", "--role", "king", "--database", "postgresql://h/d").code == 2
    assert run("db", "sql", "--name", "shop", "--database", "postgresql://h/d").code == 2
    named = run("db", "sql", "--role", "viewer", "--database", "postgresql://h/d", "--json").json["sql"]
    assert '"postlude_viewer"' in named
