"""The app of the chaos test of erasures: four vendors behind one flaky server, and a handler that is told of completions."""

from __future__ import annotations

import os
from pathlib import Path

import httpx

from examples.resolvers.http import HttpResolver
from examples.resolvers.log_vendor import LogVendorResolver
from examples.resolvers.object_store import ObjectStoreResolver
from postlude import Context, ErasureCompleted, Postlude

TRACES, VENDORS = "CHAOS_TRACES", "CHAOS_VENDORS"
CALL_TIMEOUT = 2.0
"""Short, because a call of unknown outcome is made again only some seconds after its timeout."""
KINDS = {"crm": "rest", "mail": "rest", "files": "store", "logs": "logs"}
TABLE = "CREATE TABLE told (completion text NOT NULL)"
"""No unique key: twice must be able to happen, so that it shows."""


def make_app(url: str | None, vendors: str, traces: Path) -> Postlude:
    app = Postlude(url)
    trace = traces / f"call-{os.getpid()}.trace"

    async def at_work(_: httpx.Request) -> None:
        trace.write_bytes(b"at work\n")

    def client(name: str) -> httpx.AsyncClient:
        base = f"{vendors}/{KINDS[name]}/{name}"
        return httpx.AsyncClient(base_url=base, timeout=CALL_TIMEOUT / 2, event_hooks={"request": [at_work]})

    for resolver in (
        HttpResolver("crm", client("crm"), "customers"),
        HttpResolver("mail", client("mail"), "customers"),
        ObjectStoreResolver("files", client("files")),
        LogVendorResolver("logs", client("logs")),
    ):
        app.resolvers.register(resolver, timeout=CALL_TIMEOUT, concurrency=4)

    @app.on(ErasureCompleted, name="told")
    async def told(completed: ErasureCompleted, ctx: Context) -> None:
        if app.store.dialect == "sqlite":
            ctx.tx.execute("INSERT INTO told VALUES (?)", (str(completed.group),))
        else:
            await ctx.tx.execute("INSERT INTO told VALUES ($1)", str(completed.group))

    return app


if VENDORS in os.environ:
    app = make_app(None, os.environ[VENDORS], Path(os.environ[TRACES]))
