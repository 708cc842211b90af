"""The chain to its sinks, in order, each at its own pace."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol, runtime_checkable

import msgspec

from postlude.core.audit_chain import AuditRecord, Link
from postlude.errors import AuditBroken, SinkUnavailable
from postlude.ports.audit import AuditSink, AuditTrail

log = logging.getLogger("postlude.audit")
PATIENCE = 30.0
"""Seconds a sink may take for one page."""


@runtime_checkable
class Knowing(Protocol):
    """A sink that can tell how far it is; it is believed before our own note."""

    async def position(self) -> int: ...


class Shipping:
    def __init__(self, trail: AuditTrail, *, patience: float = PATIENCE) -> None:
        self._trail = trail
        self._patience = patience
        self._noted: dict[str, int] = {}
        self._gaps: dict[str, tuple[int, int]] = {}
        """Of sinks that know: after which position nothing can be copied, and up to which."""

    async def ship(self, name: str, sink: AuditSink, limit: int) -> int:
        """One page to one sink; gives how many links it covered. Raises SinkUnavailable when the sink does not take
        it: the next time the same page comes again."""
        after = await self._position(name, sink)
        page = await self._trail.page_of_chain(after, limit)
        if not page:
            await self._check_end(name, after)
            return 0
        last = page[-1][0].position
        if records := _records(name, page):
            await self._hand_over(name, sink, [*await self._before(sink, after), *records])
        else:
            begins, ends = self._gaps.get(name, (after, after))
            self._gaps[name] = (begins if ends == after else after, last)
        self._noted[name] = last
        await self._trail.set_shipped(name, last)
        return len(page)

    async def _position(self, name: str, sink: AuditSink) -> int:
        if isinstance(sink, Knowing):
            try:
                known = await asyncio.wait_for(sink.position(), self._patience)
            except AuditBroken:
                raise
            except Exception as error:
                raise _down(name, error) from error
            # Where every record of a page is missing the sink has nothing to know of.
            begins, ends = self._gaps.get(name, (0, 0))
            return max(known, ends) if known == begins else known
        if name not in self._noted:
            self._noted[name] = await self._trail.shipped(name)
        return self._noted[name]

    async def _before(self, sink: AuditSink, after: int) -> list[AuditRecord]:
        """The last that it should have, for it to compare: in a database that was restored it may be another one."""
        if not after or not isinstance(sink, Knowing):
            return []
        found = await self._trail.page_of_chain(after - 1, 1)
        return [_placed(link, record) for link, record in found if record is not None and link.position == after]

    async def _hand_over(self, name: str, sink: AuditSink, records: list[AuditRecord]) -> None:
        try:
            await asyncio.wait_for(sink.append(records), self._patience)
        except AuditBroken:
            raise
        except Exception as error:
            raise _down(name, error) from error

    async def _check_end(self, name: str, after: int) -> None:
        end = await self._trail.end()
        if after > end.position:
            raise AuditBroken(
                f"the audit sink {name} has position {after}, the chain in the database ends at {end.position}"
            )


def _records(name: str, page: list[tuple[Link, AuditRecord | None]]) -> list[AuditRecord]:
    found: list[AuditRecord] = []
    for link, record in page:
        if record is None:
            # The rest must not stay without a copy because somebody took one away.
            log.error(
                "record %s (position %d) is missing and cannot be copied to %s", link.audit_id, link.position, name
            )
        else:
            found.append(_placed(link, record))
    return found


def _placed(link: Link, record: AuditRecord) -> AuditRecord:
    return msgspec.structs.replace(record, position=link.position, hash=link.hash.hex())


def _down(name: str, error: Exception) -> SinkUnavailable:
    """Of an error that is not ours only the class is told: its text may hold anything."""
    return SinkUnavailable(f"the audit sink {name} takes no records ({type(error).__name__})")
