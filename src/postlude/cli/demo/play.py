"""`postlude demo`: a small shop for a few seconds, and the proof that nothing was lost or done twice."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from postlude.app import Postlude
from postlude.cli import logs, render
from postlude.cli.demo import tables
from postlude.cli.demo.books import Books, close_books
from postlude.cli.demo.shop import Shop
from postlude.cli.demo.show import Progressing, progressing, show_books, show_dead
from postlude.cli.loading import using
from postlude.cli.options import AsJson
from postlude.insight.views import DeliveryView
from postlude.runtime.worker import Worker
from postlude.secrecy import shown_url, without_secrets
from postlude.settings import Settings

POLL = 0.1
STUCK = 20.0
"""Seconds without any change after which the demo stops waiting and counts what there is."""

# Impatient, because somebody watches.
RETRY = {"base_delay_seconds": 0.15, "max_backoff_seconds": 0.5}


def demo(
    *,
    database: Annotated[
        str | None, typer.Option("--database", metavar="URL", help="By default a temporary SQLite file.")
    ] = None,
    orders: Annotated[int, typer.Option("--orders", min=1, max=100_000, help="How many customers' orders.")] = 100,
    json: AsJson = False,
) -> None:
    """Run a small shop for a few seconds: failures, retries, a dead letter, an outage; then count everything."""
    logs.silence()
    with tempfile.TemporaryDirectory(prefix="postlude-demo-") as folder:
        # The user's own settings and environment are of another app.
        settings = Settings.load({}, Path(folder), schema=tables.SCHEMA, retry=RETRY, errors={"keep": "message"})
        url = database or f"sqlite:///{folder}/shop.db"
        app = Postlude(url, broker="memory://", settings=settings)
        shop = Shop(app, orders)
        where = "an embedded SQLite file" if database is None else without_secrets(shown_url(database))
        books = using(app, lambda _: _play(shop, where, show_letters=not json))
    if json:
        render.json({**msgspec.structs.asdict(books), "balanced": books.is_balanced})
    else:
        show_books(books)
    raise typer.Exit(0 if books.is_balanced else 1)


async def _play(shop: Shop, where: str, *, show_letters: bool) -> Books:
    app = shop.app
    with _ending_on_sigterm(), progressing(len(shop.orders), shop.deliveries) as told:
        told.tell(f"A shop opens on {where}.")
        await tables.prepare(app)
        try:
            began = app.clock.monotonic()
            async with app.worker() as worker:
                watching = asyncio.create_task(_watch(shop, worker, told))
                try:
                    letters = await _business(shop, told)
                finally:
                    watching.cancel()
            books = await close_books(app, app.clock.monotonic() - began)
        finally:
            await tables.clean_up(app)
    if show_letters and letters:
        show_dead(letters)
    return books


async def _business(shop: Shop, told: Progressing) -> list[DeliveryView]:
    """Sell, wait, look at the dead letter, repair, requeue, wait again. Gives the dead letters there were."""
    app = shop.app
    told.tell(f"{len(shop.orders)} orders come in; some deliveries fail, and the broker is down for a moment.")
    await shop.sell()
    await _until_quiet(app, lambda counts: sum(counts.values()) == counts["dead"])
    letters = (await app.insight.list("dead")).items
    for letter in letters:
        told.tell(f"Dead letter: {letter.event_id} for {letter.destination}: {letter.error}")
    shop.bug_is_fixed = True
    requeued = await app.actions.requeue(
        [letter.event_id for letter in letters], actor="demo", reason="the warehouse has a bigger shelf now"
    )
    told.tell(f"The bug is fixed; {len(requeued)} requeued.")
    await _until_quiet(app, lambda counts: not any(counts.values()))
    return letters


async def _watch(shop: Shop, worker: Worker, told: Progressing) -> None:
    """For the eye only: the books are made from the database."""
    while True:
        sent = sum(entries for name, entries in worker.watchers.counts.items() if name.startswith("sent:"))
        told.update(shop.done, sent, await shop.app.insight.counts())
        await asyncio.sleep(POLL)


async def _until_quiet(app: Postlude, is_quiet: Callable[[dict[str, int]], bool]) -> None:
    """Wait for the worker as long as it gets anywhere."""
    last: dict[str, int] = {}
    changed = app.clock.monotonic()
    while not is_quiet(counts := await app.insight.counts()):
        if counts != last:
            last, changed = counts, app.clock.monotonic()
        elif app.clock.monotonic() - changed > STUCK:
            return
        await asyncio.sleep(POLL / 2)


@contextlib.contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """As Ctrl-C does: cancel, so that the schema on a server does not stay behind."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
