"""Requests about a data subject, checked before anything is done. What is refused leaves no trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from postlude.calls.resolvers import OWN, Resolvers
from postlude.core.calls import CallOperation, Correction, SubjectRef, is_text, subject_id_text
from postlude.errors import ConfigurationError, NotEncodable

MAX_BYTES = 1_048_576
"""Of a reference, and of all corrections of a request."""
NAMED = "[subject]"
"""What stands in an actor or a reason instead of the subject's id."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Who, what, and at which foreign systems."""

    subject_id: str
    operation: CallOperation
    refs: tuple[SubjectRef, ...]
    corrections: tuple[Correction, ...] = ()
    corrected: bytes | None = None
    """The corrections as they are kept for the calls."""
    actor: str
    reason: str


def checked(
    resolvers: Resolvers,
    operation: CallOperation,
    subject_id: Any,
    refs: Sequence[SubjectRef],
    *,
    corrections: Sequence[Correction] = (),
    actor: str,
    reason: str | None,
) -> Request:
    """The errors name kinds and categories, never whom it is about."""
    refs = _all(refs, "references", "SubjectRef(kind, value)")
    for ref in refs:
        _require_ref(ref, resolvers)
    corrections = _all(corrections, "corrections", "Correction(category, value)")
    corrected = _encoded(corrections) if operation is CallOperation.rectify else None
    if not is_text(actor) or not actor.strip():
        raise ConfigurationError("a request needs an actor, as text", hint="It stands in the audit record.")
    if reason and not is_text(reason):
        raise ConfigurationError("a reason is text without NUL and lone surrogates", hint="Say why, or give none.")
    subject = subject_id_text(subject_id)
    return Request(
        subject_id=subject,
        operation=operation,
        refs=_distinct(refs),
        corrections=tuple(corrections),
        corrected=corrected,
        actor=_without(subject, actor),
        reason=_without(subject, reason or ""),
    )


def _without(subject_id: str, words: str) -> str:
    """The audit trail is kept for good, and many ask about themselves. A request is not refused for it, for ids may be
    numbers that stand in words by chance."""
    return re.sub(rf"(?<!\w){re.escape(subject_id)}(?!\w)", NAMED, words)


def _all(given: Any, what: str, one: str) -> tuple[Any, ...]:
    """An iterator too, which could be read only once."""
    try:
        return tuple(given)
    except TypeError:
        raise ConfigurationError(f"the {what} are no list", hint=f"Give [{one}, ...], or [].") from None


def _require_ref(ref: Any, resolvers: Resolvers) -> None:
    if not isinstance(ref, SubjectRef) or not is_text(ref.kind):
        raise ConfigurationError("a reference is no SubjectRef", hint="Give SubjectRef(kind, value).")
    if not is_text(ref.value):
        raise ConfigurationError(f"a reference of kind {ref.kind!r} has no usable value")
    if ref.kind == OWN or resolvers.get(ref.kind) is None:
        known = ", ".join(resolvers.names()) or "none"
        raise ConfigurationError(
            f"no resolver is named {ref.kind!r}",
            hint=f"Known: {known}. app.resolvers.register(...) it, or correct the kind of the reference.",
        )


def _distinct(refs: Sequence[SubjectRef]) -> tuple[SubjectRef, ...]:
    found: dict[bytes, SubjectRef] = {}
    for ref in refs:
        found.setdefault(_json(ref, f"a reference of kind {ref.kind!r}"), ref)
    return tuple(found.values())


def _encoded(corrections: Sequence[Any]) -> bytes:
    if not corrections:
        raise ConfigurationError("there is nothing to correct", hint="Give at least one Correction(category, value).")
    for one in corrections:
        if not isinstance(one, Correction) or not is_text(one.category):
            raise ConfigurationError("a correction has no category", hint="Give Correction(category, value).")
    categories = [one.category for one in corrections]
    if len(set(categories)) < len(categories):
        raise ConfigurationError("a category is corrected twice in one request", hint="Give one value for each.")
    return _json(list(corrections), "a correction")


def _json(value: object, what: str) -> bytes:
    try:
        written = msgspec.json.encode(value, order="sorted")
    except (TypeError, ValueError, OverflowError, RecursionError):
        # Without its cause: the message of a codec may quote the value.
        raise NotEncodable(
            f"{what} cannot be written as JSON", hint="Use text, numbers, dates, lists, mappings."
        ) from None
    if len(written) > MAX_BYTES:
        raise ConfigurationError(f"{what} takes {len(written)} bytes, more than {MAX_BYTES}", hint="Give an id for it.")
    return written
