"""After a success a vendor is asked whether the subject is gone: a delivery of its own, so that no crash forgets it."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from postlude.calls.resolvers import Registered
from postlude.core.calls import CallOperation, SubjectRef, Unverified
from postlude.core.delivery import Fence
from postlude.core.outcome import Outcome
from postlude.core.pseudonym import TARGET
from postlude.ports.audit import AuditEntry
from postlude.ports.calls import VERIFICATION
from postlude.ports.destination import Entry
from postlude.runtime.call_ends import CallEnds, Ending
from postlude.runtime.faults import ends_us

log = logging.getLogger("postlude.calls")


class Verifying:
    """At one resolver. Whatever the vendor says is recorded, once, and changes nothing."""

    def __init__(self, registered: Registered, ends: CallEnds) -> None:
        self._registered = registered
        self._ends = ends

    async def deliver(self, entry: Entry, fence: Fence, secret: bytes) -> Outcome:
        unverified = msgspec.json.decode(secret, type=Unverified)
        entry_id = str(entry.event.event_id)
        detail: dict[str, str | int | bool] = {"entry_id": entry_id, "resolver": self._registered.name}
        try:
            is_absent = await self._is_absent(unverified.ref)
        except BaseException as error:  # a vendor that cannot say undoes nothing
            if ends_us(error):
                raise
            is_absent = False
            detail["error"] = type(error).__name__
        if not is_absent:
            log.warning(
                "%s: call %s was made, but its effect could not be verified", self._registered.destination, entry_id
            )
        name = "external_verified" if is_absent else "external_verification_failed"
        record = AuditEntry(
            actor="postlude",
            action=f"{CallOperation.erase.noun}_{name}",
            target=TARGET + unverified.subject,
            detail=detail,
        )
        return await self._ends.settle(Ending(entry.delivery, fence, record, VERIFICATION))

    async def _is_absent(self, ref: SubjectRef) -> bool:
        async with asyncio.timeout(self._registered.timeout):
            return bool(await self._registered.resolver.verify_absent(ref))
