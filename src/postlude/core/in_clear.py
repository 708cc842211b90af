"""Whom a sealed message speaks of, for those who cannot open it. A field that names a data subject is sealed only with the
whole payload, so that it can be read without any key."""

from __future__ import annotations

from typing import Any

import msgspec

from postlude.core.event import EventSpec
from postlude.core.sealed import accepted_names
from postlude.core.sealing import TOKEN, UNREADABLE


def subjects_in_clear(spec: EventSpec, version: int, payload: bytes) -> tuple[str, ...]:
    """Of a message of the class's own version: others may have other names for the same."""
    if version != spec.version:
        return ()
    try:
        members = msgspec.json.decode(payload, type=dict[str, Any])
    except UNREADABLE:
        return ()
    values = [members.get(name) for field in spec.subjects for name in accepted_names(spec.cls, field)]
    return tuple(dict.fromkeys(str(one) for one in values if _is_id(one)))


def _is_id(value: object) -> bool:
    if isinstance(value, str):
        return not value.startswith(TOKEN)
    return isinstance(value, int) and not isinstance(value, bool)
