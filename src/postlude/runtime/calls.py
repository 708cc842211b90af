"""A foreign system as a destination: the attempt is committed, then the call is made, then its outcome is settled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from postlude.calls.resolvers import OWN, Registered
from postlude.core.calls import CallOperation, Correction, Erasure, Schedule, Unverified, Whom
from postlude.core.delivery import Delivery, Fence
from postlude.core.outcome import HELD, POSTPONED, Failed, Fault, Outcome, Park, Rejected, Unavailable
from postlude.core.pseudonym import TARGET
from postlude.core.statement import Script
from postlude.errors import CannotOpen, ContractViolation, KeysUnavailable, ResolverError
from postlude.ports.audit import AuditEntry
from postlude.ports.calls import CORRECTIONS, HORIZON, SUBJECT, VERIFICATION
from postlude.ports.destination import Entry, Terms
from postlude.runtime.call_ends import CallEnds, CallParts, Ending
from postlude.runtime.faults import Taken, ends_us, fault_of, is_transient
from postlude.runtime.lending import CALL_MARGIN
from postlude.runtime.pacing import Pace
from postlude.runtime.verifying import Verifying

log = logging.getLogger("postlude.calls")
GRACE = 5.0
EARLIEST, LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""What every database can write, in every time zone; some vendors' "never" is the end of the calendar."""
_NO_SECRET = Fault("SecretMissing", "call.secret_missing")
_EXHAUSTED = Fault("AttemptsExhausted", "call.attempts_exhausted")


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
    unverified: bytes | None
    """The secret of the verification that follows, if one does. It is sealed before the call: after it, a key service
    that is away would keep a success from being settled."""


class NoOutcome(BaseException):
    """A resolver raised what is no Exception. Whoever logs it sees its class: its text may name the subject."""


class CallDestination:
    def __init__(self, registered: Registered, parts: CallParts, *, lanes: int) -> None:
        self._registered = registered
        self._parts = parts
        self._lending = parts.lending(registered.name, registered.destination)
        self._ends = CallEnds(registered, parts)
        self._verifying = Verifying(registered, self._ends)
        self._pace = Pace(registered.rate, parts.clock)
        waiting = registered.concurrency / registered.rate if registered.rate else 0.0
        longest = registered.timeout + waiting
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
        try:
            return await self._outcome(entry, fence)
        except Exception as error:
            if isinstance(error, Taken) or is_transient(error):
                return HELD  # what was made is repeated under the same idempotency key, and burns no attempt
            if isinstance(error, KeysUnavailable):
                return Unavailable(Fault(type(error).__name__, error.code))
            if isinstance(error, CannotOpen):  # who mends the ring soon has lost nothing
                return self._outcome_of(error, entry)
            raise

    async def _outcome(self, entry: Entry, fence: Fence) -> Outcome:
        secrets = await self._parts.calls.secrets(entry.event.event_id)
        if VERIFICATION in secrets:  # the call itself is over
            await self._pace.wait()
            return await self._verifying.deliver(entry, fence, secrets[VERIFICATION])
        if entry.delivery.attempts > self._parts.budget:
            return Rejected(_EXHAUSTED)
        asked = await self._asked(entry, fence, secrets)
        if asked is None:
            return Rejected(_NO_SECRET)
        await self._pace.wait()
        try:
            result = await self._call(asked)
        except Park as parked:
            result = Schedule(expires_at=parked.until)
        except BaseException as error:
            if ends_us(error):
                raise
            if not isinstance(error, Exception | asyncio.CancelledError):
                raise NoOutcome(type(error).__name__) from None
            return self._outcome_of(error, entry)  # whatever a vendor's client raises is this call's outcome
        return await self._settle(asked, result)

    def _outcome_of(self, error: BaseException, entry: Entry) -> Outcome:
        """Errors are kept as class and place: a vendor's message may name the subject."""
        said = _of_group(error)
        log.warning("%s: call %s failed: %s", self.terms.name, entry.event.event_id, type(said).__name__)
        fault = fault_of(said, keep_messages=False)
        return Rejected(fault) if isinstance(said, (ResolverError, ContractViolation)) else Failed(fault)

    async def _asked(self, entry: Entry, fence: Fence, secrets: Mapping[str, bytes]) -> _Asked | None:
        operation = CallOperation(entry.event.type.rpartition(".")[2])
        if SUBJECT not in secrets or (operation is CallOperation.rectify and CORRECTIONS not in secrets):
            return None
        whom = msgspec.json.decode(secrets[SUBJECT], type=Whom)
        subject = entry.delivery.key or ""
        is_verified = operation is CallOperation.erase and self._registered.can("verify_absent")
        return _Asked(
            delivery=entry.delivery,
            fence=fence,
            operation=operation,
            whom=whom,
            corrections=msgspec.json.decode(secrets.get(CORRECTIONS, b"[]"), type=list[Correction]),
            horizon=msgspec.json.decode(secrets[HORIZON], type=datetime) if HORIZON in secrets else None,
            entry_id=str(entry.event.event_id),
            subject=subject,
            unverified=await self._sealed(entry, Unverified(subject, whom.ref)) if is_verified else None,
        )

    async def _sealed(self, entry: Entry, unverified: Unverified) -> bytes:
        parts = {VERIFICATION: msgspec.json.encode(unverified)}
        return (await self._parts.seal(entry.event.event_id, parts))[VERIFICATION]

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
        following = None if asked.unverified is None else partial(self._verification, asked, asked.unverified)
        return await self._ends.settle(Ending(asked.delivery, asked.fence, record, SUBJECT, following))

    def _verification(self, asked: _Asked, secret: bytes) -> Script[None]:
        return self._parts.call_scripts.append_verification(asked.fence, asked.delivery, secret)

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

    def _record(
        self, asked: _Asked, name: str, detail: Mapping[str, str | int | bool], *, new_status: str | None = None
    ) -> AuditEntry:
        return AuditEntry(
            actor="postlude",
            action=f"{asked.operation.noun}_{name}",
            target=TARGET + asked.subject,
            detail={"entry_id": asked.entry_id, "resolver": self._registered.name, **detail},
            old_status=str(asked.delivery.status) if new_status else None,
            new_status=new_status,
        )


def _of_group(error: BaseException) -> BaseException:
    """What counts of the errors of several tasks: that it will never be done, if one of them says so."""
    while isinstance(error, BaseExceptionGroup):
        error = (error.subgroup(ResolverError) or error).exceptions[0]
    return error
