"""Old versions of an event: functions of the user's, each from one version to the next, and the chain of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from postlude.core.codec import decode, encode
from postlude.core.event import EventSpec, spec_of
from postlude.errors import ConfigurationError, ContractViolation, NewerVersion, NotEncodable, UnknownEvent

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
U = TypeVar("U", bound=Callable[[dict[str, Any]], dict[str, Any]])
UPCASTS = "__postlude_upcasts__"


def upcast(event: type[Any], version: int) -> Callable[[U], U]:
    """Declare a function that turns a payload of that version into one of the next.

    It gets the payload as it was stored, a dict of JSON values, and returns a dict. From the class's own version on
    the class reads it.
    """
    spec = _event_of(event)
    name = spec.cls.__name__
    if version not in range(1, spec.version):
        raise ConfigurationError(
            f"{name} has version {spec.version}: there is nothing to turn version {version!r} into",
            hint="Upcasts are for the versions from 1 to the one before the class's; raise version= of @event first.",
        )

    def decorate(function: U) -> U:
        _require_plain(function, f"upcast({name}, {version})")
        known = dict(upcasts_of(spec))
        if version in known:
            raise ConfigurationError(
                f"there are two upcasts of {name} from version {version}: {_at(known[version])} and {_at(function)}",
                hint="A version has one way to the next: remove one of them.",
            )
        setattr(spec.cls, UPCASTS, {**known, version: function})
        return function

    return decorate


def upcasts_of(spec: EventSpec) -> Mapping[int, Upcast]:
    """By the version that each takes. They belong to the class itself, not to its subclasses."""
    found: Mapping[int, Upcast] = spec.cls.__dict__.get(UPCASTS, {})
    return found


def missing(spec: EventSpec) -> list[int]:
    """The versions below the class's that no upcast takes."""
    known = upcasts_of(spec)
    return [version for version in range(1, spec.version) if version not in known]


def require_upcasts(specs: Iterable[EventSpec]) -> None:
    """Refuse classes that could not read an older version of their events; all of them at once."""
    lacking = {spec.cls: (spec, found) for spec in specs if (found := missing(spec))}
    if lacking:
        raise ConfigurationError(
            "; ".join(_lack(spec, versions) for spec, versions in lacking.values()),
            hint="Write " + ", ".join(_decorator(spec, found[0]) for spec, found in lacking.values())
            + " above a function from the old payload, a dict, to the next version's.",
        )  # fmt: skip


def decode_event(spec: EventSpec, version: int, payload: bytes) -> Any:
    """The event, whatever version it was stored in.

    Raises NewerVersion; ValueError or msgspec.MsgspecError when the payload does not fit; and whatever an upcast raises.
    """
    if version == spec.version:
        return decode(spec.cls, payload)
    if version > spec.version:
        raise NewerVersion(
            f"an event {spec.type} of version {version}: {spec.cls.__name__} here knows none above {spec.version}"
        )
    if version < 1:
        raise ValueError(f"versions begin at 1, and this event {spec.type} says {version}")
    current = msgspec.json.decode(payload, type=dict[str, Any])
    known, last = upcasts_of(spec), None
    for step in range(version, spec.version):
        if (last := known.get(step)) is None:
            raise ConfigurationError(_lack(spec, [step]), hint=f"Write {_decorator(spec, step)}.")
        current = last(current)
        if not isinstance(current, dict):
            raise ContractViolation(
                f"the upcast of {spec.cls.__name__} from version {step} returned {type(current).__name__}, not a dict",
                hint="Return the payload of the next version.",
                at=_at(last),
            )
    try:
        written = encode(current)
    except NotEncodable as error:
        raise ContractViolation(str(error.args[0]), hint=error.hint, at=last and _at(last)) from error
    return decode(spec.cls, written)


def _event_of(event: object) -> EventSpec:
    try:
        if isinstance(event, type):
            return spec_of(event)
    except UnknownEvent:
        pass
    raise ConfigurationError(
        f"upcast() is for event classes, and {getattr(event, '__qualname__', repr(event))} is none",
        hint="Give the class that is decorated with @event, and the version that the function takes.",
    )


def _require_plain(function: Any, what: str) -> None:
    hint = "Write def v1(old: dict) -> dict."
    if not callable(function) or inspect.iscoroutinefunction(function):
        kind = "a coroutine function" if callable(function) else f"a {type(function).__name__}"
        raise ConfigurationError(f"{what} needs a plain function, not {kind}", hint=hint)
    try:
        inspect.signature(function).bind({})
    except TypeError as error:
        raise ConfigurationError(f"{what}: {_at(function)} cannot be called with one argument", hint=hint) from error
    except ValueError:  # some builtins do not say what they take
        return


def _lack(spec: EventSpec, versions: list[int]) -> str:
    what = f"version {versions[0]}" if len(versions) == 1 else f"versions {', '.join(map(str, versions))}"
    return f"{spec.cls.__name__} ({spec.type}) has version {spec.version} and no upcast from {what}"


def _decorator(spec: EventSpec, version: int) -> str:
    return f"@upcast({spec.cls.__name__}, {version})"


def _at(function: Any) -> str:
    """As the place of an error is written: `module:function:line`."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    name = getattr(function, "__name__", type(function).__name__)
    return f"{getattr(function, '__module__', '?')}:{name}" + ("" if code is None else f":{code.co_firstlineno}")
