"""Joining the caller's transaction: one small adapter for each kind of handle."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from postlude.core.statement import Script

T = TypeVar("T")


class Adapter(Protocol):
    """Plays our scripts on a handle that belongs to the caller. It never commits and never closes it."""

    dialect: str

    def fits(self, handle: object) -> bool:
        """Is this a handle of mine?"""

    def require_transaction(self, handle: Any) -> None:
        """Refuse a handle that would commit our statement by itself (`NotInTransaction`), or is closed."""

    async def play(self, handle: Any, script: Script[T]) -> T:
        """Run the script's statements in the caller's transaction."""

    def savepoint(self, handle: Any) -> AbstractAsyncContextManager[None]:
        """Roll back to here when the block raises."""

    def is_closed(self, handle: Any) -> bool:
        """Is the connection gone?"""

    def is_in_transaction(self, handle: Any) -> bool:
        """Is the transaction it was lent still open? Asked without a round trip."""
