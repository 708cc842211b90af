"""Least privilege on a real PostgreSQL: the app may append, the worker may work, the viewer may look; nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from postlude import AuditRecord, Correction, Filter, IdConflict, Postlude, SubjectRef
from postlude.core.event import spec_of
from tests.acceptance.cli_shop import POISON, InProcess, OrderPlaced, on_shop, place, shop_on
from tests.calling import Vendor, Verifying
from tests.databases import PostgresDatabases
from tests.engine import query
from tests.sealing import SignedUp, app_with, append, handled, ring
from tests.tampering import write

ADA = "customer-4711"
DENIED = asyncpg.InsufficientPrivilegeError
SECRET = ("secret", "key", "subject")
TABLES = (
    "event", "delivery", "receipt", "lane", "worker", "destination", "audit", "audit_link", "operation", "duty", "meta",
    "group", "saga_subject", *SECRET,
)  # fmt: skip


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
        async with shop.transaction() as tx:
            await shop.erasure.erase_subject(tx, "ann@example.com")
        await refused(shop.audit.list)
        await refused(shop.drain)
        await refused(lambda: shop.insight.event(event_id))
        await refused(lambda: shop.actions.discard([event_id], actor="ann", reason="x"))

    on_shop(url, work)
    assert allowed(url) == {
        "INSERT event", "INSERT delivery", "SELECT meta", "INSERT audit", "SELECT group", "INSERT group",
        "SELECT subject", "INSERT subject", "UPDATE subject", "INSERT secret", "SELECT key",
        "SELECT saga_subject",
    }  # fmt: skip
    assert on_shop(roles.url, lambda shop: shop.drain()) == 9


def test_the_app_may_seal_and_the_worker_may_open(roles: Roles) -> None:
    one = SignedUp(user_id="u", email="ann@example.org", person="ann")
    sealing, opening = roles.user("app"), roles.user("worker")

    async def seal() -> None:
        async with app_with(sealing, ring("k1")) as app:
            app.route(SignedUp)
            handled(app)
            await append(app, one)
            await append(app, one)

    async def open_it() -> list[SignedUp]:
        async with app_with(opening, ring("k1")) as app:
            app.route(SignedUp, open_sealed=True)
            got = handled(app)
            await app.drain()
            return got

    asyncio.run(seal())
    assert asyncio.run(open_it()) == [one, one]


def test_the_worker_may_work_and_nothing_more(roles: Roles) -> None:
    url = roles.user("worker")
    place(roles.url, "lamp", POISON, relay=False)
    on_shop(roles.url, lambda shop: write(shop, "x"))
    taken: list[AuditRecord] = []

    async def work(shop: Postlude) -> None:
        assert await shop.drain() == 5
        async with shop.worker() as worker:
            await worker.tick()
        assert (await shop.insight.counts())["dead"] == 1
        shop.audit.add_sink(taken.extend, name="siem")
        assert (await shop.maintenance.run("chain")).rows == 1
        assert [record.target for record in taken] == ["x"]
        await refused(lambda: shop.actions.requeue(Filter(), actor="ann", reason="x"))
        await refused(lambda: shop.store.upkeep.make_partitions(21))

    on_shop(url, work)
    assert allowed(url) == {
        "SELECT meta", "SELECT event", "INSERT event", "SELECT receipt", "INSERT receipt",
        "SELECT delivery", "INSERT delivery", "UPDATE delivery", "DELETE delivery",
        "SELECT worker", "INSERT worker", "UPDATE worker", "DELETE worker",
        "SELECT lane", "INSERT lane", "UPDATE lane", "SELECT destination", "INSERT destination",
        "SELECT duty", "INSERT duty", "UPDATE duty", "INSERT meta",
        "SELECT audit", "INSERT audit", "SELECT audit_link", "INSERT audit_link", "SELECT key",
        "SELECT group", "INSERT group", "UPDATE group", "SELECT subject", "INSERT subject", "UPDATE subject",
        "SELECT secret", "INSERT secret", "UPDATE secret", "DELETE secret", "SELECT saga_subject",
    }  # fmt: skip


def test_app_and_worker_erase_whom_our_tables_do_not_know(roles: Roles) -> None:
    app, worker = roles.user("app"), roles.user("worker")
    place(roles.url, "lamp")  # what only the owner may do is done

    async def ask(shop: Postlude) -> None:
        shop.resolvers.register(Verifying())
        shop.routes.know(spec_of(SignedUp))  # it names subjects
        async with shop.transaction() as tx:
            result = await shop.erasure.erase_subject(tx, ADA, [SubjectRef("vendor", "cus_ada")])
        assert len(result.calls) == 2

    async def work(shop: Postlude) -> None:
        vendor = Verifying()
        shop.resolvers.register(vendor)
        assert (await shop.drain(), vendor.verified) == (3, 1)
        assert (await shop.erasure.show(ADA)).requests[0].status == "completed"

    on_shop(app, ask)
    on_shop(worker, work)


def test_the_redactor_may_redact_and_nothing_more(roles: Roles) -> None:
    url = roles.user("redactor")
    place(roles.url, "lamp", POISON)

    async def name_subjects(shop: Postlude) -> None:
        shop.resolvers.register(Vendor())
        async with shop.transaction() as tx:
            await shop.outbox.append(tx, OrderPlaced(order_id="o-9"), subjects=[ADA])
            await shop.erasure.rectify_subject(tx, ADA, [Correction("name", "Ada")], [SubjectRef("vendor", "cus_ada")])
        remember = f"INSERT INTO postlude_saga_subject (subject, saga_id) VALUES ('{ADA}', gen_random_uuid())"
        await query(roles.url, remember)

    async def work(shop: Postlude) -> None:
        done = await shop.privacy.redact(ADA, pending="discard", actor="ann", reason="request 17")
        assert (done.events, done.deliveries, done.waits) == (1, 4, 0)
        await refused(shop.drain)
        await refused(lambda: shop.actions.pause("default", actor="ann", reason="x"))

    on_shop(roles.url, name_subjects)
    on_shop(url, work)
    assert allowed(url) == {
        "SELECT meta", "SELECT event", "SELECT delivery", "DELETE delivery", "INSERT receipt", "INSERT audit",
        "SELECT key", "SELECT subject", "SELECT saga_subject", "DELETE saga_subject", "SELECT group", "DELETE secret",
        "SELECT receipt", "INSERT event", "INSERT delivery",
    }  # fmt: skip
    for table in ("saga_subject", "secret"):
        assert asyncio.run(query(roles.url, f"SELECT * FROM postlude_{table}")) == []


def test_a_worker_that_may_not_redact_lets_the_call_fail_visibly(roles: Roles) -> None:
    async def erase(shop: Postlude) -> None:
        async with shop.transaction() as tx:
            await shop.outbox.append(tx, OrderPlaced(order_id="o-9"), subjects=[ADA])
        async with shop.transaction() as tx:
            await shop.erasure.erase_subject(tx, ADA)

    async def work(shop: Postlude) -> None:
        await shop.drain()
        (delivery,) = await shop.insight.list(destination="call:postlude")
        assert (delivery.status, delivery.attempts) == ("failed", 1)
        assert "InsufficientPrivilege" in str(delivery.error)

    async def still_open(shop: Postlude) -> None:
        (request,) = (await shop.erasure.show(ADA)).requests
        assert (request.status, request.open) == ("open", 1)

    on_shop(roles.url, erase)
    on_shop(roles.user("worker"), work)
    on_shop(roles.url, still_open)


def test_the_viewer_may_look_and_nothing_more(roles: Roles, capsys: pytest.CaptureFixture[str]) -> None:
    _, dead = place(roles.url, "lamp", POISON)
    url, run = roles.user("viewer"), InProcess(capsys)
    looks = [
        ["doctor"], ["db", "verify"], ["outbox", "stats"], ["outbox", "list"], ["erasure", "stats"], ["erasure", "list"], ["erasure", "overdue"], ["erasure", "abandoned"], ["erasure", "scheduled"], ["events", "show", str(dead)],
        ["events", "export"], ["destination", "list"], ["operation", "list"], ["maintenance", "list"], ["audit", "list"],
        ["audit", "verify"], ["audit", "export"],
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
    who = run("audit", "list", "--subject", ADA, "--database", url, "--json")
    assert (who.code, who.json["error"]["code"]) == (2, "configuration.refused")
    assert "subject:PSEUDONYM" in who.json["error"]["hint"]
    assert allowed(url) == {f"SELECT {table}" for table in TABLES if table not in SECRET}
    on_shop(roles.url, lambda shop: write(shop, "x"))
    assert run("audit", "verify", "--database", url, "--json").json["linked"] is None, "whoever looks links nothing"
    assert run("audit", "verify", "--database", roles.url, "--json").json["linked"] == 1

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
