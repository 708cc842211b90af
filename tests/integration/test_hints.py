"""Hints to other processes: sent soon after an append, seldom, and never after the app was closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from postlude import DatabaseUnavailable
from tests.engine import note, query, routed_app, until

SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'postlude'"


@pytest.mark.parametrize("turns", range(6))
async def test_closing_while_a_hint_is_under_way_leaves_no_session(any_postgres_url: str, turns: int) -> None:
    app = routed_app(any_postgres_url)
    begun = asyncio.Event()
    store: Any = app.store
    send = store.hint

    async def hint() -> None:
        begun.set()
        await send()

    store.hint = hint
    async with app:
        await note(app, "a", 1)
        await begun.wait()
        for _ in range(turns):  # a bit further each time
            await asyncio.sleep(0)
    await until(lambda: is_gone(any_postgres_url))


async def is_gone(url: str) -> bool:
    return await query(url, SESSIONS) == [(0,)]


async def test_closing_ends_a_hint_that_hangs(database_url: str) -> None:
    app = routed_app(database_url)
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hint() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    store: Any = app.store
    store.hint = hint
    async with app:
        await note(app, "a", 1)
        await begun.wait()
    assert ended.is_set()


async def test_many_appends_send_few_hints(database_url: str) -> None:
    app = routed_app(database_url)
    moments: list[float] = []

    async def hint() -> None:
        moments.append(asyncio.get_running_loop().time())

    store: Any = app.store
    store.hint = hint
    async with app:
        began = asyncio.get_running_loop().time()
        while len(moments) < 2:
            await note(app, "a", 1)
    assert all(moment - began >= 0.5 * n for n, moment in enumerate(moments)), "however many were appended meanwhile"


async def test_a_hint_that_fails_is_nobodys_trouble(database_url: str) -> None:
    app = routed_app(database_url)
    failed = asyncio.Event()

    async def hint() -> None:
        failed.set()
        raise DatabaseUnavailable("gone")

    store: Any = app.store
    store.hint = hint
    async with app:
        await note(app, "a", 1)
        await failed.wait()
        await note(app, "a", 2)
        assert await app.drain() == 2
