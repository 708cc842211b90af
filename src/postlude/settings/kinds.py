"""What a single setting may be: read from what was given, refused with a sentence, shown without secrets."""

from __future__ import annotations

import math
import re
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from postlude.secrecy import MASK, shown_url, without_secrets
from postlude.settings.units import Unit

_URL = re.compile(r"[a-z][a-z0-9+.-]*://.*", re.IGNORECASE | re.DOTALL)
_ADDRESS = re.compile(r"(?:\[[0-9a-f:.]+\]|[\w.-]*):(\d{1,5})", re.IGNORECASE)


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds, unit and form, beside the type."""

    unit: Unit | None = None
    above: float | None = None
    least: float | None = None
    most: float | None = None
    form: Literal["text", "database", "broker", "address", "token"] = "text"


PLAIN = Kind()
_WORDS = {
    "text": "text, and not empty",
    "database": "a URL such as sqlite:///shop.db or postgresql://user@host/shop",
    "broker": "a URL such as memory:// or kafka://host:9092",
    "address": 'an address such as ":8000" or "127.0.0.1:8000"',
    "token": "text, and not empty",
}


def taken_apart(annotation: Any) -> tuple[Any, Kind, bool]:
    """The type, its kind, and whether it may be left unsaid, of the annotation of a field."""
    is_optional = False
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (part for part in get_args(annotation) if part is not type(None))
        is_optional = True
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        return annotation, next(note for note in notes if isinstance(note, Kind)), is_optional
    return annotation, PLAIN, is_optional


def read(given: Any, wanted: Any, kind: Kind) -> Any:
    """The value, from what stood in a file, the environment or an argument. `ValueError`: it cannot be that."""
    if wanted is Any:
        return given
    if kind.unit is not None and isinstance(given, str):
        given = kind.unit.read(given)
    value = msgspec.convert(given, wanted, strict=False)  # its ValidationError is a ValueError
    if isinstance(value, str) and get_origin(wanted) is not Literal:
        _check_text(value, kind)
    elif isinstance(value, int | float) and not _is_within(value, kind):
        raise ValueError("out of bounds")
    return value


def wants(wanted: Any, kind: Kind) -> str:
    """What the setting may be, to follow `must be`."""
    if wanted is bool:
        return "true or false"
    if get_origin(wanted) is Literal:
        return "one of " + ", ".join(f'"{choice}"' for choice in get_args(wanted))
    if wanted is str:
        return _WORDS[kind.form]
    number = "a whole number" if wanted is int else "a number"
    return (kind.unit.what if kind.unit is not None else number) + _bounds(kind)


def shown(value: Any, kind: Kind) -> Any:
    """The value as it may be shown: texts without their secrets, all else as it is."""
    if kind.form == "token" and value is not None:
        return MASK
    if not isinstance(value, str):
        return value
    return shown_url(value) if kind.form in ("database", "broker") else without_secrets(value)


def readable(value: Any, kind: Kind) -> str:
    """For people: `15s`, `1MiB`."""
    if isinstance(value, bool) or value is None:
        return "-" if value is None else str(value).lower()
    if isinstance(value, int | float):
        return kind.unit.show(value) if kind.unit is not None else f"{value:.12g}"
    return str(shown(value, kind))


def _check_text(text: str, kind: Kind) -> None:
    if not text.strip() or "\0" in text:
        raise ValueError("empty")
    if kind.form in ("database", "broker") and _URL.fullmatch(text) is None:
        raise ValueError("not a URL")
    if kind.form == "address":
        found = _ADDRESS.fullmatch(text)
        if found is None or not 0 < int(found[1]) < 65_536:
            raise ValueError("not an address")


def _is_within(number: float, kind: Kind) -> bool:
    return (
        math.isfinite(number)
        and (kind.above is None or number > kind.above)
        and (kind.least is None or number >= kind.least)
        and (kind.most is None or number <= kind.most)
    )


def _bounds(kind: Kind) -> str:
    said = [
        f"{words} {readable(bound, kind)}"
        for words, bound in (("more than", kind.above), ("at least", kind.least), ("at most", kind.most))
        if bound is not None
    ]
    return ", " + " and ".join(said) if said else ""
