"""What the tests of owners, leases and fences share."""

from __future__ import annotations

from uuid import UUID

from postlude.runtime.worker import Worker
from tests.engine import query

LEASE = 15.0
PAST_THE_LEASE = LEASE + 1


async def owners(url: str, destination: str = "default") -> dict[int, bytes | UUID | None]:
    rows = await query(url, f"SELECT lane, owner FROM postlude_lane WHERE destination = '{destination}'")
    return dict(rows)


def lanes_of(worker: Worker, destination: str = "default") -> set[int]:
    return worker.relays[destination].lanes


async def is_empty(url: str) -> bool:
    return not await query(url, "SELECT 1 FROM postlude_delivery")
