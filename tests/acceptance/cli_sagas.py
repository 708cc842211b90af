"""The app that the tests of `postlude saga` name as `tests.acceptance.cli_sagas:app`, and versions of its code."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import UUID

import msgspec

from postlude import Context, Err, Ok, Postlude, Saga, Settings
from tests.acceptance.cli_shop import DATABASE

T = TypeVar("T")
HERE = "tests.acceptance.cli_sagas"
TOO_DEAR, NO_MAIL = 500, 13
"""Totals of orders that come to nothing, and that get stuck behind the pivot."""


class Order(msgspec.Struct, frozen=True):
    order: str
    total: int = 5


async def reserve(state: Order, ctx: Context) -> Ok[str]:
    return Ok("shelf 7")


async def release(state: Order, ctx: Context) -> Ok[None] | Err[str]:
    return Err("Jammed") if state.order == "jammed" else Ok(None)


async def charge(state: Order, ctx: Context) -> Ok[None] | Err[str]:
    return Err("TooDear") if state.total >= TOO_DEAR else Ok(None)


async def refund(state: Order, ctx: Context) -> None:
    return None


async def ship(state: Order, ctx: Context) -> Ok[None]:
    return Ok(None)


async def mail(state: Order, ctx: Context) -> Ok[str] | Err[str]:
    return Err("NoAddress") if state.total == NO_MAIL else Ok("sent")


PLACE = Saga("place", state=Order).step(reserve, undo=release).step(charge, undo=refund).pivot(ship).step(mail)
SHORTER = Saga("place", state=Order).step(charge, undo=refund).pivot(ship)
"""Code that has lost a step."""


def app_on(url: str, *sagas: Saga[Order]) -> Postlude:
    made = Postlude(url, settings=Settings.load(environ={}, retry={"base_delay_seconds": 0}))
    for saga in sagas:
        made.sagas.register(saga)
    return made


app = app_on(os.environ.get(DATABASE, "sqlite:///nowhere.db"), PLACE)
changed = app_on(os.environ.get(DATABASE, "sqlite:///nowhere.db"), SHORTER)
empty = app_on(os.environ.get(DATABASE, "sqlite:///nowhere.db"))


def on_app(url: str, work: Callable[[Postlude], Awaitable[T]]) -> T:
    async def within() -> T:
        async with app_on(url, PLACE) as opened:
            return await work(opened)

    return asyncio.run(within())


def begin(url: str, *orders: Order, relay: bool = True) -> list[UUID]:
    """A saga for each, as far as it goes by itself."""

    async def work(opened: Postlude) -> list[UUID]:
        async with opened.transaction() as tx:
            ids = [await opened.sagas.start(tx, PLACE, order, id=order.order) for order in orders]
        if relay:
            await opened.drain()
        return ids

    return on_app(url, work)
