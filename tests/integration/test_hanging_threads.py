"""Blocking clients of vendors may fill the threads of the event loop, and hang there: nothing of ours waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from postlude import ResolverError
from tests.calling import Vendor, calling_app, erase
from tests.engine import workers


@pytest.fixture
async def no_thread_is_free() -> AsyncIterator[None]:
    loop, released = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    hanging = loop.run_in_executor(None, released.wait)
    yield
    released.set()
    await hanging


@pytest.mark.usefixtures("no_thread_is_free")
async def test_a_worker_ends_and_the_audit_copy_goes_on_though_every_thread_hangs(
    sqlite_url: str, tmp_path: Path
) -> None:
    copy = tmp_path / "audit.jsonl"
    app = calling_app(sqlite_url, Vendor("vendor", ResolverError("no")), audit={"file": str(copy)})
    told: list[object] = []
    app.erasure.on_abandoned(told.append)
    async with asyncio.timeout(30):
        await erase(app)
        async with workers(app) as (worker,):
            await worker.drain_once()
        assert await app.audit.ship() == len(copy.read_text().splitlines()) == 3
        await app.close()
    assert len(told) == 1
