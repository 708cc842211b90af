"""Handlers on every source of transactions: effect, events and settling are one, and nobody ends what was lent."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from postlude import Context, Err, Event, Ok, Postlude, Settings, event
from postlude.errors import ConfigurationError
from postlude.testing.clock import ManualClock
from tests.callers import KINDS
from tests.conftest import ON_POSTGRES, ON_SQLITE
from tests.databases import finish
from tests.engine import Noted, note, query
from tests.factories import POSTGRES, SOURCES, SQLITE, Source, ending, ending_now, run, run_now
from tests.matrix import APPEND_ONLY, REFUSED, ran

OK, ERR, RAISES, COMMITS, ROLLS_BACK = 1, 2, 3, 4, 5


@event(type="test.done", key="key", record_only=True)
class Done(Event):
    key: str
    n: int


@event(type="test.refused", key="key", record_only=True)
class Refused(Event):
    key: str
    n: int


def _cases(sources: list[Source], on: list[Any]) -> list[Any]:
    return [pytest.param((source, on[0].values[0]), marks=on[0].marks, id=source.id) for source in sources]


@pytest.fixture(params=[*_cases(POSTGRES, ON_POSTGRES), *_cases(SQLITE, ON_SQLITE)])
def case(request: pytest.FixtureRequest) -> tuple[Source, str]:
    found: tuple[Source, str] = request.param
    return found


@pytest.fixture
def source(case: tuple[Source, str]) -> Source:
    return case[0]


@pytest.fixture
def url(case: tuple[Source, str], swept_url: Callable[[str], str]) -> str:
    return swept_url(case[1])


@pytest.fixture
async def app(source: Source, url: str) -> AsyncIterator[Postlude]:
    settings = Settings.load(
        environ={}, retry={"max_attempts": 2, "base_delay_seconds": 0, "jitter_factor": 0}, pool={"min": 1}
    )
    async with AsyncExitStack() as stack:
        app = Postlude(url, transactions=await source.make(url, stack), settings=settings)
        app.clock = ManualClock()
        yield app
        await app.close()


async def told(url: str) -> list[tuple[str, int]]:
    """What handlers said in events, by type and number."""
    sql = "SELECT type, payload FROM postlude_event WHERE type <> 'test.noted'"
    return sorted(
        (kind, int(bytes(payload).decode().rpartition(":")[2][:-1])) for kind, payload in await query(url, sql)
    )


async def effects(url: str) -> list[int]:
    return [row[0] for row in await query(url, "SELECT n FROM effect ORDER BY n")]


async def outcome(app: Postlude, url: str) -> None:
    """One of each, and what must have come of it."""
    await query(url, "CREATE TABLE effect (n int)")
    async with app:
        await note(app, "a", OK)
        await note(app, "b", ERR)
        await note(app, "c", RAISES)
        await note(app, "d", COMMITS)
        await note(app, "e", ROLLS_BACK)
        await app.drain()
        dead = await app.insight.list(status="dead")
        assert sorted(letter.key for letter in dead) == ["d", "e"]
        assert {str(letter.error).partition(" ")[0] for letter in dead} == {"ContractViolation"}
        assert len(await app.insight.list(status="sent", destination="handler:handle")) >= 3
        counts = await app.insight.counts()
    assert counts == {name: 2 if name == "dead" else 0 for name in counts}


async def test_async_handlers(request: pytest.FixtureRequest, app: Postlude, source: Source, url: str) -> None:
    threads: set[str] = set()

    @app.on(Noted, name="handle")
    async def handle(noted: Noted, ctx: Context) -> Ok[Done] | Err[Refused]:
        threads.add(threading.current_thread().name)
        write, end = (run, ending) if source.is_async else (_awaited(run_now), _awaited(ending_now))
        await write(ctx.tx, f"INSERT INTO effect VALUES ({noted.n})")
        await ctx.append(Done(key=noted.key, n=10 * noted.n))
        if noted.n == ERR:
            return Err(Refused(key=noted.key, n=noted.n))
        if noted.n == RAISES and ctx.attempt == 1:
            raise RuntimeError("after the write")
        if noted.n in (COMMITS, ROLLS_BACK):
            await end(ctx.tx, "COMMIT" if noted.n == COMMITS else "ROLLBACK")
            if noted.n == COMMITS:  # as somebody who goes on: many handles begin again by themselves
                await write(ctx.tx, "SELECT 1")
        return Ok(Done(key=noted.key, n=noted.n))

    if source.handle == "Django connection":
        with pytest.raises(ConfigurationError, match="belong to threads"):
            await outcome(app, url)
        ran(request, source, "async def handler", REFUSED)
        return
    await outcome(app, url)
    assert threads == {threading.main_thread().name}
    assert await effects(url) == [OK, RAISES, COMMITS]
    assert await told(url) == [("test.done", n) for n in (1, 3, 10, 30, 40)] + [("test.refused", 2)]
    ran(request, source, "async def handler")


async def test_plain_handlers(request: pytest.FixtureRequest, app: Postlude, source: Source, url: str) -> None:
    """On a sync handle everything happens in one thread. An async one belongs to the loop: there is `ctx.append`."""
    threads: set[str] = set()
    # Our own connection to SQLite is lent to the handler's thread while the loop leaves it alone.
    may_write = not source.is_async

    @app.on(Noted, name="handle")
    def handle(noted: Noted, ctx: Any) -> Ok[Done] | Err[Refused]:
        threads.add(threading.current_thread().name.partition("_")[0])
        ctx.append(Done(key=noted.key, n=10 * noted.n))
        if may_write:
            run_now(ctx.tx, f"INSERT INTO effect VALUES ({noted.n})")
        if noted.n == ERR:
            return Err(Refused(key=noted.key, n=noted.n))
        if noted.n == RAISES and ctx.attempt == 1:
            raise RuntimeError("after the write")
        if noted.n in (COMMITS, ROLLS_BACK):
            if not may_write:
                return "neither"  # type: ignore[return-value]  # it cannot end what it cannot reach
            ending_now(ctx.tx, "COMMIT" if noted.n == COMMITS else "ROLLBACK")
            if noted.n == COMMITS:
                run_now(ctx.tx, "SELECT 1")
        return Ok(Done(key=noted.key, n=noted.n))

    await outcome(app, url)
    assert threads == {"postlude-handler"}
    committed = [1, 3, 10, 30, 40] if may_write else [1, 3, 10, 30]
    assert await told(url) == [("test.done", n) for n in committed] + [("test.refused", 2)]
    if may_write:
        assert await effects(url) == [OK, RAISES, COMMITS]
    ran(request, source, "def handler", "yes" if may_write else APPEND_ONLY)


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*arguments: Any) -> Any:
        return function(*arguments)

    return call


def test_every_handle_that_can_be_given_is_tried() -> None:
    scoped = {kind.handle for kind in KINDS if "scoped" in kind.handle}
    tried = {(source.handle, source.driver, source.database) for source in SOURCES}
    assert tried == {(kind.handle, kind.driver, kind.database) for kind in KINDS if kind.handle not in scoped}


WRAPPING = [source for source in POSTGRES if source.given in ("sessionmaker", "async_sessionmaker", "Django atomic()")]


@pytest.fixture
async def repeatable_read(url: str) -> AsyncIterator[None]:
    """In every new session, whoever opens it."""
    database = f"ALTER DATABASE {url.rpartition('/')[2]}"
    await query(url, f"{database} SET default_transaction_isolation = 'repeatable read'")
    yield
    await query(url, f"{database} RESET default_transaction_isolation")


@pytest.mark.usefixtures("repeatable_read")
@pytest.mark.parametrize("case", _cases(WRAPPING, ON_POSTGRES), indirect=True)
async def test_a_wrapped_serialisation_failure_burns_no_attempt(app: Postlude, source: Source, url: str) -> None:
    """SQLAlchemy and Django raise errors of their own; what the database meant is looked for inside."""
    await query(url, "CREATE TABLE counter AS SELECT 0 AS n")
    attempts: list[int] = []

    async def meanwhile() -> None:
        if len(attempts) < 3:
            await query(url, "UPDATE counter SET n = n + 10")

    if source.is_async:

        @app.on(Noted, name="handle")
        async def handle(noted: Noted, ctx: Context) -> None:
            attempts.append(ctx.attempt)
            await run(ctx.tx, "SELECT n FROM counter")
            await meanwhile()
            await run(ctx.tx, "UPDATE counter SET n = n + 1")
    else:

        @app.on(Noted, name="handle")
        def handle_in_thread(noted: Noted, ctx: Any) -> None:
            attempts.append(ctx.attempt)
            run_now(ctx.tx, "SELECT n FROM counter")
            finish(meanwhile())
            run_now(ctx.tx, "UPDATE counter SET n = n + 1")

    async with app:
        await note(app, "a", 1)
        assert await app.drain() == 1
        assert attempts == [1, 1, 1]
        assert await query(url, "SELECT n FROM counter") == [(21,)]
