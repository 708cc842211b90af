"""Our own tables as a resolver: an erasure is not complete before they have forgotten the subject too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from uuid import UUID

from postlude.core.calls import Erasure, SubjectRef
from postlude.core.outcome import Park
from postlude.core.uuid7 import time_of
from postlude.privacy.redacting import Pending, Redacting

OURSELVES = "postlude"
REASON = "erasure"
SHORTEST, LONGEST = timedelta(seconds=5), timedelta(minutes=5)


class OwnTables:
    """In the database that the call was appended in."""

    name = OURSELVES

    def __init__(self, redacting: Redacting, pending: Pending, now: Callable[[], Awaitable[datetime]]) -> None:
        self._redacting = redacting
        self._pending = pending
        self._now = now

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        done = await self._redacting.run(ref.value, self._pending, actor=OURSELVES, reason=REASON)
        if not done.is_complete:
            raise Park(until=await self._later(UUID(idempotency_key)))
        # Last: what was published first had to be opened with it.
        has_dropped = await self._redacting.drop_key(ref.value, actor=OURSELVES, reason=REASON)
        return Erasure(already_absent=not (done.events or done.sagas or has_dropped))

    async def _later(self, entry_id: UUID) -> datetime:
        """The longer it has waited, the longer it waits: as long again, within limits."""
        now = await self._now()
        made = time_of(entry_id)
        return now + min(max(SHORTEST, now - made if made else SHORTEST), LONGEST)
