"""The app of the chaos test of sagas: a plain one and a typed one, whose steps do what their script says and leave rows.

Steps that call out have a stranger's database behind them, which knows their keys: it happens to be the same file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from postlude import Context, Err, Event, EventHandler, Ok, Postlude, Reject, Retry, Saga, SagaDef, SagaStep, event
from tests.acceptance.saga_chaos_script import PLAIN, TYPED, Fate, Script, result_of

TRACES = "CHAOS_TRACES"
CALL_TIMEOUT = 2.0
"""Short, because a call of unknown outcome is made again only some seconds after its timeout."""
PATIENT = Retry(max_attempts=50, base_delay=0.1, max_delay=1.0)
EFFECTS = {
    "postgres": "CREATE TABLE effect (position bigserial, saga text, what text, key text UNIQUE)",
    "sqlite": "CREATE TABLE effect (position integer PRIMARY KEY, saga text, what text, key text UNIQUE)",
}
"""Only calls have a key. What is done in a transaction of ours has none: twice must be able to happen, so that it shows."""
INSERT = "INSERT INTO effect (saga, what, key) VALUES ({}) ON CONFLICT (key) DO NOTHING"


class Unlucky(Exception):
    """The next attempt has more luck."""


class Doing:
    """What steps and undos do, in this process."""

    def __init__(self, traces: Path) -> None:
        self._trace = traces / f"saga-{os.getpid()}.trace"
        self.app: Postlude

    async def does(self, ctx: Context, saga: str, what: str, fate: Fate) -> bool:
        """False: it says Err, and what it did in its transaction is to be undone by that."""
        if fate != "err" or ctx.tx is not None:
            await self._write(ctx, (saga, what, None if ctx.tx is not None else ctx.idempotency_key))
        if fate == "reject":
            raise Reject(what)
        if fate == "flaky" and ctx.attempt == 1:
            raise Unlucky(what)
        return fate != "err"

    async def _write(self, ctx: Context, values: tuple[str | None, ...]) -> None:
        self._trace.write_bytes(b"at work\n")
        if ctx.tx is not None:
            await self._insert(ctx.tx, values)
            return
        async with self.app.transaction() as tx:
            await self._insert(tx, values)

    async def _insert(self, tx: Any, values: tuple[str | None, ...]) -> None:
        if self.app.store.dialect == "sqlite":
            tx.execute(INSERT.format("?, ?, ?"), values)
        else:
            await tx.execute(INSERT.format("$1, $2, $3"), *values)


# ---------------------------------------------------------------- plain


def tour(doing: Doing) -> Saga[Script]:
    def action(index: int, name: str) -> Any:
        async def act(script: Script, ctx: Context) -> Ok[str] | Err[str]:
            is_done = await doing.does(ctx, f"{PLAIN} {script.number}", f"do {name}", script.steps[index])
            return Ok(result_of(name, script.number)) if is_done else Err("Refused")

        return act

    def undo(index: int, name: str) -> Any:
        async def act(script: Script, ctx: Context) -> Ok[None] | Err[str]:
            what = f"undo {name}: {ctx.result}"
            is_done = await doing.does(ctx, f"{PLAIN} {script.number}", what, script.undos[index])
            return Ok(None) if is_done else Err("Refused")

        return act

    saga = Saga(PLAIN, state=Script)
    for index, name in enumerate(("flight", "hotel", "car", "insurance")):
        saga = saga.step(
            action(index, name),
            undo=undo(index, name),
            name=name,
            retry=PATIENT,
            transactional=name in ("flight", "car"),
        )
    return saga


# ---------------------------------------------------------------- typed


@event(key="number")
class Ordered(Event):
    number: str
    steps: tuple[Fate, ...]
    undos: tuple[Fate, ...]


@event
class Reserved(Event):
    number: str
    result: str


@event
class Charged(Event):
    number: str
    result: str


@event
class Shipped(Event):
    number: str
    result: str


@event
class Mailed(Event):
    number: str
    result: str


@event
class Refused(Event):
    number: str


@event
class Release(Event):
    number: str
    undos: tuple[Fate, ...]


@event
class Refund(Event):
    number: str
    undos: tuple[Fate, ...]


class Acting:
    """A handler with something to do; it knows nothing of sagas."""

    def __init__(self, doing: Doing) -> None:
        self._doing = doing

    async def act(self, ordered: Ordered, ctx: Context, index: int, made: Any) -> Any:
        name = Parcel.steps[index].name
        is_done = await self._doing.does(ctx, f"{TYPED} {ordered.number}", f"do {name}", ordered.steps[index])
        if is_done:
            return Ok(made(number=ordered.number, result=result_of(name, ordered.number)))
        return Err(Refused(number=ordered.number))

    async def undo(self, asked: Release | Refund, ctx: Context, index: int) -> Any:
        result = None if ctx.result is None else ctx.result.result
        what = f"undo {Parcel.steps[index].name}: {result}"
        is_done = await self._doing.does(ctx, f"{TYPED} {asked.number}", what, asked.undos[index])
        return Ok(None) if is_done else Err(Refused(number=asked.number))


class Reserve(Acting, EventHandler[Ordered, Reserved, Refused]):
    async def handle(self, ordered: Ordered, ctx: Context) -> Any:
        return await self.act(ordered, ctx, 0, Reserved)


class Charge(Acting, EventHandler[Ordered, Charged, Refused]):
    async def handle(self, ordered: Ordered, ctx: Context) -> Any:
        return await self.act(ordered, ctx, 1, Charged)


class Ship(Acting, EventHandler[Ordered, Shipped, Refused]):
    async def handle(self, ordered: Ordered, ctx: Context) -> Any:
        return await self.act(ordered, ctx, 2, Shipped)


class Mail(Acting, EventHandler[Ordered, Mailed, Refused]):
    async def handle(self, ordered: Ordered, ctx: Context) -> Any:
        return await self.act(ordered, ctx, 3, Mailed)


class Unreserve(Acting, EventHandler[Release, Any, Any]):
    async def handle(self, release: Release, ctx: Context) -> Any:
        return await self.undo(release, ctx, 0)


class Repay(Acting, EventHandler[Refund, Any, Any]):
    async def handle(self, refund: Refund, ctx: Context) -> Any:
        return await self.undo(refund, ctx, 1)


class Parcel(SagaDef[Ordered, str]):
    name: ClassVar[str] = TYPED
    correlation_field: ClassVar[str] = "number"
    steps: ClassVar[tuple[SagaStep, ...]] = (
        SagaStep("reserve", handler=Reserve, success=Reserved, failure=Refused, compensation=Release, retry=PATIENT),
        SagaStep("charge", handler=Charge, success=Charged, failure=Refused, compensation=Refund, retry=PATIENT),
        SagaStep(
            "ship", handler=Ship, success=Shipped, failure=Refused, kind="pivot", compensation=None, retry=PATIENT
        ),
        SagaStep("mail", handler=Mail, success=Mailed, failure=Refused, kind="retriable", retry=PATIENT),
    )


def make_app(url: str | None, traces: Path) -> tuple[Postlude, Saga[Script]]:
    doing = Doing(traces)
    app = doing.app = Postlude(url)
    plain = tour(doing)
    app.sagas.register(plain)
    app.sagas.register(Parcel())
    for handler in (Reserve(doing), Ship(doing), Unreserve(doing)):
        app.register(handler)
    for calling in (Charge(doing), Mail(doing), Repay(doing)):
        app.register(calling, transactional=False)
    return app, plain


if TRACES in os.environ:  # in a process of its own: `postlude run tests.acceptance.saga_chaos_app:app`
    app, _ = make_app(None, Path(os.environ[TRACES]))
