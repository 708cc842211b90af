from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from postlude.runtime.threads import Threads

said: ContextVar[str] = ContextVar("said", default="nothing")


@pytest.fixture
def threads():
    made = Threads(1)
    yield made
    made.close()


async def test_a_call_runs_in_another_thread_with_the_callers_context(threads: Threads) -> None:
    said.set("hello")
    here = threading.get_ident()
    there, heard = await (await threads.start(lambda: (threading.get_ident(), said.get())))
    assert there != here
    assert heard == "hello"


async def test_an_error_comes_back(threads: Threads) -> None:
    def breaks() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await (await threads.start(breaks))


async def test_waiting_for_a_thread_is_not_part_of_the_call(threads: Threads) -> None:
    release = threading.Event()
    first = await threads.start(release.wait)
    second = asyncio.ensure_future(threads.start(lambda: "ran"))
    await asyncio.sleep(0)
    assert not second.done()
    release.set()
    assert await first
    assert await (await second) == "ran"
