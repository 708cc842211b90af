"""Resolvers in memory: two good ones, and many that each break one rule of the contract."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from postlude import Correction, Erasure, ResolverError, Schedule, SubjectRef
from postlude.testing.contracts.resolver_arrange import Vendor, VendorFault


class Denied(Exception):
    """No repetition helps."""


class Shelf(Vendor):
    """A vendor in memory, with an API of one method."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self.counts: Counter[str] = Counter()
        self.fault: VendorFault | None = None
        self._done: set[tuple[str, str]] = set()

    async def given_subject(self) -> SubjectRef:
        ref = await self.missing_subject()
        self.kept[ref.value] = {}
        return ref

    async def missing_subject(self) -> SubjectRef:
        return SubjectRef("shelf", uuid4().hex)

    async def malformed_subject(self) -> SubjectRef:
        return SubjectRef("shelf", "malformed!")

    async def effects(self) -> Mapping[str, int]:
        return dict(self.counts)

    async def values(self, ref: SubjectRef) -> Mapping[str, Any]:
        return self.kept[ref.value]

    async def expire(self, ref: SubjectRef) -> None:
        self.kept.pop(ref.value, None)

    async def fail(self, fault: VendorFault) -> None:
        self.fault = fault

    async def heal(self) -> None:
        self.fault = None

    async def ask(self, what: str, subject: str, key: str = "", **values: Any) -> Any:
        """None is: nobody there."""
        await asyncio.sleep(0)
        if self.fault == "hang":
            await asyncio.Event().wait()
        if self.fault == "refuse" or subject.endswith("!"):
            raise Denied
        if self.fault in {None, "lost"}:
            answer = self._do(what, subject, key, values)
        if self.fault is not None:
            raise ConnectionError("out of order")
        return answer

    def _do(self, what: str, subject: str, key: str, values: dict[str, Any]) -> Any:
        is_there, is_repeat = subject in self.kept, (what, key) in self._done
        if what == "look":
            return is_there or None
        if what == "erase" and is_repeat:
            return True
        if not is_there:
            return None
        if not is_repeat:
            self._done.add((what, key))
            self.counts[key] += 1
            self.kept[subject].update(values)
        if what == "schedule":
            return self.kept[subject].setdefault("until", datetime.now(UTC) + timedelta(days=30))
        if what == "erase":
            del self.kept[subject]
        return True


class Good:
    name = "shelf"

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        return Erasure(already_absent=await self.ask("erase", ref, idempotency_key) is None)

    async def rectify_subject(
        self, ref: SubjectRef, corrections: Sequence[Correction], *, idempotency_key: str
    ) -> None:
        await self.ask("rectify", ref, idempotency_key, **{one.category: one.value for one in corrections})

    async def verify_absent(self, ref: SubjectRef) -> bool:
        return await self.ask("look", ref) is None

    async def ask(self, what: str, ref: SubjectRef, key: str = "", **values: Any) -> Any:
        try:
            return await self.shelf.ask(what, ref.value, key, **values)
        except Denied:
            raise ResolverError("the shelf refuses it") from None


class GoodKeeper:
    """Of a vendor that only lets expire."""

    name = "shelf"

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf

    async def schedule_erasure(self, ref: SubjectRef, *, idempotency_key: str) -> Schedule:
        until = await Good(self.shelf).ask("schedule", ref, idempotency_key)
        return Schedule(already_absent=True) if until is None else Schedule(until)


class HasNoName(Good):
    name = ""


class HasBlankInName(Good):
    name = "my shelf"


class IsOurs(Good):
    name = "postlude"


class ChangesItsName(Good):
    async def erase_subject(self, ref, *, idempotency_key):
        self.name = uuid4().hex
        return await super().erase_subject(ref, idempotency_key=idempotency_key)


class IsNotAsync(Good):
    def erase_subject(self, ref, *, idempotency_key):
        return super().erase_subject(ref, idempotency_key=idempotency_key)


class TakesNoKey(Good):
    async def erase_subject(self, ref):  # type: ignore[override]  # that is what is broken
        return await super().erase_subject(ref, idempotency_key="")


class CanMoreThanDeclared(Good):
    async def schedule_erasure(self, ref, *, idempotency_key):
        return Schedule(already_absent=True)


class ErasesNothing(Good):
    async def erase_subject(self, ref, *, idempotency_key):
        return Erasure()


class ReturnsAStatus(Good):
    async def erase_subject(self, ref, *, idempotency_key):
        await super().erase_subject(ref, idempotency_key=idempotency_key)
        return 204


class RaisesForTheMissing(Good):
    async def ask(self, what, ref, key="", **values):
        answer = await super().ask(what, ref, key, **values)
        if answer is None:
            raise LookupError("nobody there")
        return answer


class RemembersKeysAndRaises(Good):
    def __init__(self, shelf):
        super().__init__(shelf)
        self.seen = set()

    async def erase_subject(self, ref, *, idempotency_key):
        if idempotency_key in self.seen:
            raise RuntimeError("the same key again")
        self.seen.add(idempotency_key)
        return await super().erase_subject(ref, idempotency_key=idempotency_key)


class IgnoresTheKey(Good):
    async def ask(self, what, ref, key="", **values):
        return await super().ask(what, ref, uuid4().hex, **values)


class ActsTwice(Good):
    """Notes each erasure with a key of its own making."""

    async def erase_subject(self, ref, *, idempotency_key):
        self.shelf.counts[idempotency_key] += 1
        return await super().erase_subject(ref, idempotency_key=idempotency_key)


class NeedsExtra(Good):
    async def erase_subject(self, ref, *, idempotency_key):
        if "region" not in ref.extra:
            raise ResolverError("no region")
        return await super().erase_subject(ref, idempotency_key=idempotency_key)


class HasOneSubjectInMind(Good):
    async def erase_subject(self, ref, *, idempotency_key):
        self.current = ref
        await asyncio.sleep(0)
        return await super().erase_subject(self.current, idempotency_key=idempotency_key)


class FailsWhenItIsNotAlone(Good):
    def __init__(self, shelf):
        super().__init__(shelf)
        self.busy = set()

    async def erase_subject(self, ref, *, idempotency_key):
        if ref.value in self.busy:
            raise RuntimeError("somebody else is at it")
        self.busy.add(ref.value)
        try:
            return await super().erase_subject(ref, idempotency_key=idempotency_key)
        finally:
            self.busy.discard(ref.value)


class GivesUpTooSoon(Good):
    async def ask(self, what, ref, key="", **values):
        try:
            return await super().ask(what, ref, key, **values)
        except ConnectionError:
            raise ResolverError("out of order") from None


class TakesOutagesForAbsence(Good):
    async def ask(self, what, ref, key="", **values):
        try:
            return await super().ask(what, ref, key, **values)
        except ConnectionError:
            return None


class NeverGivesUp(Good):
    async def ask(self, what, ref, key="", **values):
        return await self.shelf.ask(what, ref.value, key, **values)


class TriesAgainWithAnotherKey(Good):
    async def erase_subject(self, ref, *, idempotency_key):
        try:
            return await super().erase_subject(ref, idempotency_key=idempotency_key)
        except ConnectionError:
            self.shelf.counts[idempotency_key] += 1
            raise


class NamesTheSubject(Good):
    async def ask(self, what, ref, key="", **values):
        try:
            return await super().ask(what, ref, key, **values)
        except ConnectionError:
            raise ConnectionError(f"cannot {what} {ref.value}") from None


class NamesTheSubjectInTheCause(NamesTheSubject):
    async def ask(self, what, ref, key="", **values):
        try:
            return await super().ask(what, ref, key, **values)
        except ConnectionError as error:
            raise RuntimeError("it did not work") from error


class NamesTheSubjectInANote(Good):
    async def ask(self, what, ref, key="", **values):
        try:
            return await super().ask(what, ref, key, **values)
        except ConnectionError as error:
            error.add_note(f"while asking for {ref.value}")
            raise


class NamesTheExtra(Good):
    async def ask(self, what, ref, key="", **values):
        try:
            return await super().ask(what, ref, key, **values)
        except ConnectionError:
            raise ConnectionError("with", ref.extra) from None


class NamesTheMalformed(Good):
    async def ask(self, what, ref, key="", **values):
        try:
            return await self.shelf.ask(what, ref.value, key, **values)
        except Denied:
            raise ResolverError(f"no such id can be: {ref.value}") from None


class NamesTheCorrection(Good):
    async def rectify_subject(self, ref, corrections, *, idempotency_key):
        try:
            await super().rectify_subject(ref, corrections, idempotency_key=idempotency_key)
        except ConnectionError:
            raise ConnectionError(f"cannot set {corrections}") from None


class CannotBeCancelled(Good):
    async def erase_subject(self, ref, *, idempotency_key):
        try:
            return await super().erase_subject(ref, idempotency_key=idempotency_key)
        except asyncio.CancelledError:
            return Erasure()


class KeepsItsLock(Good):
    def __init__(self, shelf):
        super().__init__(shelf)
        self.lock = asyncio.Lock()

    async def erase_subject(self, ref, *, idempotency_key):
        await self.lock.acquire()
        result = await super().erase_subject(ref, idempotency_key=idempotency_key)
        self.lock.release()
        return result


class IsDoneForAfterAFault(Good):
    is_closed = False

    async def ask(self, what, ref, key="", **values):
        if self.is_closed:
            raise RuntimeError("the client is closed")
        try:
            return await super().ask(what, ref, key, **values)
        except ConnectionError:
            self.is_closed = True
            raise


class CorrectsNothing(Good):
    async def rectify_subject(self, ref, corrections, *, idempotency_key):
        return None


class CorrectsOnce(Good):
    async def rectify_subject(self, ref, corrections, *, idempotency_key):
        if not await self.shelf.values(ref):
            await super().rectify_subject(ref, corrections, idempotency_key=idempotency_key)


class CorrectsNobodyForEver(Good):
    async def rectify_subject(self, ref, corrections, *, idempotency_key):
        if await self.ask("rectify", ref, idempotency_key) is None:
            raise LookupError("nobody there")


class CorrectsByErasing(Good):
    async def rectify_subject(self, ref, corrections, *, idempotency_key):
        await self.ask("erase", ref, idempotency_key)


class VerifiesAnything(Good):
    async def verify_absent(self, ref):
        return True


class VerifiesNothing(Good):
    async def verify_absent(self, ref):
        return False


class VerifiesByErasing(Good):
    async def verify_absent(self, ref):
        absent = await super().verify_absent(ref)
        await self.ask("rectify", ref, uuid4().hex)
        return absent


class KeepsTheFirstAnswer(GoodKeeper):
    def __init__(self, shelf):
        super().__init__(shelf)
        self.answers = {}

    async def schedule_erasure(self, ref, *, idempotency_key):
        if idempotency_key not in self.answers:
            self.answers[idempotency_key] = await super().schedule_erasure(ref, idempotency_key=idempotency_key)
        return self.answers[idempotency_key]


class HasAHorizonBehind(GoodKeeper):
    async def schedule_erasure(self, ref, *, idempotency_key):
        given = await super().schedule_erasure(ref, idempotency_key=idempotency_key)
        return Schedule(datetime(2020, 1, 1, tzinfo=UTC)) if given.expires_at else given


class MovesTheHorizon(GoodKeeper):
    async def schedule_erasure(self, ref, *, idempotency_key):
        given = await super().schedule_erasure(ref, idempotency_key=idempotency_key)
        return Schedule(datetime.now(UTC) + timedelta(days=1)) if given.expires_at else given


class CallsAScheduleAnErasure(GoodKeeper):
    async def schedule_erasure(self, ref, *, idempotency_key):
        return Erasure()
