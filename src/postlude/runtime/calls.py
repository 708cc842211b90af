"""A foreign system as a destination: the attempt is committed, then the call is made, then its outcome is settled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from postlude.calls.resolvers import OWN, Registered
from postlude.core.calls import CallOperation, Correction, Erasure, Schedule, Whom
from postlude.core.delivery import Delivery, Fence
from postlude.core.outcome import HELD, POSTPONED, SETTLED, Failed, Fault, Outcome, Park, Rejected
from postlude.core.pseudonym import TARGET
from postlude.errors import ContractViolation, DatabaseUnavailable, ResolverError
from postlude.ports.audit import AuditEntry
from postlude.ports.calls import CORRECTIONS, HORIZON, SUBJECT, Calls, CallScripts
from postlude.ports.clock import Clock
from postlude.ports.destination import Entry, Terms
from postlude.ports.scripts import Scripts
from postlude.runtime.faults import Taken, fault_of, is_transient
from postlude.runtime.lending import CALL_MARGIN, Lending
from postlude.runtime.pacing import Pace

log = logging.getLogger("postlude.calls")
GRACE = 5.0
EARLIEST, LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""What every database can write, in every time zone; some vendors' "never" is the end of the calendar."""
_NO_SECRET = Fault("SecretMissing", "call.secret_missing")
_EXHAUSTED = Fault("AttemptsExhausted", "call.attempts_exhausted")


class CallParts(msgspec.Struct, frozen=True):
    """What the destinations of all resolvers share."""

    calls: Calls
    call_scripts: CallScripts
    scripts: Scripts
    lending: Callable[[str, str], Lending]
    """For settling, in transactions of our own."""
    clock: Clock
    first_delay: float
    """Seconds: nothing is parked for less."""
    budget: int
    """Attempts, even if none of them led to an outcome."""


class _Asked(msgspec.Struct, frozen=True):
    """One call on its way."""

    delivery: Delivery
    fence: Fence
    operation: CallOperation
    whom: Whom
    corrections: Sequence[Correction]
    horizon: datetime | None
    entry_id: str
    subject: str


class NoOutcome(BaseException):
    """A resolver raised what is no Exception. Whoever logs it sees its class: its text may name the subject."""


class CallDestination:
    def __init__(self, registered: Registered, parts: CallParts, *, lanes: int) -> None:
        self._registered = registered
        self._parts = parts
        self._lending = parts.lending(registered.name, registered.destination)
        self._pace = Pace(registered.rate, parts.clock)
        waiting = registered.concurrency / registered.rate if registered.rate else 0.0
        longest = registered.timeout * (2 if registered.can("verify_absent") else 1) + waiting
        self.terms = Terms(
            name=registered.destination,
            kind="call",
            lanes=lanes,
            batch=1,
            parallel=registered.concurrency,
            patience=longest + CALL_MARGIN + GRACE,
            claim_for=longest + CALL_MARGIN,
        )

    async def open(self) -> None:
        """Nothing to open: a resolver connects when it is called."""

    async def close(self) -> None:
        """Nothing to close."""

    async def deliver(self, entries: Sequence[Entry], fence: Fence) -> list[Outcome]:
        return [await self._one(entry, fence) for entry in entries]

    async def _one(self, entry: Entry, fence: Fence) -> Outcome:
        if entry.delivery.attempts > self._parts.budget:
            return Rejected(_EXHAUSTED)
        try:
            asked = await self._asked(entry, fence)
        except DatabaseUnavailable:
            return HELD
        if asked is None:
            return Rejected(_NO_SECRET)
        await self._pace.wait()
        try:
            result = await self._call(asked)
        except Park as parked:
            result = Schedule(expires_at=parked.until)
        except BaseException as error:
            if _ends_us(error):
                raise
            if not isinstance(error, Exception | asyncio.CancelledError):
                raise NoOutcome(type(error).__name__) from None
            return self._outcome_of(error, entry)  # whatever a vendor's client raises is this call's outcome
        return await self._settled(asked, result)

    async def _settled(self, asked: _Asked, result: Erasure | Schedule | None) -> Outcome:
        try:
            return await self._settle(asked, result)
        except Exception as error:
            if isinstance(error, Taken) or is_transient(error):
                return HELD  # the call was made: it is repeated under the same idempotency key, and burns no attempt
            raise

    def _outcome_of(self, error: BaseException, entry: Entry) -> Outcome:
        """Errors are kept as class and place: a vendor's message may name the subject."""
        log.warning("%s: call %s failed: %s", self.terms.name, entry.event.event_id, type(error).__name__)
        fault = fault_of(error, keep_messages=False)
        return Rejected(fault) if isinstance(error, (ResolverError, ContractViolation)) else Failed(fault)

    async def _asked(self, entry: Entry, fence: Fence) -> _Asked | None:
        secrets = await self._parts.calls.secrets(entry.event.event_id)
        operation = CallOperation(entry.event.type.rpartition(".")[2])
        if SUBJECT not in secrets or (operation is CallOperation.rectify and CORRECTIONS not in secrets):
            return None
        return _Asked(
            delivery=entry.delivery,
            fence=fence,
            operation=operation,
            whom=msgspec.json.decode(secrets[SUBJECT], type=Whom),
            corrections=msgspec.json.decode(secrets.get(CORRECTIONS, b"[]"), type=list[Correction]),
            horizon=msgspec.json.decode(secrets[HORIZON], type=datetime) if HORIZON in secrets else None,
            entry_id=str(entry.event.event_id),
            subject=TARGET + (entry.delivery.key or ""),
        )

    async def _call(self, asked: _Asked) -> Erasure | Schedule | None:
        registered, ref = self._registered, asked.whom.ref
        name = registered.method(asked.operation)
        if not registered.can(name):
            raise ResolverError(f"resolver {registered.name!r} cannot rectify", hint="Give it rectify_subject.")
        given = (ref, asked.corrections) if asked.operation is CallOperation.rectify else (ref,)
        async with asyncio.timeout(registered.timeout):
            result = await getattr(registered.resolver, name)(*given, idempotency_key=asked.entry_id)
        if asked.operation is CallOperation.rectify:
            return None
        expected = Schedule if name == "schedule_erasure" else Erasure
        if not isinstance(result, expected):
            raise ContractViolation(
                f"{name} of resolver {registered.name!r} returned {type(result).__name__}, not {expected.__name__}"
            )
        return result

    async def _settle(self, asked: _Asked, result: Erasure | Schedule | None) -> Outcome:
        if isinstance(result, Schedule) and result.expires_at is not None:
            return await self._park(asked, result.expires_at)
        detail: dict[str, str | int | bool] = {}
        if result is not None:  # some put a vendor's whole answer there
            detail["already_absent"] = bool(result.already_absent)
        if isinstance(result, Schedule) and asked.horizon is not None:
            detail["verified_expiry"] = True
        record = self._record(asked, "step_succeeded", detail, new_status="sent")

        tries = 0

        async def settle(handle: Any) -> None:
            nonlocal tries
            tries += 1
            # The record first: the completion that the settling may bring about comes after it in the trail.
            await self._lending.play(handle, self._parts.scripts.audit(record))
            await self._lending.settle(handle, asked.delivery, asked.fence, CALL_MARGIN)

        try:
            await self._lending.persist(settle)
        except Taken:
            if tries == 1 or await self._parts.calls.secrets(asked.delivery.event_id):
                raise
            # It is over: an earlier commit was made, and only its answer was lost.
        await self._verify(asked)
        return SETTLED

    async def _park(self, asked: _Asked, until: datetime) -> Outcome:
        """Not before a step of backoff, with a fresh budget; each new horizon stands in the trail. Our own tables have
        none: that they wait is told once, and not again each time they look."""
        until = min(max(until, EARLIEST), LATEST)
        detail: dict[str, str | int | bool] = {
            "expires_at": until.isoformat(),
            "prior_attempts": asked.delivery.attempts,
        }
        if asked.horizon is not None:
            detail["prior_expires_at"] = asked.horizon.isoformat()
        record = self._record(asked, "expiry_scheduled", detail, new_status="scheduled")

        async def park(handle: Any) -> None:
            script = self._parts.call_scripts.park(
                asked.fence,
                asked.delivery,
                until=until,
                least=self._parts.first_delay,
                horizon=msgspec.json.encode(until),
            )
            if await self._lending.play(handle, script) is None:
                raise Taken
            if asked.horizon is None or self._registered.name != OWN:
                await self._lending.play(handle, self._parts.scripts.audit(record))

        await self._lending.persist(park)
        return POSTPONED

    async def _verify(self, asked: _Asked) -> None:
        """The success is settled; what the vendor says when asked again is recorded beside it."""
        if asked.operation is CallOperation.rectify or not self._registered.can("verify_absent"):
            return
        detail: dict[str, str | int | bool] = {}
        try:
            async with asyncio.timeout(self._registered.timeout):
                is_absent = bool(await self._registered.resolver.verify_absent(asked.whom.ref))
        except BaseException as error:  # a vendor that cannot say is no reason to undo anything
            if _ends_us(error):
                raise
            is_absent = False
            detail["error"] = type(error).__name__
        name = "external_verified" if is_absent else "external_verification_failed"
        record = self._record(asked, name, detail)
        if not is_absent:
            log.warning("%s: call %s was made, but its effect could not be verified", self.terms.name, asked.entry_id)
        try:
            await self._lending.persist(lambda handle: self._lending.play(handle, self._parts.scripts.audit(record)))
        except DatabaseUnavailable:
            log.warning("%s: the verification of call %s could not be recorded", self.terms.name, asked.entry_id)

    def _record(
        self, asked: _Asked, name: str, detail: Mapping[str, str | int | bool], *, new_status: str | None = None
    ) -> AuditEntry:
        return AuditEntry(
            actor="postlude",
            action=f"{asked.operation.noun}_{name}",
            target=asked.subject,
            detail={"entry_id": asked.entry_id, "resolver": self._registered.name, **detail},
            old_status=str(asked.delivery.status) if new_status else None,
            new_status=new_status,
        )


def _ends_us(error: BaseException) -> bool:
    """Is it the worker that is to end? Some clients raise a CancelledError of their own, and some call sys.exit()."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | GeneratorExit)
