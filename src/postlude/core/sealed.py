"""Which parts of an event class are sealed: the mark, and the shape that finds the marked places in a document."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from postlude.core.event import EventSpec
from postlude.errors import ConfigurationError

ANY = "\udfff"
"""In a path: every item of a list, every member of a mapping. No JSON can have a name like that."""
Path = tuple[str, ...]
_SHAPE = "__postlude_shape__"
_QUALIFIERS = {"Final", "Required", "NotRequired", "ReadOnly"}
"""By name: some have two homes."""
UNRESOLVED = (NameError, AttributeError, TypeError)


class Sealed(msgspec.Struct, frozen=True):
    """Marks a field whose value is stored encrypted: `email: Annotated[str, Sealed()]`."""


class Shape:
    """A place in a document: is it sealed, and what stands below it? Made only as far as documents reach."""

    def __init__(self, annotations: list[Any], *, is_sealed: bool = False, is_unresolved: bool = False) -> None:
        self.is_sealed = is_sealed
        self.is_unresolved = is_unresolved
        """Some names in its annotations mean nothing here, so that nobody can tell."""
        self.names_mark = False
        """Nobody can tell, but the mark stands there."""
        self._named: dict[str, list[Any]] = {}
        self._each: list[Any] = []
        self._children: dict[str, Shape | None] = {}
        for annotation in annotations:
            self._add(annotation)

    def child(self, name: str) -> Shape | None:
        """Of a member or an item; None: nothing is sealed there."""
        place = name if name in self._named else ANY
        if place not in self._children:
            below = Shape(self._named.get(name, self._each))
            self._children[place] = below if below.is_sealed or below._named or below._each else None
        return self._children[place]

    def names(self, name: str) -> bool:
        return name in self._named

    def general(self, path: Path) -> Path:
        """The same place without numbers of items and names of mappings."""
        found: list[str] = []
        here: Shape | None = self
        for name in path:
            found.append(name if here is None or here.names(name) else ANY)
            here = None if here is None else here.child(name)
        return tuple(found)

    def reaches_sealed(self) -> bool:
        """Could anything below be sealed? Types that contain themselves are looked at once."""
        return self.is_sealed or _reach([*self._each, *(one for many in self._named.values() for one in many)])

    def _add(self, annotation: Any) -> None:
        for one in alternatives_of(annotation):
            if isinstance(one, Sealed):
                self.is_sealed = True
                continue
            named, each = inside_of(one)
            for name, inner in named.items():
                self._named.setdefault(name, []).append(inner)
            self._each += each


def shape_of(spec: EventSpec) -> Shape | None:
    """The shape of a class's payload; None: nothing in it is sealed."""
    if _SHAPE not in spec.cls.__dict__:
        setattr(spec.cls, _SHAPE, _shape(spec))
    found: Shape | None = spec.cls.__dict__[_SHAPE]
    return found


def has_sealed_parts(spec: EventSpec) -> bool:
    """False also when nobody can tell: then nothing is sealed, or an append is refused."""
    shape = shape_of(spec)
    return shape is not None and not shape.is_unresolved


def _shape(spec: EventSpec) -> Shape | None:
    if spec.sealed:
        _require_clear(spec)
        return Shape([], is_sealed=True)
    try:
        shape = Shape([spec.cls])
        is_wanted = shape.reaches_sealed()
    except UNRESOLVED:
        shape = Shape([], is_unresolved=True)
        shape.names_mark = _names_mark(spec.cls)
        return shape
    if not is_wanted:
        return None
    _require_clear(spec)
    return shape


def _names_mark(cls: type[Any]) -> bool:
    """In annotations as they are written: some of them may be text."""
    try:
        written = [one for each in cls.__mro__ for one in inspect.get_annotations(each).values()]
    except UNRESOLVED:  # a newer Python evaluates them only now
        return False
    return any(Sealed.__name__ in (one if isinstance(one, str) else repr(one)) for one in written)


def _require_clear(spec: EventSpec) -> None:
    for name in (*((spec.key,) if spec.key else ()), *spec.subjects):
        if is_sealed_field(spec.cls, name):
            raise ConfigurationError(
                f"{spec.cls.__qualname__}.{name} is sealed, and is stored in clear as the event's key or subject",
                hint="Name a field that is not personal: an id of your own.",
            )


def is_sealed_field(cls: type[Any], name: str) -> bool:
    """By its name in Python. False also when nobody can tell."""
    try:
        return Shape([_field(cls, name)]).is_sealed
    except UNRESOLVED:
        return False


def _field(cls: type[Any], name: str) -> Any:
    """By its name in Python, which need not be that on the wire."""
    if issubclass(cls, msgspec.Struct):
        return next(field.type for field in msgspec.structs.fields(cls) if field.name == name)
    if hasattr(cls, "model_fields"):
        return Annotated[(cls.model_fields[name].annotation, None, *cls.model_fields[name].metadata)]
    return _hints(cls, cls).get(name)


def _reach(waiting: list[Any]) -> bool:
    seen: list[Any] = []
    while waiting:
        annotation = waiting.pop()
        if any(annotation is one or annotation == one for one in seen):
            continue
        seen.append(annotation)
        for one in alternatives_of(annotation):
            if isinstance(one, Sealed):
                return True
            named, each = inside_of(one)
            waiting += [*named.values(), *each]
    return False


def alternatives_of(annotation: Any) -> Iterator[Any]:
    """The types that a value may have, and the marks that stand on them."""
    if getattr(get_origin(annotation), "_name", None) in _QUALIFIERS:
        yield from alternatives_of(get_args(annotation)[0])
    elif isinstance(annotation, TypeVar):
        for one in (annotation.__bound__, *annotation.__constraints__):
            yield from () if one is None else alternatives_of(one)
    elif get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        yield from (note for note in notes if isinstance(note, Sealed))
        yield from alternatives_of(inner)
    elif get_origin(annotation) in (Union, types.UnionType):
        for one in get_args(annotation):
            yield from alternatives_of(one)
    elif hasattr(annotation, "__supertype__"):  # NewType
        yield from alternatives_of(annotation.__supertype__)
    elif not isinstance(annotation, type) and hasattr(annotation, "__value__"):  # type X = ...
        yield from alternatives_of(annotation.__value__)
    elif getattr(annotation, "__pydantic_root_model__", False):
        yield from alternatives_of(_of_pydantic(annotation)["root"])
    else:
        yield annotation


def inside_of(annotation: Any) -> tuple[dict[str, Any], list[Any]]:
    """What has a name in a value of that type, and what every other part of it may be."""
    cls = get_origin(annotation) or annotation
    arguments = get_args(annotation)
    if not isinstance(cls, type):
        return {}, []
    if (fields := wire_fields(cls, annotation)) is not None:
        return fields, []
    if issubclass(cls, tuple) and arguments and arguments[-1] is not Ellipsis:
        return {str(place): one for place, one in enumerate(arguments)}, []
    if hasattr(cls, "keys") and len(arguments) == 2:
        if any(isinstance(one, Sealed) for one in alternatives_of(arguments[0])):
            raise ConfigurationError(
                "the names in a mapping cannot be sealed", hint="Seal the whole mapping, or make a list of pairs of it."
            )
        return {}, [arguments[1]]
    return {}, [one for one in arguments if one is not Ellipsis] if hasattr(cls, "__iter__") else []


def wire_fields(cls: type[Any], annotation: Any) -> dict[str, Any] | None:
    """By their names on the wire; None: it is no class with fields."""
    if issubclass(cls, msgspec.Struct):
        return _of_struct(cls, annotation)
    if hasattr(cls, "model_fields"):
        return _of_pydantic(cls)
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
    elif hasattr(cls, "__attrs_attrs__"):
        names = [field.name for field in cls.__attrs_attrs__]
    elif is_typeddict(cls):
        names = list(cls.__annotations__)
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        hints = _hints(cls, annotation)
        return {str(place): hints[name] for place, name in enumerate(cls._fields)}
    else:
        return None
    hints = _hints(cls, annotation)
    return {name: hints[name] for name in names if name in hints}


def _of_struct(cls: type[msgspec.Struct], annotation: Any) -> dict[str, Any]:
    fields = msgspec.structs.fields(annotation)
    config = cls.__struct_config__
    if not config.array_like:
        return {field.encode_name: field.type for field in fields}
    return {str(place): field.type for place, field in enumerate(fields, 0 if config.tag is None else 1)}


def _of_pydantic(cls: Any) -> dict[str, Any]:
    by_alias = cls.model_config.get("serialize_by_alias", False)
    found: dict[str, Any] = {}
    for name, field in cls.model_fields.items():
        wanted = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        found[(by_alias and field.serialization_alias) or name] = wanted
        for other in accepted_names(cls, name):  # as others may write it
            found.setdefault(other, wanted)
    for name, computed in cls.model_computed_fields.items():
        found[(by_alias and computed.alias) or name] = computed.return_type
    return found


def accepted_names(cls: Any, name: str) -> list[str]:
    """What a field may be called on the wire, by its name in Python."""
    if issubclass(cls, msgspec.Struct):
        return [field.encode_name for field in msgspec.structs.fields(cls) if field.name == name]
    if not hasattr(cls, "model_fields"):
        return [name]
    field = cls.model_fields[name]
    others = (field.alias, field.serialization_alias, *_accepted(field.validation_alias))
    return [name, *(other for other in others if other is not None)]


def _accepted(alias: Any) -> list[str]:
    """The names that pydantic takes for a field; of a path, where it begins."""
    if alias is None or isinstance(alias, str):
        return [] if alias is None else [alias]
    if hasattr(alias, "choices"):
        return [name for one in alias.choices for name in _accepted(one)]
    return [str(alias.path[0])]


def _hints(cls: type[Any], annotation: Any) -> dict[str, Any]:
    """With the arguments of a generic class put in."""
    hints = get_type_hints(cls, include_extras=True)
    given = _arguments(cls, annotation)
    return {name: _filled(hint, given) for name, hint in hints.items()} if given else hints


def _arguments(cls: type[Any], annotation: Any) -> dict[Any, Any]:
    """Of the class and of those that it inherits from. What two of them call alike may be either."""
    given = dict(zip(getattr(cls, "__parameters__", ()), get_args(annotation), strict=False))
    for one in (base for each in cls.__mro__ for base in each.__dict__.get("__orig_bases__", ())):
        for name, argument in zip(getattr(get_origin(one), "__parameters__", ()), get_args(one), strict=False):
            meant = _filled(argument, given)
            if meant is not name:
                given[name] = Union[given[name], meant] if name in given else meant  # noqa: UP007 - made at run time
    return given


def _filled(hint: Any, given: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return given.get(hint, hint)
    open_ones = getattr(hint, "__parameters__", ())
    if isinstance(hint, type) or not open_ones:
        return hint
    return hint[tuple(given.get(one, one) for one in open_ones)]
