"""Sagas that several tests share: an order in both styles, and the smallest one of each kind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from postlude import Err, Event, EventHandler, Ok, Retry, event
from postlude.core.saga.definition import Definition, Kind, Replies, Step, Way
from postlude.saga.plain import Saga, step
from postlude.saga.step import SagaStep
from postlude.saga.typed import SagaDef


@event
class OrderPlaced(Event):
    order_id: str
    amount: int = 0


@event
class Reserved(Event):
    order_id: str
    shelf: str = "A1"


@event
class ReserveFailed(Event):
    order_id: str


@event
class Release(Event):
    order_id: str
    shelf: str | None = None


@event
class Charge(Event):
    order_id: str
    amount: int


@event
class Charged(Event):
    order_id: str


@event
class ChargeFailed(Event):
    order_id: str


@event
class Refund(Event):
    order_id: str


@event
class Refunded(Event):
    order_id: str


@event
class RefundFailed(Event):
    order_id: str


@event
class Approved(Event):
    order_id: str


@event
class Refused(Event):
    order_id: str


@event
class OrderDone(Event):
    order_id: str


@event
class OrderFailed(Event):
    order_id: str
    error: str


class Reserve(EventHandler[OrderPlaced, Reserved, ReserveFailed]):
    async def handle(self, event: OrderPlaced) -> Ok[Reserved] | Err[ReserveFailed]:
        return Ok(Reserved(order_id=event.order_id))


RESERVE = SagaStep("reserve", handler=Reserve, success=Reserved, failure=ReserveFailed, compensation=Release)
CHARGE = SagaStep(
    "charge", command=Charge, topic="payments", success=Charged, failure=ChargeFailed, compensation=Refund,
    compensated=Refunded, compensation_failed=RefundFailed, kind="pivot", deadline=timedelta(minutes=5), retry=Retry(5),
)  # fmt: skip
APPROVE = SagaStep("approve", wait=Approved, failure=Refused, compensation=None)


class PlaceOrder(SagaDef[OrderPlaced, str]):
    name = "place_order"
    correlation_field = "order_id"
    deadline = timedelta(hours=1)
    steps = (RESERVE, CHARGE, APPROVE)

    async def on_completed(self, id: str) -> OrderDone:
        return OrderDone(order_id=id)

    async def on_failed(self, id: str, error: str) -> OrderFailed:
        return OrderFailed(order_id=id, error=error)


class OrderState(msgspec.Struct, frozen=True):
    order_id: str


async def reserve(state: OrderState, ctx: Any) -> Ok[str] | Err[str]:
    return Ok("A1")


async def release(state: OrderState, ctx: Any) -> Ok[None]:
    return Ok(None)


async def charge(state: OrderState, ctx: Any) -> Ok[str] | Err[str]:
    return Ok("paid")


async def refund(state: OrderState, ctx: Any) -> None:
    return None


async def note(state: OrderState, ctx: Any) -> Ok[None]:
    return Ok(None)


async def ship(state: OrderState, ctx: Any) -> Ok[str] | Err[str]:
    return Ok("shipped")


async def mail(state: OrderState, ctx: Any) -> Ok[None]:
    return Ok(None)


ORDERS = Saga("orders", state=OrderState)
PLAIN_ORDER = (
    ORDERS.step(reserve, undo=release)
    .parallel(step(charge, undo=refund), step(note, undo=None))
    .pivot(ship)
    .step(mail)
)  # fmt: skip


def local(name: str, **options: Any) -> Step:
    """A step of this app that can be undone, unless said otherwise."""
    return Step(name=name, **{"undo": Way.handler, **options})


def awaited(name: str, **options: Any) -> Step:
    return Step(name=name, way=Way.wait, replies=Replies(success=f"{name}.yes", failure=f"{name}.no"), **options)


def remote(name: str, **options: Any) -> Step:
    replies = Replies(f"{name}.done", f"{name}.failed", f"{name}.undone", f"{name}.undo_failed")
    return Step(name=name, way=Way.command, replies=replies, **{"undo": Way.command, **options})


def saga_of(name: str, *steps: Step, **options: Any) -> Definition:
    return Definition(name=name, steps=steps, **options)


LINEAR = saga_of("linear", local("a"), local("b"), local("c"), local("d", undo=None))
PARALLEL = saga_of("parallel", local("a"), local("b", block="x"), local("c", block="x"), local("d"))
PIVOT = saga_of(
    "pivot",
    local("a"),
    local("b"),
    local("p", kind=Kind.pivot, undo=None),
    local("r", kind=Kind.retriable, undo=None),
    local("s", kind=Kind.retriable, undo=None),
)
WAIT = saga_of("wait", local("a"), awaited("w"), local("b"), awaited("v", undo=Way.handler))
DEADLINE = saga_of(
    "deadline", local("a", deadline=5.0), awaited("w", deadline=9.0), local("b", deadline=5.0), deadline=60.0
)
REMOTE = saga_of("remote", local("a"), remote("r", deadline=5.0), remote("s", deadline=5.0, undo=None), local("b"))
SAGAS = (LINEAR, PARALLEL, PIVOT, WAIT, DEADLINE, REMOTE)
