"""What a resolver implements: a foreign system that can erase a data subject. Implement it, do not subclass it.

Methods are coroutines and safe to repeat with the same idempotency key. `ResolverError` says that no further attempt
can help; anything else raised is tried again. The protocols grow by new optional capabilities only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from postlude.core.calls import Correction, Erasure, Schedule, SubjectRef


class Named(Protocol):
    """Its name is the `kind` of the references it understands, and stays for as long as calls are open."""

    name: str


@runtime_checkable
class Resolver(Named, Protocol):
    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        """Erase the subject there. What is gone already is `Erasure(already_absent=True)`, no error."""


@runtime_checkable
class RectifyingResolver(Named, Protocol):
    async def rectify_subject(
        self, ref: SubjectRef, corrections: Sequence[Correction], *, idempotency_key: str
    ) -> None:
        """Correct what is stored there."""


@runtime_checkable
class RetentionOnlyResolver(Named, Protocol):
    async def schedule_erasure(self, ref: SubjectRef, *, idempotency_key: str) -> Schedule:
        """The vendor cannot erase, only let expire: until when, or that it is gone. Asked again after that time."""


@runtime_checkable
class VerifyingResolver(Named, Protocol):
    async def verify_absent(self, ref: SubjectRef) -> bool:
        """Is the subject really gone? Asked after a success; the answer is recorded and changes nothing."""
