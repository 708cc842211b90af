"""What the tests of running sagas share: an app with a table of effects, a plain saga that writes there, and faults around
its transactions."""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec

from postlude import Context, DatabaseUnavailable, Err, Ok, Postlude, Saga, SagaView
from tests.engine import make_app, query

WHO: Any = {"actor": "ann", "reason": "she looked"}


class Order(msgspec.Struct, frozen=True):
    """The state of a plain saga."""

    order: str
    total: int = 0


@asynccontextmanager
async def books(url: str, **settings: Any) -> AsyncIterator[Postlude]:
    """An app whose steps write down what they do; three attempts each, without delay."""
    settings.setdefault("retry", {"base_delay_seconds": 0, "jitter_factor": 0, "max_attempts": 3})
    place = "seq integer PRIMARY KEY" if url.startswith("sqlite") else "seq bigserial PRIMARY KEY"
    await query(url, f"CREATE TABLE IF NOT EXISTS effect ({place}, what text)")
    async with make_app(url, **settings) as app:
        yield app


async def write(tx: Any, what: str) -> None:
    """What a step does to its database."""
    done = tx.execute(f"INSERT INTO effect (what) VALUES ('{what}')")
    if inspect.isawaitable(done):
        await done


async def written(url: str) -> list[str]:
    """In the order in which it was done."""
    return [row[0] for row in await query(url, "SELECT what FROM effect ORDER BY seq")]


async def start(app: Postlude, saga: Any, given: Any, **options: Any) -> UUID:
    async with app.transaction() as tx:
        return await app.sagas.start(tx, saga, given, **options)


async def finish(app: Postlude, saga: Any, given: Any, **options: Any) -> SagaView:
    """Start it, do all there is to do, and look at it."""
    saga_id = await start(app, saga, given, **options)
    await app.drain()
    return await app.sagas.get(saga_id)


async def append(app: Postlude, *events: object) -> list[UUID]:
    async with app.transaction() as tx:
        return await app.outbox.append_many(tx, events)


def told(view: SagaView) -> list[str]:
    """The history in words."""
    return [f"{line.what} {line.step}" if line.step else line.what for line in view.history]


async def is_quiet(app: Postlude) -> bool:
    """Nothing waits anywhere."""
    return not any((await app.insight.counts()).values())


class Faults:
    """Takes the connection away at the n-th transaction from now, before it commits or when it has, unseen by us. Before
    the first worker is made."""

    def __init__(self, app: Postlude) -> None:
        self._begin = app.store.transaction
        self._countdown: int | None = None
        self._after = False
        self._dice: random.Random | None = None
        self.struck = 0
        app.store.transaction = self._transaction  # type: ignore[method-assign]

    def strike(self, nth: int, *, after: bool) -> None:
        self._countdown, self._after = nth, after

    def strike_often(self, seed: int) -> None:
        """One transaction in five, at either moment, until told to stop."""
        self._dice = random.Random(seed)

    def stop(self) -> None:
        self._dice = self._countdown = None

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        is_due, after = self._is_due(), self._after
        async with self._begin() as handle:
            yield handle
            if is_due and not after:
                self._strike()
        if is_due:
            self._strike()

    def _is_due(self) -> bool:
        if self._dice is not None:
            self._after = self._dice.random() < 0.5
            return self._dice.random() < 0.2
        if self._countdown is None:
            return False
        self._countdown -= 1
        if self._countdown:
            return False
        self._countdown = None
        return True

    def _strike(self) -> None:
        self.struck += 1
        raise DatabaseUnavailable("the test took it away")


async def reserve(state: Order, ctx: Context) -> Ok[str]:
    await write(ctx.tx, f"reserve {state.order}")
    return Ok("shelf 7")


async def release(state: Order, ctx: Context) -> None:
    await write(ctx.tx, f"release {ctx.result}")


async def charge(state: Order, ctx: Context) -> Ok[Order] | Err[str]:
    await write(ctx.tx, f"charge {state.order}")
    if state.total > 100:
        return Err("TooMuch")
    return Ok(Order(state.order, state.total + 1))


async def refund(state: Order, ctx: Context) -> Ok[None]:
    await write(ctx.tx, f"refund {state.total}")
    return Ok(None)


async def ship(state: Order, ctx: Context) -> Ok[None]:
    await write(ctx.tx, f"ship {state.total}")
    return Ok(None)


async def mail(state: Order, ctx: Context) -> Ok[None]:
    await write(ctx.tx, f"mail {state.order}")
    return Ok(None)


def failing(error: Exception, calls: list[str] | None = None) -> Any:
    """A step that raises, whatever it has written."""

    async def fail(state: Order, ctx: Context) -> Ok[None]:
        if calls is not None:
            calls.append(ctx.idempotency_key)
        if ctx.tx is not None:
            await write(ctx.tx, "half")
        raise error

    return fail


PLACE = Saga("place", state=Order).step(reserve, undo=release).step(charge, undo=refund).pivot(ship).step(mail)
