"""What an instance keeps of states, triggers and results: JSON values, and the way back to their classes."""

from __future__ import annotations

from typing import Any

import msgspec

from postlude.core.codec import decode, encode
from postlude.core.saga.instance import Instance, Phase
from postlude.errors import ConfigurationError
from postlude.saga.compiled import Compiled
from postlude.saga.plain import Saga
from postlude.saga.typed import SagaDef, arguments_of


def kept(value: object) -> Any:
    """Raises NotEncodable."""
    return msgspec.json.decode(encode(value))


def restored(cls: Any, value: Any) -> Any:
    """Raises ValueError or msgspec.ValidationError when the class has changed too much since."""
    return decode(cls, msgspec.json.encode(value))


def typed(made: Compiled) -> SagaDef[Any, Any]:
    """For what only typed sagas have."""
    if isinstance(made.source, SagaDef):
        return made.source
    raise ConfigurationError(f"saga {made.definition.name} has functions, and no events")


def state_of(saga: Saga[Any], instance: Instance) -> Any:
    return restored(saga.state, instance.state)


def trigger_of(saga: SagaDef[Any, Any], instance: Instance) -> Any:
    return restored(arguments_of(type(saga))[0], instance.state)


def event_of(saga: SagaDef[Any, Any], instance: Instance, step: int) -> Any:
    """What the step brought; None: it brought nothing, or nobody knows."""
    result, success = instance.steps[step].result, saga.steps[step].success
    return None if result is None else restored(success, result)


def known_before(made: Compiled, instance: Instance, step: int) -> list[Any]:
    """The trigger and what the steps before it brought, in order."""
    saga = typed(made)
    stage = made.definition.stage_of[step]
    earlier = [
        event_of(saga, instance, index)
        for index, state in enumerate(instance.steps)
        if made.definition.stage_of[index] < stage and state.phase is Phase.done
    ]
    return [trigger_of(saga, instance), *(event for event in earlier if event is not None)]


def known_of(made: Compiled, instance: Instance, step: int) -> list[Any]:
    """The trigger and what the step itself brought."""
    saga = typed(made)
    own = event_of(saga, instance, step)
    return [trigger_of(saga, instance), *([] if own is None else [own])]
