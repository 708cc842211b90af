"""What the relay writes, always under its fence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postlude.core.delivery import Delivery, Fence, Verdict
from postlude.core.lanes import ROUTE
from postlude.ports.settling import Child
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.database import Database
from postlude.storage.sqlite.session import Session


class SqliteSettling:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self, fence: Fence, deliveries: Sequence[Delivery], lease: float) -> set[int]:
        values = rows.fence(fence, (delivery.lane for delivery in deliveries))
        values["deliveries"] = rows.json([(one.seq, one.status, one.attempts) for one in deliveries])
        found = await self._database.write(lambda session: session.fetch("start", lease=lease, **values))
        return {row[0] for row in found}

    async def settle_sent(self, fence: Fence, deliveries: Sequence[Delivery]) -> set[int]:
        values = rows.fence(fence, (delivery.lane for delivery in deliveries))
        seqs = [delivery.seq for delivery in deliveries]
        return await self._database.write(lambda session: _settle_sent(session, seqs, values))

    async def record(self, fence: Fence, verdicts: Sequence[Verdict]) -> set[int]:
        values = rows.fence(fence, (verdict.lane for verdict in verdicts))
        values["verdicts"] = rows.json([_verdict(verdict) for verdict in verdicts])
        found = await self._database.write(lambda session: session.fetch("record", **values))
        return {row[0] for row in found}

    async def forgive(self, destination: str, seqs: Sequence[int]) -> None:
        given = rows.json(list(seqs))
        await self._database.write(lambda session: session.fetch("forgive", destination=destination, seqs=given))

    async def condemn(self, destination: str, delivery: Delivery, error: str) -> bool:
        values = {"event_id": delivery.event_id.bytes, "destination": destination, "lane": delivery.lane}
        values |= {"key": delivery.key, "attempts": delivery.attempts}
        return await self._database.write(lambda session: _condemn(session, values, error))

    async def expand(self, fence: Fence, seqs: Sequence[int], children: Sequence[Child]) -> set[int]:
        if fence.destination != ROUTE or 0 not in fence.epochs:
            return set()
        values = {"worker": fence.worker.bytes, "epoch": fence.epochs[0], "seqs": rows.json(list(seqs))}
        values |= rows.children(children)
        return await self._database.write(lambda session: _expand(session, values))


def _settle_sent(session: Session, seqs: list[int], values: dict[str, Any]) -> set[int]:
    settled = [row[0] for row in session.fetch("settle_sent", seqs=rows.json(seqs), **values)]
    session.fetch("settle_sent_2", seqs=rows.json(settled))
    if len(settled) == len(seqs):
        return set()
    # What is still there is not ours any more; what is gone was settled before, by us or by an operator.
    return {row[0] for row in session.fetch("open_seqs", seqs=rows.json(seqs))}


def _condemn(session: Session, values: dict[str, Any], error: str) -> bool:
    born = session.fetch("condemn", **values)
    if born:
        session.fetch("condemn_2", seq=born[0][0], error=error)
    return bool(born)


def _expand(session: Session, values: dict[str, Any]) -> set[int]:
    session.fetch("expand", **values)
    return {row[0] for row in session.fetch("expand_2", **values)}


def _verdict(verdict: Verdict) -> tuple[Any, ...]:
    return (
        verdict.seq,
        verdict.was_status,
        verdict.was_attempts,
        verdict.status,
        verdict.blocks,
        verdict.attempts,
        verdict.starts,
        verdict.delay,
        rows.seconds(verdict.until),
        verdict.error,
    )
