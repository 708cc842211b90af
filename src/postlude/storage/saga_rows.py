"""Instances to columns and back, for every database."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from postlude.core.event import as_key
from postlude.core.saga.instance import Instance, Phase
from postlude.errors import NotEncodable
from postlude.ports.sagas import SagaAudit
from postlude.ports.trace import trace_id

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Instance).decode
_UNSTORABLE = re.compile("[\\x00\\ud800-\\udfff]")
_UNDO = frozenset({Phase.undoing, Phase.undo_failed, Phase.undo_gave_up})
_DO = frozenset({Phase.running, Phase.gave_up})
_REFUSED = frozenset({Phase.failed})
_AHEAD = frozenset({Phase.ahead})


def instance(body: bytes) -> Instance:
    return _decode(body)


def columns(given: Instance) -> dict[str, Any]:
    """Everything but the id and the times, which databases keep in their own ways. The body is the whole truth; the
    other columns are there to be looked for."""
    return {
        "name": given.name,
        "process_id": process(given.process_id),
        "generation": given.generation,
        "status": given.status.value,
        "version": given.version,
        "hash": given.hash,
        "step": at(given),
        "error": storable(given.error),
        "body": _body(given),
    }


def process(id: str) -> str:
    """A process id is the key of what is delivered to its saga, so it must be one. Raises InvalidKey."""
    as_key(id)
    return id


def storable(text: str | None) -> str | None:
    """Reasons and codes may be anybody's words: what a text column cannot hold is shown as a replacement character."""
    return text and _UNSTORABLE.sub("\ufffd", text)


def audit(entry: SagaAudit) -> dict[str, Any]:
    detail = msgspec.json.encode({name: _plain(value) for name, value in entry.detail.items()})
    return {
        "actor": storable(entry.actor),
        "action": entry.action,
        "target": str(entry.saga_id),
        "reason": storable(entry.reason),
        "detail": detail.decode(),
        "trace_id": trace_id(),
        "old_status": entry.old_status,
        "new_status": entry.new_status,
    }


def _plain(value: object) -> str | int | bool | None:
    return value if isinstance(value, bool | int) else storable(str(value))


def at(given: Instance) -> str | None:
    """The step being done or undone, or what stopped it; else the next. None: it has ended."""
    if given.status.is_end:
        return None
    for phases in (_UNDO, _DO if given.turned else _DO | _REFUSED, _AHEAD):
        for state in given.steps:
            if state.phase in phases:
                return state.name
    return None


def _body(given: Instance) -> bytes:
    try:
        return _encode(given)
    except (TypeError, ValueError) as error:  # a lone surrogate is a ValueError
        raise NotEncodable(
            f"saga {given.name} {given.process_id!r} cannot be stored: {error}",
            hint="State, results and codes are JSON values without lone surrogates.",
        ) from error
