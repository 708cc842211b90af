"""`postlude run`: a worker in this process, or several in children of it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, NoReturn

import typer

from postlude.app import Postlude
from postlude.cli import logs, render
from postlude.cli.loading import load_app, using
from postlude.cli.options import AppRef, AsJson
from postlude.cli.supervisor import Supervisor, die_with
from postlude.errors import ConfigurationError

log = logging.getLogger("postlude.cli")
PATIENCE = 1.0
"""For threads and tasks of handlers that should have ended by now."""
THREADS = 32
"""For `asyncio.to_thread` in handlers, besides one for each call that a resolver takes at a time."""
ONCE = 3600.0
"""How long `--once` goes on at most while there is something due."""
KILL_MARGIN = 15.0
"""Beyond worker.shutdown_timeout: giving lanes back and closing connections have deadlines of their own."""


def run(
    reference: Annotated[str | None, typer.Argument(metavar="APP", help="The app, such as shop:app.")] = None,
    *,
    workers: Annotated[int, typer.Option("--workers", min=1, max=256, help="Processes; lanes are shared fairly.")] = 1,
    once: Annotated[bool, typer.Option("--once", help="Deliver what is due now, then end.")] = False,
    parent: Annotated[int | None, typer.Option("--parent", hidden=True)] = None,
    json: AsJson = False,
    app: AppRef = None,
) -> None:
    """Deliver until SIGTERM or SIGINT; a second signal ends at once."""
    chosen = reference or app
    if chosen is None or (reference is not None and app is not None):
        raise ConfigurationError("run needs one app", hint="postlude run shop:app")
    if once and workers > 1:
        raise ConfigurationError("--once runs in this process only", hint="Leave --workers out.")
    if parent is not None:
        die_with(parent)
    loaded = load_app(chosen)
    logs.configure(loaded.settings.log)
    if once:
        settled = using(loaded, lambda opened: opened.drain(timeout=ONCE))
        if json:
            render.json({"settled": settled})
        else:
            render.say(f"{settled:,} deliveries settled.")
    elif workers == 1:
        using(loaded, lambda opened: _work(opened, json=json))
    else:
        _supervise(loaded, chosen, workers, json=json)


async def _work(app: Postlude, *, json: bool) -> None:
    if not (app.routes.brokers() or app.routes.handlers or app.resolvers.names()):
        log.warning("this app has no route, no handler and no resolver: it only expands rows of SQL producers")
    log.info("a worker starts")
    threads = ThreadPoolExecutor(
        THREADS + sum(one.concurrency for one in app.resolvers), thread_name_prefix="postlude-handler-own"
    )
    asyncio.get_running_loop().set_default_executor(threads)
    await app.run()
    await app.close()
    threads.shutdown(wait=False, cancel_futures=True)
    are_tasks_left = await _are_tasks_left()
    _ended(1, 0, json=json)
    if are_tasks_left:
        _leave("a handler or resolver ignores that it is cancelled; the process ends without it")
    _leave_hung_threads()


def _supervise(app: Postlude, reference: str, workers: int, *, json: bool) -> None:
    """The app was loaded here only so that a wrong reference or setting is said once, and to know its deadline."""
    command = [sys.executable, "-m", "postlude.cli.main", "run", reference, "--parent", str(os.getpid())]
    supervisor = Supervisor(command, workers, deadline=app.settings.worker.shutdown_timeout + KILL_MARGIN)
    code = asyncio.run(supervisor.run())
    _ended(workers, supervisor.restarts, json=json)
    raise typer.Exit(code)


def _ended(workers: int, restarts: int, *, json: bool) -> None:
    log.info("%d workers ended", workers)
    if json:
        render.json({"workers": workers, "restarts": restarts})


def _leave_hung_threads() -> None:
    """What hangs in a thread must not keep the process: Python would wait for it for ever."""
    hung = [one for one in threading.enumerate() if one.name.startswith("postlude-handler") and not one.daemon]
    end = time.monotonic() + PATIENCE
    for thread in hung:
        thread.join(max(0.0, end - time.monotonic()))
    if any(thread.is_alive() for thread in hung):
        _leave("a handler or resolver still runs in its thread; the process ends without it")


async def _are_tasks_left() -> bool:
    """The event loop would wait for them for ever."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    return bool(left) and bool((await asyncio.wait(left, timeout=PATIENCE))[1])


def _leave(why: str) -> NoReturn:
    log.warning("%s", why)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)
