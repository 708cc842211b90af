"""Bulk actions: an operation by filter goes page by page, and goes on after a kill where it stood."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID, uuid4

from msgspec import structs

from postlude.core.lanes import lane_of
from postlude.core.lifecycle import Status
from postlude.errors import NotFound, OperationRunning
from postlude.insight.window import Window
from postlude.ports.operating import Operation, OperationPage, Operations
from postlude.ports.reading import Reading
from postlude.ports.records import Filter
from postlude.ports.settling import Child

PAGE = 1000
STATUSES: dict[str, tuple[Status, ...]] = {
    "requeue": (Status.dead,),
    "discard": (Status.pending, Status.failed, Status.scheduled, Status.dead),
    "bury": (Status.pending, Status.failed, Status.scheduled),
    "replay": (),
    "reseal": (),
}
"""What each action takes; the last two take stored events, whatever became of them."""

Told = Callable[[Operation], None]
"""Called when it begins and after every page, with the operation as it stands then."""
Turn = Callable[[Operation, OperationPage], Awaitable[Sequence[UUID] | None]]
"""A page of an action that somebody else knows how to do."""


class Bulk:
    """Runs operations. Two that run the same one do not disturb each other: every page is done by one of them."""

    def __init__(self, operations: Operations, reading: Reading, window: Window, lanes: Callable[[], int]) -> None:
        self._operations = operations
        self._window = window
        self._reading = reading
        self._lanes = lanes
        self.turns: dict[str, Turn] = {}
        """By action."""

    async def plan(self, action: str, which: Filter, *, actor: str, reason: str, to: str | None = None) -> Operation:
        """What would be done, counted; nothing is stored. A replay of what is too old for its destination is refused."""
        planned = Operation(
            id=uuid4(),
            action=action,
            filter=which,
            destination=to,
            actor=actor,
            reason=reason,
            last_seq=await self._reading.last_seq(),
        )
        if action == "replay":
            await self._window.require_all(planned, statuses_of(planned))
        return structs.replace(planned, total=await self._operations.count(planned, statuses_of(planned)))

    async def preview(self, planned: Operation, limit: int) -> OperationPage:
        """The first of what would be changed. Read as a whole page: one may end before its limit."""
        page = await self._operations.page(planned, statuses_of(planned), PAGE)
        return OperationPage(page.rows[:limit], page.cursor)

    async def start(self, planned: Operation, told: Told | None = None) -> tuple[Operation, list[UUID]]:
        """Begin and run to the end. Gives the operation as it ended and the events changed."""
        if planned.total == 0:
            return structs.replace(planned, status="done"), []
        begun = await self._operations.begin(planned)
        if begun.id != planned.id:
            raise OperationRunning(
                f"{begun.action} by this filter is running as operation {begun.id}: {begun.done} of {begun.total} done",
                hint=f"postlude operation resume {begun.id}",
            )
        return await self.run(begun, told)

    async def resume(self, id: UUID, *, actor: str, told: Told | None = None) -> tuple[Operation, list[UUID]]:
        """Go on where it stands. One that has ended is given as it is."""
        found = await self.get(id)
        if found.status != "running" or not await self._operations.resume(id, actor=actor, reason=found.reason):
            return await self.get(id), []
        return await self.run(found, told)

    async def cancel(self, id: UUID, *, actor: str, reason: str) -> bool:
        """What it has done stays done. False: it has ended already."""
        return await self._operations.end(await self.get(id), "cancelled", actor=actor, reason=reason)

    async def get(self, id: UUID) -> Operation:
        if (found := await self._operations.get(id)) is None:
            raise NotFound(f"there is no operation {id}", hint="postlude operation list")
        return found

    async def run(self, operation: Operation, told: Told | None = None) -> tuple[Operation, list[UUID]]:
        changed: list[UUID] = []
        current = operation
        if told is not None:
            told(current)
        while current.status == "running":
            page = await self._operations.page(current, statuses_of(current), PAGE)
            if page.rows:
                ids = await self._turn(current, page)
                changed += ids or ()
            else:
                await self._operations.end(current, "done", actor=current.actor, reason=current.reason)
            # Somebody else may have gone on with it, or ended it: what is stored counts.
            current = await self.get(current.id)
            if told is not None:
                told(current)
        return current, list(dict.fromkeys(changed))

    async def _turn(self, operation: Operation, page: OperationPage) -> Sequence[UUID] | None:
        if operation.action in self.turns:
            return await self.turns[operation.action](operation, page)
        if operation.action != "replay":
            return await self._operations.act(operation, page)
        await self._window.require_page(operation, page.rows)
        to = operation.destination or ""
        children = [
            Child(row["event_id"], to, lane_of(row["key"], row["event_id"], self._lanes()), row["key"])
            for row in page.rows
        ]
        return await self._operations.replay(operation, page, children)


def statuses_of(operation: Operation) -> list[str]:
    """The statuses that both the action and the filter take."""
    return [str(one) for one in STATUSES[operation.action] if operation.filter.status in (None, one)]
