"""How far a long command is: a bar for people, a line now and then for logs. Always on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from postlude.cli import render
from postlude.ports.operating import Operation

LINE_EVERY = 5.0
"""Seconds between two lines where there is no terminal."""


@contextmanager
def of_operation() -> Iterator[Callable[[Operation], None]]:
    """Told when it begins and after every page. If it is interrupted, it is said how to go on."""
    known: list[Operation] = []
    with _shown() as show:

        def told(operation: Operation) -> None:
            known[:] = [operation]
            show(operation)

        try:
            yield told
        except BaseException:
            if known and known[0].status == "running":
                render.note(f"Interrupted. Go on with: postlude operation resume {known[0].id}")
            raise


@contextmanager
def _shown() -> Iterator[Callable[[Operation], None]]:
    console = render.stderr()
    if not render.is_lively(console):
        yield _lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("operation", total=None)

        def show(operation: Operation) -> None:
            progress.update(task, description=operation.action, completed=operation.done, total=operation.total)

        yield show


@contextmanager
def of_count(what: str, *, is_wanted: bool = True) -> Iterator[Callable[[int], None]]:
    """Told how many so far; nobody knows how many there will be."""
    console = render.stderr()
    if not (is_wanted and render.is_lively(console)):
        yield lambda _: None
        return
    with Progress(SpinnerColumn(), TextColumn(f"{{task.completed:,}} {what}"), console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda count: bar.update(task, completed=count)


def _lines() -> Callable[[Operation], None]:
    last = time.monotonic()

    def told(operation: Operation) -> None:
        nonlocal last
        if operation.status == "running" and time.monotonic() - last >= LINE_EVERY:
            last = time.monotonic()
            render.note(f"operation {operation.id}: {operation.action}, {operation.done:,} of {operation.total:,}")

    return told
