"""The app that the tests of `postlude erasure` name as `tests.acceptance.cli_erasure:app`, and what they do with it."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import asyncpg

from postlude import Correction, Erasure, ErasureResult, Postlude, ResolverError, Schedule, Settings, SubjectRef
from tests.acceptance.cli_shop import DATABASE

T = TypeVar("T")
HERE = "tests.acceptance.cli_erasure"
REFUSED, FLAKY = "cus_refused", "cus_flaky"
"""References at the shop whose calls are abandoned: at once, and after every attempt."""


class Crm:
    """A vendor that erases. Broken, it refuses some and is down for others."""

    name = "crm"

    def __init__(self, *, is_broken: bool) -> None:
        self._is_broken = is_broken

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        if self._is_broken and ref.value.startswith(REFUSED):
            raise ResolverError(f"{ref.value} is on hold")
        if self._is_broken and ref.value.startswith(FLAKY):
            raise TimeoutError(ref.value)
        return Erasure()


class LogVendor:
    """It only lets data expire: `days-3` in three days."""

    name = "logs"

    async def schedule_erasure(self, ref: SubjectRef, *, idempotency_key: str) -> Schedule:
        return Schedule(expires_at=datetime.now(UTC) + timedelta(days=int(ref.value.partition("-")[2])))


def app_on(url: str, *, is_broken: bool = True) -> Postlude:
    retry = {"max_attempts": 2, "base_delay_seconds": 0}
    made = Postlude(url, settings=Settings.load(environ={}, calls={"retry": retry}))
    made.resolvers.register(Crm(is_broken=is_broken))
    made.resolvers.register(LogVendor())
    return made


app = app_on(os.environ.get(DATABASE, "sqlite:///nowhere.db"))


def on_app(url: str, work: Callable[[Postlude], Awaitable[T]], *, is_broken: bool = True) -> T:
    async def within() -> T:
        async with app_on(url, is_broken=is_broken) as opened:
            return await work(opened)

    return asyncio.run(within())


def erase(url: str, *subjects: tuple[str, Sequence[SubjectRef]], relay: bool = True) -> list[ErasureResult]:
    """Each in a transaction of its own; then every call is made as far as it goes."""

    async def work(opened: Postlude) -> list[ErasureResult]:
        results = []
        for subject_id, refs in subjects:
            async with opened.transaction() as tx:
                results.append(await opened.erasure.erase_subject(tx, subject_id, refs, reason="she asked"))
        if relay:
            await opened.drain()
        return results

    return on_app(url, work)


def rectify(url: str, subject_id: str, value: str) -> ErasureResult:
    """The CRM cannot, so that the call is abandoned."""

    async def work(opened: Postlude) -> ErasureResult:
        async with opened.transaction() as tx:
            corrections = [Correction("email", value)]
            made = await opened.erasure.rectify_subject(tx, subject_id, corrections, [SubjectRef("crm", "cus_1")])
        await opened.drain()
        return made

    return on_app(url, work)


def execute(url: str, *, sqlite: str, postgres: str) -> None:
    """What time does, or somebody with SQL."""

    async def on_postgres() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(postgres)
        finally:
            await connection.close()

    if not url.startswith("sqlite:"):
        asyncio.run(on_postgres())
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(sqlite)
