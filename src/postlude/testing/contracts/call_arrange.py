"""What the contract tests of calls set up."""

# ruff: noqa: S101 - a test's own premise

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from msgspec.structs import replace

from postlude.core.calls import PREFIX, CallOperation
from postlude.core.delivery import Delivery, Fence
from postlude.core.lifecycle import Status
from postlude.ports.calls import CORRECTIONS, SUBJECT, NewCall, NewGroup, StoredGroup
from postlude.ports.store import Store
from postlude.testing.contracts.arrange import LANES, Arranged, event, verdict
from postlude.testing.contracts.saga_arrange import play

VENDOR = f"{PREFIX}vendor"
WHOM = "5ab1ec7"
"""A pseudonym."""
MONTH = 30 * 86_400.0
WHO = {"actor": "ann", "reason": "fixed"}
FAULT = '{"kind": "Refused"}'
ERASE, RECTIFY = CallOperation.erase, CallOperation.rectify


def call(whom: str = WHOM, *, to: str = VENDOR, operation: CallOperation = ERASE, lane: int = 0) -> NewCall:
    """A call with all its secrets."""
    prepared = event(whom, to=(to,), type=f"postlude.{operation}", lane=lane)
    secrets = {SUBJECT: b'{"subject_id": "ada"}'}
    if operation is RECTIFY:
        secrets[CORRECTIONS] = b'[{"category": "name", "value": "Ada"}]'
    return NewCall(prepared, secrets)


async def opened(
    given: Arranged,
    calls: Sequence[NewCall] | int = 1,
    *,
    whom: str = WHOM,
    operation: CallOperation = ERASE,
    tells: bool = False,
    due: float = MONTH,
) -> tuple[NewGroup, list[UUID]]:
    """A request, committed: its group and the ids of its calls."""
    made = [call(whom, operation=operation) for _ in range(calls)] if isinstance(calls, int) else calls
    group = NewGroup(uuid4(), whom, operation, due, tells)
    async with given.store.transaction() as tx:
        scripts = given.store.call_scripts
        await given.adapter.play(tx, scripts.lock_subject(whom, erases=operation is ERASE))
        await given.adapter.play(tx, scripts.open_group(group, made))
    return group, [one.prepared.event_id for one in made]


async def stored(given: Arranged, group: NewGroup) -> StoredGroup:
    found = await given.store.calls.groups(subject=group.subject, is_overdue=False, limit=100)
    (one,) = [each for each in found if each.id == group.id]
    return one


async def under_way(given: Arranged, fence: Fence, *, to: str = VENDOR) -> list[Delivery]:
    """Every call that may be made now, its attempt committed."""
    found = [*await given.pending(to, lanes=range(LANES)), *await given.due(to)]
    begun = await given.store.settling.start(fence, found, 30.0)
    assert begun == {one.seq for one in found}
    return [replace(one, status=Status.claimed, attempts=one.attempts + 1, started=True) for one in found]


async def settle(given: Arranged, fence: Fence, one: Delivery, store: Store | None = None) -> bool:
    async with (store or given.store).transaction() as tx:
        return await given.adapter.play(tx, given.store.scripts.settle_handled(fence, one, 15.0))


async def die(given: Arranged, fence: Fence, *deliveries: Delivery) -> None:
    verdicts = [verdict(one, Status.dead, attempts=one.attempts, error=FAULT) for one in deliveries]
    assert await given.store.settling.record(fence, verdicts) == {one.seq for one in deliveries}


async def dead(given: Arranged, calls: Sequence[NewCall] | int = 1, **options: Any) -> tuple[NewGroup, list[UUID]]:
    """A request whose calls are all abandoned."""
    group, ids = await opened(given, calls, **options)
    fence = await given.own(VENDOR)
    await die(given, fence, *await under_way(given, fence))
    await given.store.ownership.leave(fence.worker)
    return group, ids


async def trail(given: Arranged, whom: str = WHOM) -> list[str]:
    """What the audit says of a subject, oldest first; records of one moment by name."""
    found = await given.store.records.audits(target=f"subject:{whom}", limit=1000)
    return [one["action"] for one in sorted(found, key=lambda one: (one["at"], one["action"]))]


async def record_of(given: Arranged, action: str, whom: str = WHOM) -> dict[str, Any]:
    found = await given.store.records.audits(target=f"subject:{whom}", limit=1000)
    (one,) = [each for each in found if each["action"] == action]
    return one


async def park(given: Arranged, fence: Fence, one: Delivery, **horizon: Any) -> Any:
    return await play(given, given.store.call_scripts.park(fence, one, **horizon))
