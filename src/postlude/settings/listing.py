"""What is in force, and where each value comes from."""

from __future__ import annotations

from typing import Any

import msgspec

from postlude.settings.keys import ANY, Key, Path, flat, keys_of, pattern_of, value_at, written
from postlude.settings.kinds import readable, shown
from postlude.settings.settings import Settings
from postlude.settings.sources import Origin
from postlude.settings.tables import option_shown


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: `value` for programs, `text` for people, both without secrets."""

    key: str
    value: Any
    text: str
    origin: Origin
    is_changed: bool
    is_used: bool


def listed(settings: Settings) -> list[Row]:
    """Every key in the order of the reference; those with names of the user's only as far as they are said."""
    keys = keys_of(Settings)
    named: dict[Path, list[Path]] = {}
    for path in flat(settings):
        named.setdefault(pattern_of(path, Settings) or (), []).append(path)
    return [
        _row(settings, key, path)
        for pattern, key in keys.items()
        for path in (sorted(named.get(pattern, ())) if ANY in pattern else [pattern])
    ]


def _row(settings: Settings, key: Key, path: Path) -> Row:
    value = value_at(settings, path)
    is_option = "options" in path
    return Row(
        key=written(path),
        value=option_shown(path[-1], value) if is_option else shown(value, key.kind),
        text=str(option_shown(path[-1], value)) if is_option else readable(value, key.kind),
        origin=settings.origin(path),
        is_changed=value != key.default,
        is_used=key.is_used,
    )
