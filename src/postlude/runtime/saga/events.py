"""Events that reach a saga: triggers that start a run, and what a run waits for."""

from __future__ import annotations

import logging
from typing import Any

from postlude.core.delivery import StoredEvent
from postlude.core.event import EventSpec, spec_of
from postlude.core.saga.decide import decide
from postlude.core.saga.instance import Instance, new_instance, next_generation
from postlude.core.saga.signal import EventArrived, Started
from postlude.core.upcast import decode_event
from postlude.ports.destination import Entry
from postlude.runtime.faults import Taken
from postlude.runtime.saga.steps import IDEMPOTENCY_KEY
from postlude.saga.applying import Applied, Applying
from postlude.saga.compiled import Compiled
from postlude.saga.messages import TYPE, derived
from postlude.saga.registry import awaited_by
from postlude.saga.typed import SagaDef, arguments_of
from postlude.saga.values import kept, typed

log = logging.getLogger("postlude.saga")


class Arrivals:
    """Of one saga."""

    def __init__(self, made: Compiled, applying: Applying) -> None:
        self._made = made
        self._applying = applying
        self._trigger: EventSpec | None = None
        self._awaited: dict[str, EventSpec] = {}
        if isinstance(made.source, SagaDef):
            self._trigger = spec_of(arguments_of(type(made.source))[0])
            self._awaited = {spec.type: spec for spec in map(spec_of, awaited_by(made.source))}

    def specs(self) -> list[EventSpec]:
        """Of everything that reaches it."""
        return [*self._awaited.values(), *(() if self._trigger is None else (self._trigger,))]

    def read(self, stored: StoredEvent) -> object | None:
        """The event; None: no step of this code waits for its type. Raises whatever an upcast raises."""
        known = dict(self._awaited)
        if self._trigger is not None:
            known[self._trigger.type] = self._trigger
        spec = known.get(stored.type)
        return None if spec is None else decode_event(spec, stored.version, stored.payload)

    async def take(self, tx: Any, entry: Entry, event: object | None) -> Applied | None:
        """Start a run, or tell the one it is for. None: there is none."""
        stored = entry.event
        if event is None:
            instance = await self.meant(tx, entry)
            return None if instance is None else await self._tell(tx, instance, stored, None)
        if self._trigger is not None and stored.type == self._trigger.type:
            return await self._start(tx, stored, event)
        instance = await self._whose(tx, stored, self._source.process_id(event))
        if instance is None:
            log.info("saga %s: %s is for no run of it", self._made.definition.name, stored.event_id)
            return None
        return await self._tell(tx, instance, stored, event)

    async def meant(self, tx: Any, entry: Entry) -> Instance | None:
        """The run that a delivery is for, if that can be told without reading the event."""
        scripts = self._applying.scripts
        if entry.event.type == TYPE or entry.delivery.key is None:
            saga_id = entry.event.saga_id
            return None if saga_id is None else await self._applying.play(tx, scripts.get(saga_id, lock=True))
        return await self._applying.play(tx, scripts.find(self._made.definition.name, entry.delivery.key, lock=True))

    @property
    def _source(self) -> SagaDef[Any, Any]:
        return typed(self._made)

    async def _start(self, tx: Any, stored: StoredEvent, trigger: object) -> Applied | None:
        applying, definition, source = self._applying, self._made.definition, self._source
        process_id = source.serialize_id(source.extract_id(trigger))
        previous = await applying.play(tx, applying.scripts.find(definition.name, process_id, lock=True))
        saga_id = derived(stored.event_id, definition.name)  # the same trigger again is the same run
        generation = next_generation(previous)
        if previous is not None and (generation is None or previous.id == saga_id):
            is_awaited = stored.type in self._awaited and previous.id != saga_id
            if is_awaited:
                return await self._tell(tx, previous, stored, trigger)
            return await applying.signal(tx, self._made, previous, Started())
        now = applying.times.now()
        fresh = new_instance(definition, saga_id, process_id, generation or 1, kept(trigger), now)
        decision = decide(definition, fresh, Started(), now)
        applied = await applying.apply(tx, self._made, decision)
        if applied is not None:
            return applied
        earlier = await applying.play(tx, applying.scripts.get(saga_id, lock=True))
        if earlier is None:
            raise Taken  # another run of the process began meanwhile: look again
        return await applying.signal(tx, self._made, earlier, Started())

    async def _whose(self, tx: Any, stored: StoredEvent, process_id: str) -> Instance | None:
        """What was appended in a run's name is for that run, if it is about its process; else for the newest."""
        applying, name = self._applying, self._made.definition.name
        if stored.saga_id is not None:
            found = await applying.play(tx, applying.scripts.get(stored.saga_id, lock=False))
            if found is not None and (found.name, found.process_id) == (name, process_id):
                return found
        return await applying.play(tx, applying.scripts.find(name, process_id, lock=False))

    async def _tell(self, tx: Any, instance: Instance, stored: StoredEvent, event: object | None) -> Applied | None:
        arrived = EventArrived(stored.event_id, stored.type, kept(event), stored.headers.get(IDEMPOTENCY_KEY))
        return await self._applying.signal(tx, self._made, instance, arrived)
