"""What the relay writes, always under its fence."""

from __future__ import annotations

from collections.abc import Sequence

from postlude.core.delivery import Delivery, Fence, Verdict
from postlude.core.lanes import ROUTE
from postlude.ports.settling import Child
from postlude.storage.postgres import rows
from postlude.storage.postgres.connection import Database


class PostgresSettling:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def start(self, fence: Fence, deliveries: Sequence[Delivery], lease: float) -> set[int]:
        found = await self._database.fetch(
            "start",
            seqs=[delivery.seq for delivery in deliveries],
            was_statuses=[delivery.status for delivery in deliveries],
            was_attempts=[delivery.attempts for delivery in deliveries],
            lease=lease,
            ahead=self._database.ahead,
            **rows.fence(fence, {delivery.lane for delivery in deliveries}),
        )
        return {row[0] for row in found}

    async def settle_sent(self, fence: Fence, deliveries: Sequence[Delivery]) -> set[int]:
        seqs = [delivery.seq for delivery in deliveries]
        values = rows.fence(fence, {delivery.lane for delivery in deliveries})
        settled = (await self._database.fetch("settle_sent", seqs=seqs, **values))[0][0]
        if settled == len(seqs):
            return set()
        return await self._left(seqs)

    async def _left(self, seqs: list[int]) -> set[int]:
        """Of a settle that changed fewer rows than it named: those that are still there, so not ours any more. Rows
        that are gone were settled before, by us or by an operator."""
        found = await self._database.fetch("open_seqs", seqs=seqs)
        return {row[0] for row in found}

    async def record(self, fence: Fence, verdicts: Sequence[Verdict]) -> set[int]:
        found = await self._database.fetch(
            "record",
            seqs=[verdict.seq for verdict in verdicts],
            was_statuses=[verdict.was_status for verdict in verdicts],
            was_attempts=[verdict.was_attempts for verdict in verdicts],
            statuses=[verdict.status for verdict in verdicts],
            blocks=[verdict.blocks for verdict in verdicts],
            attempts=[verdict.attempts for verdict in verdicts],
            starts=[verdict.starts for verdict in verdicts],
            delays=[verdict.delay for verdict in verdicts],
            untils=[verdict.until for verdict in verdicts],
            errors=[verdict.error for verdict in verdicts],
            ahead=self._database.ahead,
            **rows.fence(fence, {verdict.lane for verdict in verdicts}),
        )
        return {row[0] for row in found}

    async def forgive(self, destination: str, seqs: Sequence[int]) -> None:
        await self._database.fetch("forgive", destination=destination, seqs=list(seqs))

    async def condemn(self, destination: str, delivery: Delivery, error: str) -> bool:
        async with self._database.transaction() as connection:
            born = await self._database.fetch_on(
                connection,
                "condemn",
                event_id=delivery.event_id,
                destination=destination,
                lane=delivery.lane,
                key=delivery.key,
                attempts=delivery.attempts,
            )
            if born:
                await self._database.fetch_on(connection, "condemn_2", seq=born[0][0], error=error)
        return bool(born)

    async def expand(self, fence: Fence, seqs: Sequence[int], children: Sequence[Child]) -> set[int]:
        if fence.destination != ROUTE or 0 not in fence.epochs:
            return set()
        found = await self._database.fetch(
            "expand",
            worker=fence.worker,
            epoch=fence.epochs[0],
            seqs=list(seqs),
            of_events=[child.event_id for child in children],
            destinations=[child.destination for child in children],
            lanes=[child.lane for child in children],
            keys=[child.key for child in children],
        )
        return {row[0] for row in found}
