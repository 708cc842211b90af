from __future__ import annotations

import asyncio

import pytest

from postlude.runtime.suspension import Suspension


class Noticed:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


async def test_a_coroutine_that_never_waits_is_not_noticed() -> None:
    noticed = Noticed()

    async def at_once() -> int:
        return 7

    assert await Suspension(at_once(), noticed) == 7
    assert noticed.times == 0


async def test_the_first_wait_is_noticed_and_the_result_comes_back() -> None:
    noticed = Noticed()

    async def waits() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "done"

    assert await Suspension(waits(), noticed) == "done"
    assert noticed.times == 1


async def test_an_error_after_a_wait_comes_through() -> None:
    async def breaks() -> None:
        await asyncio.sleep(0)
        raise LookupError

    with pytest.raises(LookupError):
        await Suspension(breaks(), Noticed())


async def test_a_cancellation_reaches_the_coroutine() -> None:
    cleaned = asyncio.Event()

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await Suspension(hangs(), Noticed())
    assert cleaned.is_set()
