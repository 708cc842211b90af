"""What an operator can do. Every action says who and why, and its audit record commits with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from uuid import UUID

from msgspec import structs

from postlude.core.lanes import lane_of
from postlude.errors import ConfigurationError, NotFound
from postlude.insight.insight import as_uuid
from postlude.ports.store import Child, Filter, Operating, Reading, Records

BATCH = 1000
Which = Sequence[UUID | str] | Filter


class Actions:
    """Each action gives the ids of the events that changed; what does not fit is skipped."""

    def __init__(
        self,
        operating: Operating,
        records: Records,
        reading: Reading,
        *,
        lanes: Callable[[], int],
        hint: Callable[[], None],
    ) -> None:
        self._operating = operating
        self._records = records
        self._reading = reading
        self._lanes = lanes
        self._hint = hint

    async def requeue(self, which: Which, *, actor: str, reason: str, destination: str | None = None) -> list[UUID]:
        """Dead letters are tried again with a fresh budget. Under `order.on_dead = "skip"` they come after what
        followed them."""
        return await self._act("requeue", which, ("dead",), actor=actor, reason=reason, destination=destination)

    async def discard(self, which: Which, *, actor: str, reason: str, destination: str | None = None) -> list[UUID]:
        """Open deliveries are given up for good; the receipt says by whom."""
        statuses = ("pending", "failed", "scheduled", "dead")
        return await self._act("discard", which, statuses, actor=actor, reason=reason, destination=destination)

    async def bury(self, which: Which, *, actor: str, reason: str, destination: str | None = None) -> list[UUID]:
        """Open deliveries become dead letters now."""
        statuses = ("pending", "failed", "scheduled")
        return await self._act("bury", which, statuses, actor=actor, reason=reason, destination=destination)

    async def replay(self, which: Which, *, to: str, actor: str, reason: str) -> list[UUID]:
        """Stored events are delivered to one destination again, as new work."""
        _require(actor, reason)
        known = {row["name"] for row in await self._records.destinations() if row["kind"] not in ("duty", "route")}
        if to not in known:
            raise NotFound(f"there is no destination {to!r}", hint=f"Known: {', '.join(sorted(known)) or 'none yet'}.")
        replayed: list[UUID] = []
        async for ids in self._settled_ids(which):
            events = await self._reading.events(ids)
            children = [
                Child(event.event_id, to, lane_of(event.key, event.event_id, self._lanes()), event.key)
                for event in (events[event_id] for event_id in ids if event_id in events)
            ]
            if children:
                replayed += await self._operating.replay(children, actor=actor, reason=reason)
        self._hint()
        return replayed

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

    async def _act(
        self, action: str, which: Which, statuses: Sequence[str], *, actor: str, reason: str, destination: str | None
    ) -> list[UUID]:
        _require(actor, reason)
        changed: list[UUID] = []
        if isinstance(which, Filter):
            for status in statuses if which.status is None else [one for one in statuses if one == which.status]:
                narrowed = structs.replace(which, status=status, destination=destination or which.destination)
                changed += await self._act_on_filter(action, narrowed, actor=actor, reason=reason)
        else:
            ids = [as_uuid(one) for one in which]
            for start in range(0, len(ids), BATCH):
                part = ids[start : start + BATCH]
                changed += await self._operating.act(action, part, actor=actor, reason=reason, destination=destination)
        self._hint()
        return list(dict.fromkeys(changed))

    async def _act_on_filter(self, action: str, which: Filter, *, actor: str, reason: str) -> list[UUID]:
        """Page by page, each row by its own destination, so that an event's other deliveries are left alone."""
        changed: list[UUID] = []
        after = 0
        while rows := await self._records.list_open(which, after=after, limit=BATCH):
            after = rows[-1]["seq"]
            by_destination: dict[str, list[UUID]] = {}
            for row in rows:
                by_destination.setdefault(row["destination"], []).append(row["event_id"])
            for name, ids in by_destination.items():
                changed += await self._operating.act(action, ids, actor=actor, reason=reason, destination=name)
        return changed

    async def _settled_ids(self, which: Which) -> AsyncIterator[list[UUID]]:
        if not isinstance(which, Filter):
            ids = [as_uuid(one) for one in which]
            for start in range(0, len(ids), BATCH):
                yield ids[start : start + BATCH]
            return
        after = (UUID(int=0), 0)
        while rows := await self._records.list_settled(which, after=after, limit=BATCH):
            after = (rows[-1]["event_id"], rows[-1]["seq"])
            # Ids of one millisecond have no order among themselves; the work that was done has.
            yield list(dict.fromkeys(row["event_id"] for row in sorted(rows, key=lambda row: row["seq"])))


def _require(actor: str, reason: str) -> None:
    if not actor.strip() or not reason.strip():
        raise ConfigurationError("an action needs an actor and a reason", hint="They stand in the audit record.")
