"""Blocking work of ours in a thread of its own: those of the event loop may all hang in code of the user's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


async def apart(work: Callable[[], T]) -> T:
    thread = ThreadPoolExecutor(1, thread_name_prefix="postlude-apart")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, work)
    finally:
        thread.shutdown(wait=False)
