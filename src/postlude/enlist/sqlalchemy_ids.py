"""Ids of subjects come as text; the anchor column knows what they are. No error repeats an id."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import UUID

from postlude.enlist.sqlalchemy_schema import kind_of
from postlude.errors import ConfigurationError, ErasureRefused

if TYPE_CHECKING:
    import sqlalchemy

KINDS = {"int": "a whole number", "UUID": "a UUID", "str": "text"}
_WHOLE = re.compile(r"-?[0-9]{1,19}")


def kind_of_ids(anchor: sqlalchemy.Column[Any]) -> str:
    kind = kind_of(anchor)
    if kind not in KINDS:
        raise ConfigurationError(
            f"the anchor {anchor.table}.{anchor.name} holds {kind or 'values of an unknown type'}, which is no type of ids",
            hint="Anchor the map at a column of integers, UUIDs or text.",
        )
    return kind


def converted(subject_id: str, anchor: sqlalchemy.Column[Any]) -> int | str | UUID:
    kind = kind_of_ids(anchor)
    if not isinstance(subject_id, str):
        raise ErasureRefused("the subject's id is no text", hint="Give str(id).")
    value = _read(subject_id, kind)
    if value is None or str(value) != subject_id:
        # Two ways to write one id would be two pseudonyms.
        raise ErasureRefused(
            f"the subject's id does not fit {anchor.table}.{anchor.name}, which holds {KINDS[kind]}",
            hint="Give str() of what stands in the anchor column.",
        )
    return value


def _read(text: str, kind: str) -> int | str | UUID | None:
    if kind == "str":
        return text if text and "\0" not in text else None
    if kind == "int":
        number = int(text) if _WHOLE.fullmatch(text) else None
        return number if number is not None and -(2**63) <= number < 2**63 else None
    try:
        return UUID(text)
    except ValueError:
        return None
