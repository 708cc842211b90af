"""Sagas that nothing on its way could move on: found and explained, for only an operator knows what they need."""

from __future__ import annotations

import logging
from uuid import UUID

from postlude.core.saga.definition import Definition, Way
from postlude.core.saga.explain import explain
from postlude.core.saga.instance import Instance, Phase
from postlude.core.saga.plan import fit, misfit
from postlude.ports.sagas import Sagas
from postlude.ports.upkeep import Upkeep
from postlude.runtime.duties.duty import Duty, Round
from postlude.saga.registry import Registry

log = logging.getLogger("postlude.duties")
BATCH = 500


class Stalls(Duty):
    """`found` are those of the last turn, with why."""

    title = "stalls"
    first_after = 15.0

    def __init__(self, upkeep: Upkeep, sagas: Sagas, registry: Registry, *, older_than: float, interval: float) -> None:
        super().__init__(upkeep, interval)
        self._sagas = sagas
        self._registry = registry
        self._older_than = older_than
        self._logged: dict[UUID, int] = {}
        self.found: dict[UUID, str] = {}

    async def round(self) -> Round:
        stalled = await self._sagas.stalled(older_than=self._older_than, limit=BATCH)
        self.found = {one.id: why for one in stalled if (why := self._why(one)) is not None}
        for one in stalled:
            if one.id in self.found and self._logged.get(one.id) != one.version:
                log.warning("saga %s %r (%s) is stalled: %s", one.name, one.process_id, one.id, self.found[one.id])
        self._logged = {one.id: one.version for one in stalled if one.id in self.found}
        return Round(len(self.found))

    def _why(self, instance: Instance) -> str | None:
        """None: it waits for somebody else, as it should."""
        made = self._registry.named(instance.name)
        if made is None:
            return "no code of this app knows it"
        reason = misfit(made.definition, instance)
        if reason is not None:
            return f"this code cannot continue it: {reason}"
        return stall(made.definition, fit(made.definition, instance))


def stall(definition: Definition, instance: Instance) -> str | None:
    """Why an instance that has nothing on its way stands still; None: a participant or a signal moves it on."""
    waits = "; ".join(explain(definition, instance).waits_for) or "it waits for nothing"
    ours = [
        state.name
        for step, state in zip(definition.steps, instance.steps, strict=True)
        if (state.phase is Phase.running and step.way is Way.handler)
        or (state.phase is Phase.undoing and step.undo is Way.handler)
    ]
    if ours:
        return f"the work of {', '.join(ours)} is not on its way any more, a dead letter perhaps ({waits}): retry it"
    is_awaited = any(state.phase in (Phase.running, Phase.undoing) for state in instance.steps)
    return None if is_awaited else f"nothing of it is under way ({waits})"
