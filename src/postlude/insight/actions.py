"""What an operator can do. Every action says who and why, and its audit record commits with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import structs

from postlude.core.lanes import lane_of
from postlude.errors import ConfigurationError, NotFound
from postlude.insight.bulk import Bulk, Told
from postlude.insight.insight import as_uuid
from postlude.insight.window import Window
from postlude.ports.operating import Operating, Operation, Operations
from postlude.ports.reading import Reading
from postlude.ports.records import Filter, Records
from postlude.ports.settling import Child

BATCH = 1000
Which = Sequence[UUID | str] | Filter


class Actions:
    """Each action gives the ids of the events that changed; what does not fit is skipped. By ids it is done at once.
    By a filter it is an operation: it goes page by page, and whoever is killed meanwhile can resume it."""

    def __init__(
        self,
        operating: Operating,
        operations: Operations,
        records: Records,
        reading: Reading,
        *,
        lanes: Callable[[], int],
        hint: Callable[[], None],
        window_hours: int,
    ) -> None:
        self._operating = operating
        self._records = records
        self._reading = reading
        self._lanes = lanes
        self._hint = hint
        self.window = Window(records, operations, window_hours)
        self.bulk = Bulk(operations, reading, self.window, lanes)

    async def requeue(
        self, which: Which, *, actor: str, reason: str, destination: str | None = None, told: Told | None = None
    ) -> list[UUID]:
        """Dead letters are tried again with a fresh budget. Under `order.on_dead = "skip"` they come after what
        followed them."""
        return await self._act("requeue", which, actor=actor, reason=reason, destination=destination, told=told)

    async def discard(
        self, which: Which, *, actor: str, reason: str, destination: str | None = None, told: Told | None = None
    ) -> list[UUID]:
        """Open deliveries are given up for good; the receipt says by whom."""
        return await self._act("discard", which, actor=actor, reason=reason, destination=destination, told=told)

    async def bury(
        self, which: Which, *, actor: str, reason: str, destination: str | None = None, told: Told | None = None
    ) -> list[UUID]:
        """Open deliveries become dead letters now."""
        return await self._act("bury", which, actor=actor, reason=reason, destination=destination, told=told)

    async def replay(self, which: Which, *, to: str, actor: str, reason: str, told: Told | None = None) -> list[UUID]:
        """Stored events are delivered to one destination again, as new work; by a filter, the oldest first. To a broker
        none that was made before `inbox.replay_window_hours`."""
        await self.require_replayable(to, actor, reason)
        if isinstance(which, Filter):
            planned = await self.bulk.plan("replay", which, actor=actor, reason=reason, to=to)
            _, replayed = await self.bulk.start(planned, told)
        else:
            replayed = await self._replay_ids([as_uuid(one) for one in which], to, actor=actor, reason=reason)
        self._hint()
        return replayed

    async def resume_operation(self, id: UUID | str, *, actor: str, told: Told | None = None) -> Operation:
        """Go on with a bulk action that was interrupted. Gives it as it stands at the end."""
        _require(actor, "resumed")
        operation, _ = await self.bulk.resume(as_uuid(id, "operation"), actor=actor, told=told)
        self._hint()
        return operation

    async def cancel_operation(self, id: UUID | str, *, actor: str, reason: str) -> bool:
        """Nothing more is done of it; what was done stays. False: it had ended."""
        _require(actor, reason)
        return await self.bulk.cancel(as_uuid(id, "operation"), actor=actor, reason=reason)

    async def pause(self, destination: str, *, actor: str, reason: str) -> bool:
        """No worker delivers to it until it is resumed. False: it was paused already."""
        await self._require_destination(destination, actor, reason)
        return await self._operating.pause(destination, actor=actor, reason=reason)

    async def resume(self, destination: str, *, actor: str, reason: str) -> bool:
        """False: it was not paused."""
        await self._require_destination(destination, actor, reason)
        resumed = await self._operating.resume(destination, actor=actor, reason=reason)
        self._hint()
        return resumed

    async def _require_destination(self, destination: str, actor: str, reason: str) -> None:
        _require(actor, reason)
        known = {row["name"] for row in await self._records.destinations()}
        if destination not in known:
            raise NotFound(
                f"there is no destination {destination!r}", hint=f"Known: {', '.join(sorted(known)) or 'none yet'}."
            )

    async def require_replayable(self, to: str, actor: str, reason: str) -> None:
        """Refuse a replay that could not be done."""
        _require(actor, reason)
        known = {row["name"] for row in await self._records.destinations() if row["kind"] not in ("duty", "route")}
        if to not in known:
            raise NotFound(f"there is no destination {to!r}", hint=f"Known: {', '.join(sorted(known)) or 'none yet'}.")

    async def _act(
        self, action: str, which: Which, *, actor: str, reason: str, destination: str | None, told: Told | None
    ) -> list[UUID]:
        _require(actor, reason)
        if isinstance(which, Filter):
            narrowed = structs.replace(which, destination=destination or which.destination)
            planned = await self.bulk.plan(action, narrowed, actor=actor, reason=reason)
            _, changed = await self.bulk.start(planned, told)
        else:
            changed, ids = [], [as_uuid(one) for one in which]
            for start in range(0, len(ids), BATCH):
                part = ids[start : start + BATCH]
                changed += await self._operating.act(action, part, actor=actor, reason=reason, destination=destination)
        self._hint()
        return list(dict.fromkeys(changed))

    async def _replay_ids(self, ids: list[UUID], to: str, *, actor: str, reason: str) -> list[UUID]:
        children: list[Child] = []
        made: list[tuple[UUID, datetime]] = []
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            events = await self._reading.events(part)
            found = [events[event_id] for event_id in part if event_id in events]
            lanes = self._lanes()
            children += [Child(one.event_id, to, lane_of(one.key, one.event_id, lanes), one.key) for one in found]
            made += [(one.event_id, one.created_at) for one in found]
        await self.window.require_events(to, made)
        replayed: list[UUID] = []
        for start in range(0, len(children), BATCH):
            replayed += await self._operating.replay(children[start : start + BATCH], actor=actor, reason=reason)
        return replayed


def _require(actor: str, reason: str) -> None:
    if not actor.strip() or not reason.strip():
        raise ConfigurationError("an action needs an actor and a reason", hint="They stand in the audit record.")
