"""How the demo is shown: live where somebody watches, in plain lines where not; then the books."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from postlude.cli import render
from postlude.cli.demo.books import Books
from postlude.insight.views import DeliveryView


class Progressing:
    """Two bars and what is open; plain lines when nobody watches."""

    def __init__(self, console: Console, progress: Progress | None, orders: int, deliveries: int) -> None:
        self._console = console
        self._progress = progress
        if progress is not None:
            self._orders = progress.add_task("orders placed", total=orders, state="")
            self._settled = progress.add_task("delivered", total=deliveries, state="")

    def tell(self, text: str) -> None:
        """A step of the story."""
        self._console.print(text, soft_wrap=True)

    def update(self, placed: int, settled: int, counts: dict[str, int]) -> None:
        if self._progress is None:
            return
        state = "  ".join(f"{status} {entries}" for status, entries in counts.items() if entries)
        self._progress.update(self._orders, completed=placed)
        self._progress.update(self._settled, completed=settled, state=state)


@contextmanager
def progressing(orders: int, deliveries: int) -> Iterator[Progressing]:
    console = render.stderr()
    if not console.is_terminal:
        yield Progressing(console, None, orders, deliveries)
        return
    counted = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    columns = (TextColumn("{task.description}"), *counted, TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=console, transient=True) as progress:
        yield Progressing(console, progress, orders, deliveries)


def show_dead(letters: Sequence[DeliveryView]) -> None:
    rows = [(one.event_id, one.destination, one.attempts, one.error) for one in letters]
    render.table(("event", "destination", "tries", "error"), rows, title="Dead letters")


def show_books(books: Books) -> None:
    rows: list[tuple[str, object, str]] = [
        ("orders", books.orders, "rows of the shop's own table; each has its event, and no event is without its order"),
        ("deliveries appended", books.appended, "an order to broker, warehouse and mail; a reservation to the broker"),
        ("delivered", books.delivered, "have a receipt, and are found where they went"),
        ("dead letters", books.dead, "would wait for an operator"),
        ("lost", books.lost, "appended - delivered - dead"),
        ("effects", books.effects, f"stock reservations, one an order; {books.effects_doubled} twice"),
        ("retried", books.retried, "receipts of more than one attempt"),
        ("duplicates suppressed", books.duplicates_suppressed, "double clicks, and mails asked for again"),
        ("seconds", books.elapsed_s, ""),
    ]
    render.table(("what", "number", "how it is known"), rows, title="The books")
    sums = f"{books.appended:,} appended = {books.delivered:,} delivered + {books.dead:,} dead"
    if books.is_balanced:
        render.say(
            f"The books balance: {sums}. An order and its event committed together or not at all, every delivery ended"
            " with a receipt, and although many were tried more than once, each effect happened exactly once."
        )
    else:
        render.say(
            f"The books do NOT balance: {sums}, {books.lost:,} lost; {books.effects:,} effects of {books.orders:,}."
        )
