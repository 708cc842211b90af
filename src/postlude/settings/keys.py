"""Every key there is, found from the structs: a path, its type and its kind. `*` stands for a name of the user's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from postlude.settings.kinds import Kind, taken_apart

Path = tuple[str, ...]
ANY = "*"
_PLACEHOLDERS = {"databases": "NAME", "brokers": "NAME", "consumers": "NAME", "types": "TYPE", "options": "OPTION"}
_BARE = re.compile(r"[A-Za-z0-9_-]+")

NOT_USED_YET = ("optimistic", "http")
"""Tables whose part of Postlude is still to come: read and checked, and without effect."""


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One setting."""

    path: Path
    wanted: Any
    kind: Kind
    is_optional: bool
    default: Any

    @property
    def name(self) -> str:
        """As the reference writes it: `retry.types.TYPE.max_attempts`."""
        before = ("", *self.path)
        return ".".join(
            _PLACEHOLDERS[table] if part == ANY else part for table, part in zip(before, self.path, strict=False)
        )

    @property
    def is_used(self) -> bool:
        name = ".".join(self.path)
        return name not in NOT_USED_YET and not name.startswith(tuple(f"{table}." for table in NOT_USED_YET))


@cache
def keys_of(table: type[msgspec.Struct], above: Path = ()) -> dict[Path, Key]:
    """In the order of the tables."""
    return {key.path: key for field in msgspec.structs.fields(table) for key in _keys(field, (*above, field.name))}


@cache
def tables_of(settings: type[msgspec.Struct]) -> frozenset[Path]:
    """The paths that hold settings and are none themselves."""
    return frozenset(path[:end] for path in keys_of(settings) for end in range(len(path)))


def pattern_of(path: Path, settings: type[msgspec.Struct]) -> Path | None:
    """The key, or the table, that a path names; `None` when there is no such thing."""
    known = keys_of(settings).keys() | tables_of(settings)
    found: Path = ()
    for part in path:
        found = (*found, part) if (*found, part) in known else (*found, ANY)
        if found not in known:
            return None
    return found


def key_of(path: Path, settings: type[msgspec.Struct]) -> Key | None:
    """The key that a path names."""
    pattern = pattern_of(path, settings)
    return None if pattern is None else keys_of(settings).get(pattern)


def written(path: Path) -> str:
    """As TOML writes it: names with dots are quoted."""
    return ".".join(part if _BARE.fullmatch(part) else f'"{part}"' for part in path)


def spelled(name: str) -> str:
    """How a name is spelled in the environment, in small letters: `order.placed` is `order_placed`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def flat(table: msgspec.Struct, above: Path = ()) -> dict[Path, Any]:
    """What differs from the defaults, by its path."""
    found: dict[Path, Any] = {}
    for field in msgspec.structs.fields(table):
        path, value = (*above, field.name), getattr(table, field.name)
        inner = {(*path, name): one for name, one in value.items()} if isinstance(value, dict) else {path: value}
        for place, one in inner.items():
            if isinstance(one, msgspec.Struct):
                found |= flat(one, place)
            elif isinstance(value, dict) or one != field.default:
                found[place] = one
    return found


def value_at(table: Any, path: Path) -> Any:
    """`None` where there is nothing."""
    for name in path:
        table = table.get(name) if isinstance(table, dict) else getattr(table, name, None)
    return table


def _keys(field: msgspec.structs.FieldInfo, path: Path) -> Iterator[Key]:
    wanted, kind, is_optional = taken_apart(field.type)
    if get_origin(wanted) is dict:
        inner, kind, _ = taken_apart(get_args(wanted)[1])
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            yield from keys_of(inner, (*path, ANY)).values()
        else:
            yield Key(path=(*path, ANY), wanted=inner, kind=kind, is_optional=True, default=None)
    elif isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        yield from keys_of(wanted, path).values()
    else:
        yield Key(path=path, wanted=wanted, kind=kind, is_optional=is_optional, default=field.default)
