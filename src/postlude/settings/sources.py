"""Where settings are read from: file, environment, arguments. What was found is kept with its origin."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import Any, Literal

import msgspec

from postlude.errors import SettingsError
from postlude.settings.keys import Path, flat, spelled, written

PREFIX = "POSTLUDE_"
_NOT_OURS = (f"{PREFIX}TEST_", f"{PREFIX}BENCH_")
_KEYS = f"{PREFIX}KEYS"
"""Keys are read where they are needed, and shown nowhere."""
FILES = {"postlude.toml": ("postlude",), "pyproject.toml": ("tool", "postlude")}
"""The first one that says something counts."""


class Origin(msgspec.Struct, frozen=True):
    """Where a value comes from: `name` is the file, or the variable."""

    kind: Literal["default", "file", "environment", "argument"]
    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def said(self) -> str:
        """For a sentence."""
        known = {"argument": "given as an argument", "default": "the default"}
        return known.get(self.kind) or f"from {self.name}"


DEFAULT = Origin("default", "default")
ARGUMENT = Origin("argument", "argument")


class Given(msgspec.Struct, frozen=True):
    """A value as it stood there, not looked at yet."""

    path: Path
    value: Any
    origin: Origin

    @property
    def name(self) -> str:
        """As the user wrote it."""
        return self.origin.name if self.origin.kind == "environment" else written(self.path)


def from_file(directory: FilePath) -> list[Given]:
    for name, place in FILES.items():
        file = directory / name
        if file.is_file() and (found := _table(file, place)):
            return list(_leaves(found, Origin("file", name)))
    return []


def from_environment(environ: Mapping[str, str]) -> list[Given]:
    """An empty variable says nothing."""
    return [
        Given(tuple(name.removeprefix(PREFIX).lower().split("__")), value, Origin("environment", name))
        for name, value in sorted(environ.items())
        if name.startswith(PREFIX) and not name.startswith(_NOT_OURS) and name != _KEYS and value.strip()
    ]


def from_arguments(arguments: Mapping[str, Any]) -> list[Given]:
    """`None` says nothing."""
    return [given for given in _leaves(arguments, ARGUMENT) if given.value is not None]


def renamed(given: Given, before: list[Given]) -> Given:
    """The environment cannot spell every name: one that was written out elsewhere is meant."""
    path: Path = ()
    for part in given.path:
        known = {one.path[len(path)] for one in before if one.path[: len(path)] == path and len(one.path) > len(path)}
        meant = next((name for name in sorted(known) if name != part and spelled(name) == part), part)
        path = (*path, part if part in known else meant)
    return msgspec.structs.replace(given, path=path)


def _leaves(table: Mapping[str, Any], origin: Origin, above: Path = ()) -> Iterator[Given]:
    for name, value in table.items():
        path = (*above, str(name))
        if isinstance(value, msgspec.Struct):
            yield from (Given((*path, *inner), one, origin) for inner, one in flat(value).items())
            continue
        if isinstance(value, Mapping) and value and not _is_option(path):
            yield from _leaves(value, origin, path)
        else:
            yield Given(path, value, origin)


def _is_option(path: Path) -> bool:
    """A broker's options may be tables: they are its own business."""
    return len(path) > 3 and path[0] == "brokers" and path[2] == "options"


def _table(file: FilePath, place: Path) -> dict[str, Any]:
    try:
        found: Any = tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file.name} is not valid TOML: {error}", hint="Correct the file at that place.") from None
    except OSError as error:
        raise SettingsError(f"{file.name} cannot be read: {error.strerror}", hint="Check its permissions.") from None
    if file.name == "postlude.toml" and (strange := [name for name in found if name != "postlude"]):
        raise SettingsError(
            f"{', '.join(strange)} in {file.name} stands outside of [postlude]",
            hint=f"Write [postlude], and tables of it as [postlude.{strange[0]}].",
        )
    for name in place:
        found = found.get(name, {})
        if not isinstance(found, dict):
            raise SettingsError(f"{name} in {file.name} is not a table", hint=f"Write [{'.'.join(place)}].")
    return dict(found)
