"""A saga as a destination: its work, its deadlines and the events it waits for, each in one transaction with what the
saga decides and with the settling."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from postlude.core.delivery import Fence
from postlude.core.outcome import SETTLED, Died, Failed, Fault, Outcome, Parked, Rejected, Settled
from postlude.core.saga.decision import Work
from postlude.core.sealed import has_sealed_parts
from postlude.core.sealing import HEADER
from postlude.errors import Misfit
from postlude.outbox.current import handling
from postlude.ports.destination import Entry, Terms
from postlude.runtime.faults import outcome_of
from postlude.runtime.lending import CALL_MARGIN, OverEarly
from postlude.runtime.saga.deciding import Deciding, SagaParts
from postlude.runtime.saga.steps import Steps, gave_up
from postlude.runtime.saga.work import Working, attempt_of
from postlude.saga.applying import Applied, HookFailed
from postlude.saga.compiled import Compiled
from postlude.saga.messages import TYPE, SagaMessage, destination_of

log = logging.getLogger("postlude.saga")

GRACE = 5.0
"""How long after its timeout a step may take to notice."""
LEFT_ALONE = timedelta(seconds=15)
"""What this code cannot continue is looked at again after that: another worker may be able to."""
OVER_EARLY = Fault("ContractViolation", "handler.contract_violation")


class SagaDestination:
    def __init__(self, made: Compiled, steps: Steps, parts: SagaParts, *, lanes: int, parallel: int) -> None:
        self._made = made
        self._steps = steps
        self._parts = parts
        self._deciding = Deciding(made, parts)
        self._working = Working(self._deciding, steps)
        self._alone: set[tuple[object, str]] = set()
        specs = [*self._deciding.arrivals.specs(), *steps.specs()]
        self._keep_messages = parts.lending.keep_messages and not any(map(has_sealed_parts, specs))
        longest = max((callee.timeout for callee in steps.callees()), default=0.0)
        self.terms = Terms(
            name=destination_of(made.definition.name),
            kind="saga",
            lanes=lanes,
            batch=1,
            parallel=parallel,
            patience=longest + 2 * CALL_MARGIN + GRACE,
        )

    async def open(self) -> None:
        for callee in self._steps.callees():
            await self._deciding.lending.try_out(in_thread=not (callee.is_async and callee.transactional))
        await self._parts.learn_time()

    async def close(self) -> None:
        """Nothing to close."""

    async def deliver(self, entries: Sequence[Entry], fence: Fence) -> list[Outcome]:
        return [await self._one(entry, fence) for entry in entries]

    async def _one(self, entry: Entry, fence: Fence) -> Outcome:
        with handling(entry.event):
            try:
                applied = await self._take(entry, fence)
                await self._deciding.lending.require_commits(entry)
            except OverEarly as error:
                return await self._after_the_end(error, entry, fence)
            except Misfit as error:
                return self._leave_alone(error, entry)
            except Exception as error:  # noqa: BLE001 - whatever a step raises is its entry's outcome
                return await self._final(self._outcome(error, entry), entry, fence, blames_hook=_is_hooks(error))
        self._deciding.lending.forget(entry)
        return SETTLED if applied is None else Settled(applied.followed_by)

    async def _take(self, entry: Entry, fence: Fence) -> Applied | None:
        if entry.event.type != TYPE:
            return await self._deciding.arrive(entry, fence)
        message = SagaMessage.read(entry.event.payload)
        if message.what == "deadline":
            return await self._deciding.decide(entry, fence, message.deadline())
        return await self._working.do(entry, fence, message.work())

    # ------------------------------------------------------------ outcomes

    def _outcome(self, error: Exception, entry: Entry) -> Outcome:
        return outcome_of(error, self.terms.name, entry, keep_messages=self._keeps(entry))

    def _keeps(self, entry: Entry) -> bool:
        """A message would hold what was opened, and outlive its key. A run carries on what its events said."""
        return self._keep_messages and HEADER not in entry.event.headers

    async def _final(self, outcome: Outcome, entry: Entry, fence: Fence, *, blames_hook: bool = False) -> Outcome:
        """At the last attempt the saga is told, in the transaction that ends the delivery: of work that it gave up, of
        anything else that it died."""
        if not isinstance(outcome, Failed | Rejected) or not self._is_last(outcome, entry):
            return outcome
        work = None if blames_hook else _work_of(entry)
        try:
            if work is None:
                return Died(outcome.fault) if await self._deciding.bury(entry, fence, outcome.fault) else outcome
            await self._give_up(entry, fence, work, outcome.fault)
        except HookFailed:
            return outcome if blames_hook else await self._final(outcome, entry, fence, blames_hook=True)
        except Misfit as error:
            return self._leave_alone(error, entry)
        except Exception as error:  # noqa: BLE001 - a database that went away: all of it is tried again
            again = self._outcome(error, entry)
            return Failed(again.fault) if isinstance(again, Rejected) else again
        return SETTLED

    def _is_last(self, outcome: Failed | Rejected, entry: Entry) -> bool:
        retry = self._parts.policy(entry.event, self.terms.name).retry
        is_exhausted = retry.is_exhausted(attempt_of(entry), max_attempts=entry.delivery.max_attempts)
        return is_exhausted or isinstance(outcome, Rejected)

    async def _give_up(self, entry: Entry, fence: Fence | None, work: Work, fault: Fault) -> None:
        """Without a fence the delivery has its end already, and what the step did is committed."""
        callee = self._steps.callee(work)
        is_unsure = fence is None or (callee is not None and not callee.transactional)
        log.error("saga %s gave up on %s: %s", self._made.definition.name, work.step, fault)
        await self._deciding.decide(entry, fence, gave_up(work, fault.kind, may_have_happened=is_unsure))

    async def _after_the_end(self, error: OverEarly, entry: Entry, fence: Fence) -> Outcome:
        """A step ended its transaction. When its writes were committed the delivery is dead already."""
        outcome = await self._deciding.lending.after_the_end(error, entry, keep_messages=self._keeps(entry))
        if outcome is not SETTLED:
            return await self._final(outcome, entry, fence)
        if (work := _work_of(entry)) is not None:
            await self._give_up(entry, None, work, OVER_EARLY)
        return SETTLED

    def _leave_alone(self, error: Misfit, entry: Entry) -> Outcome:
        seen = (entry.event.saga_id or entry.event.event_id, self._made.definition.hash)
        if seen not in self._alone:
            self._alone.add(seen)
            log.warning("%s: it is left alone", error.args[0])
        return Parked(self._deciding.applying.times.now() + LEFT_ALONE)


def _is_hooks(error: Exception) -> bool:
    return isinstance(error, HookFailed)


def _work_of(entry: Entry) -> Work | None:
    if entry.event.type != TYPE:
        return None
    message = SagaMessage.read(entry.event.payload)
    return None if message.what == "deadline" else message.work()
