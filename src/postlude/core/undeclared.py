"""Sealed marks that a declaration does not show: values are written by the class that they have, not by the declared
one, so that a mark on the class of a value in an `Any`, or of a subclass, would not be found in the document."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin

import msgspec

from postlude.core.event import EventSpec
from postlude.core.sealed import UNRESOLVED, Sealed, Shape, alternatives_of, inside_of, shape_of, wire_fields
from postlude.errors import NotEncodable

_LOOK = "__postlude_look__"
_PLAIN = (
    str, int, float, bool, type(None), bytes, bytearray, memoryview, decimal.Decimal, uuid.UUID, enum.Enum,
    dt.date, dt.time, dt.timedelta, msgspec.UnsetType,
)  # fmt: skip
_MANY = (list, tuple, set, frozenset, deque)


class Look(msgspec.Struct, frozen=True):
    """When values of a class have to be looked at: always, or once one of these classes has subclasses."""

    always: bool
    parents: tuple[type[Any], ...] = ()
    is_never: bool = False


NEVER = Look(always=False, is_never=True)


def require_declared(spec: EventSpec, event: object) -> None:
    """Refuse an event in which something marked would be written in clear. It can be encoded: nothing is a circle."""
    look: Look | None = spec.cls.__dict__.get(_LOOK)
    if look is None:
        look = _look(spec)
        setattr(spec.cls, _LOOK, look)
    if look.is_never or not (look.always or any(parent.__subclasses__() for parent in look.parents)):
        return
    waiting: list[tuple[object, Shape | None]] = [(event, shape_of(spec))]
    while waiting:
        value, shape = waiting.pop()
        if type(value) in _PLAIN or isinstance(value, _PLAIN):  # the first is what most are
            continue
        if shape is None or not shape.is_sealed:
            waiting += _parts(spec, value, shape)


# ---------------------------------------------------------------- values


def _parts(spec: EventSpec, value: Any, shape: Shape | None) -> Iterator[tuple[object, Shape | None]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield inner, _child(shape, str(name))
        return
    cls: Any = type(value)
    if getattr(cls, "__pydantic_root_model__", False):
        yield value.root, shape
        return
    marks = _marks(cls)
    for field in marks:
        below = _child(shape, field.place)
        if field.is_sealed and (below is None or not below.is_sealed):
            raise NotEncodable(
                f"{spec.cls.__qualname__} holds a {cls.__qualname__} where it declares something else, and "
                f"{cls.__qualname__}.{field.name} is sealed: it would be stored in clear",
                hint="Declare the field with that class, alone or in a union, or seal it: Annotated[..., Sealed()].",
            )
        if not field.is_computed:
            yield getattr(value, field.name, None), below
    for name, inner in (getattr(value, "__pydantic_extra__", None) or {}).items():
        yield inner, _child(shape, name)
    if not marks and isinstance(value, _MANY):
        for place, inner in enumerate(value):
            yield inner, _child(shape, str(place))


def _child(shape: Shape | None, name: str) -> Shape | None:
    return None if shape is None else shape.child(name)


class _Field(msgspec.Struct, frozen=True):
    name: str
    place: str
    """In the document."""
    is_sealed: bool
    is_computed: bool = False


@lru_cache(maxsize=4096)
def _marks(cls: Any) -> tuple[_Field, ...]:
    """Of a class whose annotations mean nothing here nobody can tell."""
    try:
        fields = wire_fields(cls, cls)
        if fields is None:
            return ()
        names = _names(cls, fields)
        computed = getattr(cls, "model_computed_fields", {})
        return tuple(
            _Field(name, place, _is_marked(fields[place]), name in computed)
            for name, place in names.items()
            if place in fields
        )
    except UNRESOLVED:
        return ()


def _names(cls: Any, fields: dict[str, Any]) -> dict[str, str]:
    """From names in Python to places in the document."""
    if issubclass(cls, msgspec.Struct) or (issubclass(cls, tuple) and hasattr(cls, "_fields")):
        names = cls.__struct_fields__ if issubclass(cls, msgspec.Struct) else cls._fields
        return dict(zip(names, fields, strict=True))
    if hasattr(cls, "model_fields"):
        return {name: name for name in (*cls.model_fields, *cls.model_computed_fields)}
    return {name: name for name in fields}


# ---------------------------------------------------------------- declarations


def _look(spec: EventSpec) -> Look:
    shape = shape_of(spec)
    if shape is not None and (shape.is_sealed or shape.is_unresolved):
        return NEVER
    try:
        return _look_at(spec.cls)
    except UNRESOLVED:  # somewhere below what is sealed
        return Look(always=True)


def _look_at(cls: type[Any]) -> Look:
    if _takes_more(cls):
        return Look(always=True)
    parents: dict[type[Any], None] = {}
    seen: list[Any] = []
    waiting: list[Any] = [*(wire_fields(cls, cls) or {}).values()]
    while waiting:
        annotation = waiting.pop()
        if _is_marked(annotation) or any(annotation is one or annotation == one for one in seen):
            continue
        seen.append(annotation)
        alternatives = list(alternatives_of(annotation))
        if not alternatives or any(map(_holds_anything, alternatives)):
            return Look(always=True)
        for one in alternatives:
            inner = get_origin(one) or one
            if isinstance(inner, type) and wire_fields(inner, one) is not None:
                parents[inner] = None
            named, each = inside_of(one)
            waiting += [*named.values(), *each]
    return Look(always=False, parents=tuple(parents)) if parents else NEVER


def _is_marked(annotation: Any) -> bool:
    return any(isinstance(one, Sealed) for one in alternatives_of(annotation))


def _holds_anything(one: Any) -> bool:
    """Is it a type that says nothing of the class of its values?"""
    cls = get_origin(one) or one
    if cls is Literal or one is None:
        return False
    if not isinstance(cls, type) or cls is Any:
        return True
    if issubclass(cls, _PLAIN) or (cls is not object and get_args(one)):
        return False
    return wire_fields(cls, one) is None or _takes_more(cls)


def _takes_more(cls: Any) -> bool:
    """A pydantic model may take what it does not declare."""
    return bool(getattr(cls, "model_config", None)) and cls.model_config.get("extra") == "allow"
