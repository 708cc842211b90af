"""What a shell offers when the user presses Tab: names from the code, or from the database if it answers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import typer

from postlude.app import Postlude
from postlude.cli.loading import missing_file, open_app
from postlude.core.lifecycle import Status
from postlude.core.saga.instance import SagaStatus

PATIENCE = 1.0
"""Seconds; nobody waits longer for a completion."""


def statuses(incomplete: str) -> list[str]:
    return [str(one) for one in Status if one.startswith(incomplete)]


def destinations(ctx: typer.Context, incomplete: str) -> list[str]:
    async def names(app: Postlude) -> Sequence[str]:
        return [one.name for one in await app.insight.destinations()]

    return _starting(incomplete, _ask(ctx, names))


def operations(ctx: typer.Context, incomplete: str) -> list[str]:
    async def ids(app: Postlude) -> Sequence[str]:
        return [str(one.id) for one in await app.insight.operations(status="running")]

    return _starting(incomplete, _ask(ctx, ids))


def saga_statuses(incomplete: str) -> list[str]:
    return [str(one) for one in SagaStatus if one.startswith(incomplete)]


def saga_names(ctx: typer.Context, incomplete: str) -> list[str]:
    async def names(app: Postlude) -> Sequence[str]:
        return sorted({row["name"] for row in await app.store.sagas.counts()})

    return _starting(incomplete, _ask(ctx, names))


def duties(ctx: typer.Context, incomplete: str) -> list[str]:
    async def names(app: Postlude) -> Sequence[str]:
        return app.maintenance.names

    return _starting(incomplete, _ask(ctx, names))


def _starting(incomplete: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _ask(ctx: typer.Context, work: Callable[[Postlude], Awaitable[Sequence[str]]]) -> Sequence[str]:
    async def within(app: Postlude) -> Sequence[str]:
        try:
            async with asyncio.timeout(PATIENCE):
                return await work(app)
        finally:
            await app.close()

    try:
        app = open_app(ctx.params.get("app"), ctx.params.get("database"))
        return () if missing_file(app) else asyncio.run(within(app))
    except Exception:  # noqa: BLE001 - in the middle of a command line there is nowhere to say what went wrong
        return ()
