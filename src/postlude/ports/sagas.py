"""What sagas ask of a database: conversations in a caller's transaction, and what is read beside them.

The rules of `postlude.ports.store` hold here too. The times of an instance are those it comes with.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec

from postlude.core.delivery import Delivery, Fence
from postlude.core.saga.decision import Record
from postlude.core.saga.instance import Instance
from postlude.core.statement import Script
from postlude.ports.append import Prepared


class SagaAudit(msgspec.Struct, frozen=True):
    """A line of the audit about a saga."""

    actor: str
    action: str
    saga_id: UUID
    reason: str
    detail: dict[str, Any]
    old_status: str | None = None
    new_status: str | None = None


class Advanced(msgspec.Struct, frozen=True):
    """Written. Where the store can tell at once, with what was appended."""

    seq: int | None = None
    created_at: datetime | None = None


class SagaScripts(Protocol):
    """Conversations to be held on a caller's own handle, in the caller's transaction.

    Lock order: deliveries by seq, the saga's row, audit.
    """

    def find(self, name: str, process_id: str, *, lock: bool) -> Script[Instance | None]:
        """The newest run of a process. Locked, nobody else reads it with a lock or writes it until this transaction
        ends. Raises InvalidKey, when no process can have that id."""

    def get(self, saga_id: UUID, *, lock: bool) -> Script[Instance | None]:
        """One run; likewise."""

    def write(self, instance: Instance, history: Sequence[Record], *, was: int) -> Script[bool]:
        """Write an instance whose version was `was`, 0 meaning that it is new, and its history. False: somebody else
        was faster, or another run of the process has not ended; then nothing was written. Raises InvalidKey, when no
        process can have that id, and NotEncodable."""

    def advance(
        self, instance: Instance, history: Sequence[Record], message: Prepared, *, was: int
    ) -> Script[Advanced | None]:
        """`write`, and append what follows when it is one new event with one destination. None: somebody else was
        faster."""

    def take(
        self, fence: Fence, delivery: Delivery, idle: float, saga_id: UUID
    ) -> Script[tuple[bool, Instance | None]]:
        """Settle a delivery like `Scripts.settle_handled`, and read a run without a lock. False: not settled."""

    def note(self, saga_id: UUID, version: int, history: Sequence[Record]) -> Script[None]:
        """History only, of a signal that changed nothing; nothing at all when there is no such saga any more."""

    def cancel(self, destination: str, event_ids: Sequence[UUID]) -> Script[int]:
        """Discard what is scheduled of these events there, by the actor `saga`. What is being delivered, or has
        failed, is left alone. Gives how many."""

    def bury(self, fence: Fence, delivery: Delivery, error: str) -> Script[bool]:
        """Make a dead letter of a delivery, if it is still as it was read and ours. False: it is not, or is busy."""

    def audit(self, entry: SagaAudit) -> Script[None]:
        """Who did what to a saga and why, in the transaction that does it."""


class SagaFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which sagas are meant; what is None does not count. `since` and `until` are about when they began."""

    name: str | None = None
    status: str | None = None
    process_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


class Sagas(Protocol):
    """What is read of sagas, without locks."""

    async def list(
        self, which: SagaFilter, *, after: tuple[datetime, UUID] | None = None, limit: int
    ) -> Sequence[dict[str, Any]]:
        """Newest first, after the one that began then and has that id. Rows have the columns of the schema but the
        body."""

    async def get(self, saga_id: UUID) -> Instance | None: ...
    async def newest(self, name: str, process_id: str) -> Instance | None:
        """The newest run of a process."""

    async def history(self, saga_id: UUID, *, limit: int) -> Sequence[Record]:
        """The last so many lines, oldest first."""

    async def counts(self) -> Sequence[dict[str, Any]]:
        """Rows of name, status and count."""

    async def live(self, name: str, *, after: str = "", limit: int) -> Sequence[Instance]:
        """Those that have not ended, by process id; `after` is the last of the page before."""

    async def stalled(self, *, older_than: float, limit: int) -> Sequence[Instance]:
        """Those that run or compensate, were last updated so many seconds ago, and have no open delivery that could
        move them on: of no event that carries their id, dead letters aside. Longest first."""
