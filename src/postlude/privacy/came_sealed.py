"""Messages that came sealed: does the header fit, and whom does the message speak of?"""

from __future__ import annotations

from msgspec.structs import replace

from postlude.core.event import EventSpec
from postlude.core.in_clear import subjects_in_clear
from postlude.core.sealed import shape_of
from postlude.core.sealing import Seal, is_kept
from postlude.core.upcast import decode_event
from postlude.errors import CannotOpen
from postlude.ports.append import Prepared


def fitting(one: Prepared, spec: EventSpec, said: str) -> Seal | None:
    """What the header of a message says; None: it is not true of the payload, or says less than the class here."""
    try:
        seal = Seal.read(said)
    except CannotOpen:
        return None
    shape = shape_of(spec) if one.version == spec.version else None
    return seal if seal.within is None and is_kept(one.payload, seal.paths, shape) else None


def about(one: Prepared) -> Prepared:
    """With the data subjects that it names in clear, for whoever redacts one of them here and has no key."""
    if one.subjects or one.seals is None:
        return one
    return replace(one, subjects=subjects_in_clear(one.seals, one.version, one.payload))


def subjects_in(one: Prepared, plain: bytes) -> tuple[str, ...]:
    if one.seals is None or not one.seals.subjects:
        return ()
    try:
        return one.seals.subjects_of(decode_event(one.seals, one.version, plain))
    except Exception:  # noqa: BLE001 - its handler meets the same error, and makes a dead letter of it
        return ()
