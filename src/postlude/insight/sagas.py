"""Sagas: which there are, where each stands, what code could continue them, and which of them stand still."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from postlude.core.saga.definition import Definition
from postlude.core.saga.explain import Explanation
from postlude.core.saga.instance import Instance, Phase, SagaStatus
from postlude.core.saga.plan import plan
from postlude.errors import ConfigurationError, NaiveDatetime, SagaNotFound
from postlude.insight.insight import MAX_PAGE
from postlude.ports.sagas import SagaFilter, Sagas

BATCH = 500

Known = Callable[[str], Definition | None]
"""What the code at hand knows of a saga, by its name."""
_AHEAD_OF_UNDO = (Phase.done, Phase.unknown, Phase.undoing, Phase.undo_failed, Phase.undo_gave_up)


class SagaRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a saga, as lists show it."""

    id: UUID
    name: str
    process_id: str
    generation: int
    status: SagaStatus
    step: str | None
    """What it is at."""
    version: int
    error: str | None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None


class SagaPage(msgspec.Struct, frozen=True):
    """Some of a list; give `after` back to get what follows. None: that was all."""

    items: list[SagaRow]
    after: str | None = None


class PlanLine(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has not ended, set against the code at hand."""

    name: str
    id: UUID
    process_id: str
    status: SagaStatus
    continues: bool
    why: str


# `list` is a method of SagaInsight, so its types are named here.
Plans: TypeAlias = list[PlanLine]
Instances: TypeAlias = list[Instance]
Names: TypeAlias = list[str]


class SagaInsight:
    """Of one database. Nothing is locked, and nothing but a database is needed for most of it."""

    def __init__(self, sagas: Sagas, known: Known) -> None:
        self._sagas = sagas
        self._known = known

    async def list(self, which: SagaFilter, *, limit: int = 100, after: str | None = None) -> SagaPage:
        """Newest first."""
        _check(which, limit)
        place = None if after is None else _place(after)
        rows = await self._sagas.list(which, after=place, limit=limit)
        items = [_row(row) for row in rows]
        return SagaPage(items, f"{items[-1].created_at.isoformat()}/{items[-1].id}" if len(items) == limit else None)

    async def get(self, saga_id: UUID) -> Instance:
        found = await self._sagas.get(saga_id)
        if found is None:
            raise SagaNotFound(f"there is no saga {saga_id}")
        return found

    async def counts(self) -> dict[str, dict[str, int]]:
        """By name and status."""
        counts: dict[str, dict[str, int]] = {}
        for row in await self._sagas.counts():
            counts.setdefault(row["name"], {})[row["status"]] = row["count"]
        return dict(sorted(counts.items()))

    async def plan(self) -> Plans:
        """Every run that has not ended: does the code at hand continue it, and if not, why?"""
        lines: Plans = []
        for name in await self.live_names():
            after = ""
            while page := await self._sagas.live(name, after=after, limit=BATCH):
                lines += [_line(name, one) for one in plan(self._known(name), page)]
                after = page[-1].process_id
        return lines

    async def live_names(self) -> Names:
        """The sagas of which a run has not ended."""
        counts = await self.counts()
        return [name for name, found in counts.items() if any(not SagaStatus(status).is_end for status in found)]

    async def quiet(self, older_than: float) -> Instances:
        """Those with nothing on its way that could move them on; participants or signals may."""
        return [*await self._sagas.stalled(older_than=older_than, limit=BATCH)]


def stands(instance: Instance) -> Explanation:
    """Where an instance stands, for whoever has not its code: by the phases of its steps alone."""
    if instance.status.is_end:
        return Explanation(None, (), ())
    busy = [
        state for state in instance.steps if state.phase not in (Phase.ahead, Phase.done, Phase.dropped, Phase.undone)
    ]
    if instance.turned:
        busy = [state for state in busy if state.phase is not Phase.failed]
        left = tuple(state.name for state in reversed(instance.steps) if state.phase in _AHEAD_OF_UNDO)
    else:
        left = tuple(state.name for state in instance.steps if state.phase is not Phase.done)
    waits = [*_held(instance), *(_words(state.name, state.phase, state.code) for state in busy)]
    at = next((state.name for state in busy), left[0] if left else None)
    return Explanation(at, tuple(waits), left)


def _held(instance: Instance) -> Iterator[str]:
    if instance.held is not None:
        yield f"an operator: a signal died ({instance.held})"


def _words(name: str, phase: Phase, code: str | None) -> str:
    return f"{name}: {phase.replace('_', ' ')}" + (f" ({code})" if code else "")


def _check(which: SagaFilter, limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise ConfigurationError(f"limit must lie between 1 and {MAX_PAGE}, not {limit}")
    if which.status is not None and which.status not in set(SagaStatus):
        raise ConfigurationError(
            f"there is no status {which.status!r} of a saga", hint=f"One of: {', '.join(SagaStatus)}."
        )
    for name in ("since", "until"):
        moment: datetime | None = getattr(which, name)
        if moment is not None and moment.tzinfo is None:
            raise NaiveDatetime(f"{name} {moment.isoformat()} has no time zone")


def _place(after: str) -> tuple[datetime, UUID]:
    moment, _, saga_id = after.partition("/")
    try:
        place = datetime.fromisoformat(moment), UUID(saga_id)
    except ValueError as error:
        hint = "Give back the `after` of the page before, with the same filters."
        raise ConfigurationError(f"{after!r} is not where a page of this list ended", hint=hint) from error
    if place[0].tzinfo is None:
        raise NaiveDatetime(f"after {after} has no time zone")
    return place


def _row(row: dict[str, Any]) -> SagaRow:
    names = SagaRow.__struct_fields__
    return SagaRow(**{**{name: row[name] for name in names}, "status": SagaStatus(row["status"])})


def _line(name: str, one: Any) -> PlanLine:
    return PlanLine(
        name=name,
        id=one.instance_id,
        process_id=one.process_id,
        status=one.status,
        continues=one.continues,
        why=one.why,
    )


def names_of(lines: Sequence[PlanLine]) -> str:
    """`place_order (3), refund (1)`."""
    counts: dict[str, int] = {}
    for line in lines:
        counts[line.name] = counts.get(line.name, 0) + 1
    return ", ".join(f"{name} ({count:,})" for name, count in sorted(counts.items()))
