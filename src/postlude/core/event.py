"""What an event class says about itself: one decorator for msgspec Structs, dataclasses, attrs and pydantic models."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar, dataclass_transform, overload
from uuid import UUID

import msgspec

from postlude.errors import ConfigurationError, InvalidKey, UnknownEvent

C = TypeVar("C", bound=type[Any])
SPEC = "__postlude_event__"
MAX_KEY = 512
MAX_SUBJECT = 255
TEXT = re.compile("[^\\x00\\ud800-\\udfff]*")
"""What databases and brokers can hold: no NUL, nothing that UTF-8 cannot write."""
_NO_SUBJECT = (bool, bytes, bytearray, memoryview, list, tuple, set, frozenset, dict)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,199}")
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+|[0-9]+")


class _EventMeta(msgspec.StructMeta):
    """Makes every subclass of Event frozen and keyword-only, which msgspec does not inherit."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        return super().__new__(mcls, name, bases, namespace, **{"frozen": True, "kw_only": True, **options})


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Event(msgspec.Struct, frozen=True, kw_only=True, metaclass=_EventMeta):
    """A fact that happened. Subclass it, name the fields, decorate with `@event`."""


class EventSpec(msgspec.Struct, frozen=True):
    """What the decorator learned of a class."""

    cls: type[Any]
    type: str
    version: int
    topic: str
    key: str | None
    entity: str | None
    subjects: tuple[str, ...]
    record_only: bool
    on_dead: Literal["block", "skip"] | None
    sealed: bool = False
    """The whole payload is."""

    def key_of(self, instance: object) -> str | None:
        """The ordering key of an instance, as text."""
        return None if self.key is None else as_key(getattr(instance, self.key))

    def entity_of(self, key: str | None) -> str | None:
        """What the event is about, such as `order/o-1`."""
        if self.entity is None:
            return None
        return self.entity if key is None else f"{self.entity}/{key}"

    def subjects_of(self, instance: object) -> tuple[str, ...]:
        """The data subjects an instance speaks of; those that are None or blank are left out."""
        values = (getattr(instance, name) for name in self.subjects)
        known = (value for value in values if value is not None and str(value).strip())
        return tuple(dict.fromkeys(map(subject_text, known)))


@overload
def event(cls: C, /) -> C: ...
@overload
def event(
    *,
    type: str | None = None,
    version: int = 1,
    key: str | None = None,
    topic: str | None = None,
    entity: str | None = None,
    subjects: tuple[str, ...] = (),
    record_only: bool = False,
    on_dead: Literal["block", "skip"] | None = None,
    sealed: bool = False,
) -> Callable[[C], C]: ...
def event(cls: Any = None, /, **options: Any) -> Any:
    """Declare a class to be an event.

    `type` defaults to the class name in dotted snake case, `topic` to `"events." + type`; `key` names the field whose
    value orders the events, `subjects` the fields that name data subjects. `sealed` stores the whole payload encrypted.
    """

    def decorate(target: Any) -> Any:
        setattr(target, SPEC, _spec(target, **options))
        return target

    return decorate if cls is None else decorate(cls)


def spec_of(target: object) -> EventSpec:
    """The spec of an event or an event class."""
    cls = target if isinstance(target, type) else type(target)
    spec = cls.__dict__.get(SPEC)
    if not isinstance(spec, EventSpec):
        raise UnknownEvent(f"{cls.__qualname__} is not an event class")
    return spec


def type_of(name: str) -> str:
    """The default type of a class: `OrderPlaced` is `order.placed`."""
    return ".".join(word.lower() for word in _WORD.findall(name))


def topic_of(event_type: str) -> str:
    """The default topic of a type, for producers and consumers alike."""
    return "events." + event_type


def as_key(value: object) -> str | None:
    """A key as text: strings, integers and UUIDs; None means there is no key."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int, UUID)):
        raise InvalidKey(
            f"a key is text, an integer or a UUID, not {type(value).__name__}",
            hint="Name a field of such a type, or give key= at the append.",
        )
    text = str(value)
    if not text or len(text) > MAX_KEY or not TEXT.fullmatch(text):
        raise InvalidKey(
            f"a key has 1 to {MAX_KEY} characters and no NUL or lone surrogate; this one has {len(text)}",
            hint="Use the id of what must stay in order.",
        )
    return text


def subject_text(subject_id: object) -> str:
    """Opaque and short: an id, not a name. No error says it."""
    if subject_id is None or isinstance(subject_id, _NO_SUBJECT):
        raise ConfigurationError(
            f"a subject id is no {type(subject_id).__name__}", hint="Give text, a number or a UUID."
        )
    text = str(subject_id)
    if not text.strip() or len(text) > MAX_SUBJECT or not TEXT.fullmatch(text):
        raise ConfigurationError(
            f"a subject id has 1 to {MAX_SUBJECT} characters and no NUL or lone surrogate; this one has {len(text)}",
            hint="Give the id of the person in your own tables.",
        )
    return text


def _spec(
    cls: type[Any],
    *,
    type: str | None = None,
    version: int = 1,
    key: str | None = None,
    topic: str | None = None,
    entity: str | None = None,
    subjects: tuple[str, ...] = (),
    record_only: bool = False,
    on_dead: Literal["block", "skip"] | None = None,
    sealed: bool = False,
) -> EventSpec:
    name = type_of(cls.__name__) if type is None else type
    fields = fields_of(cls)
    for field in (*((key,) if key else ()), *subjects):
        if field not in fields:
            raise ConfigurationError(
                f"{cls.__qualname__} has no field {field!r}", hint=f"Its fields are: {', '.join(sorted(fields))}."
            )
    for what, text in (("type", name), ("topic", topic_of(name) if topic is None else topic)):
        if not _NAME.fullmatch(text):
            raise ConfigurationError(
                f"{what} {text!r} of {cls.__qualname__} is not a name",
                hint="Use letters, digits and . _ - : / and begin with a letter or digit; 200 characters at most.",
            )
    if not 1 <= version <= 32767:
        raise ConfigurationError(f"version of {cls.__qualname__} must lie between 1 and 32767, not {version}")
    topic = topic or topic_of(name)
    return EventSpec(cls, name, version, topic, key, entity, tuple(subjects), record_only, on_dead, sealed)


def fields_of(cls: type[Any]) -> frozenset[str]:
    """The names of an event class's fields."""
    for attribute in ("__struct_fields__", "model_fields"):
        if hasattr(cls, attribute):
            return frozenset(getattr(cls, attribute))
    if dataclasses.is_dataclass(cls):
        return frozenset(field.name for field in dataclasses.fields(cls))
    if hasattr(cls, "__attrs_attrs__"):
        return frozenset(field.name for field in cls.__attrs_attrs__)
    raise ConfigurationError(
        f"{cls.__qualname__} cannot be an event",
        hint="Make it a postlude.Event, a dataclass, an attrs class or a pydantic model; @event goes on top.",
    )
