"""One id for every event, also for those whose producers number them otherwise."""

from __future__ import annotations

from uuid import UUID, uuid5

import msgspec

from postlude.errors import InvalidId

FOREIGN = UUID("6f7d1f0e-2c1b-5f0a-9d5e-6b1f5a0c7e21")
"""The namespace of ids that are not UUIDs."""


def uuid_of(text: str) -> UUID | None:
    """The UUID that a text spells, if it is one. UUID() would also take underscores, spaces and dashes anywhere, and
    two foreign ids would become one."""
    try:
        return msgspec.convert(text.removeprefix("urn:uuid:"), UUID)
    except msgspec.ValidationError:
        return None


def identity(event_id: UUID | str, source: str | None) -> UUID:
    """The id as we keep it: itself, or made from a foreign one and its source, always the same way."""
    if isinstance(event_id, UUID):
        return event_id
    if (found := uuid_of(event_id)) is not None:
        return found
    if not event_id or source is None:
        raise InvalidId(
            f"{event_id!r} is no UUID, so it is not clear whose it is",
            hint="Give source= too: an id that is no UUID is only known within its source.",
        )
    # The length keeps two pairs apart that would read alike one after the other.
    return uuid5(FOREIGN, f"{len(source)}:{source}{event_id}")
