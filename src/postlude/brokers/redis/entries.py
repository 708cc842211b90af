"""Entries of a stream as messages."""

from __future__ import annotations

from collections.abc import Iterable

from postlude.ports.broker import Received

Place = tuple[str, bytes]
"""A stream, and the id of an entry."""
OWN_FIELDS = (b"_id", b"_key", b"_data")
FOREIGN_PAYLOADS = (b"data", b"payload")


def received_of(topic: str, entry: bytes, flat: list[bytes] | None) -> tuple[Place, Received | None]:
    """None where the entry is only a name any more: its content was removed."""
    place = (topic, entry)
    if flat is None:
        return place, None
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    content = _content(fields)
    headers = {_text(name): _text(value) for name, value in fields.items() if name not in (*OWN_FIELDS, content)}
    key = fields.get(b"_key")
    return place, Received(topic, None if key is None else _text(key), fields.get(content, b""), headers, place)


def by_topic(places: Iterable[Place]) -> list[tuple[str, list[bytes]]]:
    found: dict[str, list[bytes]] = {}
    for topic, entry in places:
        found.setdefault(topic, []).append(entry)
    return list(found.items())


def _content(fields: dict[bytes, bytes]) -> bytes:
    """The field with the payload. Of a foreign entry: the one that looks like it, or its only one."""
    found = next((name for name in (b"_data", *FOREIGN_PAYLOADS) if name in fields), b"_data")
    return next(iter(fields)) if found not in fields and len(fields) == 1 else found


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
