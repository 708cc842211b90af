"""Joining the caller's transaction: one small adapter for each kind of handle."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from postlude.core.statement import Script

T = TypeVar("T")


class Ended(Exception):
    """The transaction was over before the savepoint in it was."""


class Adapter(Protocol):
    """Plays our scripts on a handle that belongs to the caller. It never commits and never closes it.

    The methods of an adapter for sync handles are coroutines that never wait: they run without an event loop.
    """

    is_async: bool
    """Do its handles belong to an event loop?"""

    def dialect(self, handle: Any) -> str:
        """Which database the handle speaks to: `postgres` or `sqlite`."""

    def fits(self, handle: object) -> bool:
        """Is this a handle of mine?"""

    def require_transaction(self, handle: Any) -> None:
        """Refuse a handle that would commit our statement by itself (`NotInTransaction`), or is closed."""

    async def play(self, handle: Any, script: Script[T]) -> T:
        """Run the script's statements in the caller's transaction."""

    def savepoint(self, handle: Any) -> AbstractAsyncContextManager[None]:
        """Roll back to here when the block raises. `Ended` when there is nothing left to release."""

    def is_closed(self, handle: Any) -> bool:
        """Is the connection gone?"""

    def is_in_transaction(self, handle: Any) -> bool:
        """Is the transaction it was lent still open? Asked without a round trip."""

    def mark(self, handle: Any) -> object | None:
        """Equal as long as the transaction is the same, asked without a round trip. None: the handle may begin a new
        one by itself and nobody could tell, only a savepoint."""
