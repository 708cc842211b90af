"""What is asked after a success: durable, in nobody's way, and gone with everything it needed when it is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from postlude import Erasure, Postlude, Schedule, Status, SubjectRef
from tests.calling import (
    ADA,
    VALUE,
    WHO,
    Retaining,
    Vendor,
    Verifying,
    detail,
    erase,
    only_call,
    request,
    secrets,
    trail,
)
from tests.engine import query, workers

HEALED = 120.0
"""Seconds after which a claim of a worker that is gone is over."""
FAILED = "erasure_external_verification_failed"
DONE = ["erasure_requested", "erasure_local_completed", "erasure_step_succeeded", "erasure_completed"]


class Asked(Verifying):
    """Never answers, and says when it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()

    async def verify_absent(self, ref: SubjectRef) -> bool:
        self.is_asked.set()
        await asyncio.Event().wait()
        return False


async def asked_and_gone(make: Callable[..., Postlude]) -> Any:
    """A request that is complete, and a worker that is stopped while it asks whether that is true."""
    vendor = Asked()
    app = make(vendor)
    result = await erase(app)
    async with workers(app) as (worker,):

        async def work() -> None:
            while not vendor.is_asked.is_set():
                await worker.drain_once()

        passing = asyncio.create_task(work())
        async with asyncio.timeout(20):
            await vendor.is_asked.wait()
        await worker.stop(timeout=0)
        await passing
    return app, result


async def test_a_later_worker_makes_the_verification_that_was_due(make, url: str) -> None:
    app, result = await asked_and_gone(make)
    assert await trail(app) == DONE
    assert (await request(app, result.group_id)).status == "completed", "completion waits for no verification"
    assert await secrets(url) == ["verification"]
    ((kept,),) = await query(url, "SELECT content FROM postlude_secret")
    assert ADA.encode() not in bytes(kept), "the reference there is enough"
    vendor = Verifying()
    later = make(vendor)
    later.clock.advance(HEALED)
    assert await later.drain() == 1
    assert (vendor.keys, vendor.verified) == ([], 1)
    assert await trail(later) == [*DONE, "erasure_external_verified"]
    assert await detail(later, "erasure_external_verified") == {
        "entry_id": str(result.calls[0]), "resolver": "vendor",
    }  # fmt: skip
    assert await secrets(url) == []


async def test_a_resolver_that_cannot_verify_any_more_says_so(make, url: str) -> None:
    await asked_and_gone(make)
    later = make(Vendor())
    later.clock.advance(HEALED)
    assert await later.drain() == 1
    assert (await detail(later, FAILED))["error"] == "AttributeError"
    assert await secrets(url) == []


async def test_a_verification_that_is_discarded_is_forgotten_and_undoes_nothing(make, url: str) -> None:
    vendor = Verifying()
    app = make(vendor)
    result = await erase(app)
    assert await app.run_once() == 1
    assert await secrets(url) == ["verification"]
    assert await app.actions.discard(list(result.calls), **WHO) == list(result.calls)
    assert (await app.drain(), vendor.verified) == (0, 0)
    assert await secrets(url) == []
    one = await request(app, result.group_id)
    assert (one.status, one.calls, one.discarded) == ("completed", 1, 0)
    assert await trail(app) == DONE
    assert (await app.erasure.status_counts())["sent"] == 1


async def test_a_verification_is_no_open_call(make, url: str) -> None:
    app, result = await asked_and_gone(make)
    assert (await app.erasure.show(ADA)).calls == []
    counts = await app.erasure.status_counts()
    assert {status: count for status, count in counts.items() if count} == {"sent": 1}
    assert await app.erasure.requeue(result.calls, **WHO) == []


async def test_no_call_waits_for_a_verification_and_none_holds_it_up(make, url: str) -> None:
    vendor = Verifying("vendor", Erasure(), OSError())
    app = make(vendor)
    await erase(app)
    await erase(app)
    await app.drain()
    assert (await only_call(app)).status is Status.failed
    assert vendor.verified == 1, "though what was asked next about her fails"
    app.clock.advance(30)
    await app.drain()
    assert vendor.verified == 2
    assert await secrets(url) == []


async def test_what_expired_at_last_is_verified(make, url: str) -> None:
    class Expired(Retaining):
        verified = 0

        async def verify_absent(self, ref: SubjectRef) -> bool:
            assert ref == SubjectRef("vendor", VALUE)
            self.verified += 1
            return True

    vendor = Expired(OSError(), Schedule(already_absent=True))
    app = make(vendor)
    await erase(app)
    await app.drain()
    assert vendor.verified == 0
    app.clock.advance(30)
    await app.drain()
    assert (await trail(app))[-1] == "erasure_external_verified"
    assert (vendor.verified, await secrets(url)) == (1, [])


async def test_a_client_that_cancels_itself_cannot_say(make, url: str) -> None:
    class Cancelling(Vendor):
        async def verify_absent(self, ref: SubjectRef) -> bool:
            raise asyncio.CancelledError

    app = make(Cancelling())
    await erase(app)
    assert await app.drain() == 2
    assert (await detail(app, FAILED))["error"] == "CancelledError"
    assert await secrets(url) == []


async def test_a_verification_that_takes_workers_down_is_a_dead_letter(make, url: str) -> None:
    app, result = await asked_and_gone(make)
    await query(url, "UPDATE postlude_delivery SET starts = 3")
    vendor = Verifying()
    later = make(vendor)
    later.clock.advance(HEALED)
    await later.drain()
    assert vendor.verified == 0
    ((status, error),) = await query(url, "SELECT status, last_error FROM postlude_delivery")
    assert (status, "Poison" in error) == ("dead", True)
    assert await later.erasure.list_abandoned() == []
    assert await later.actions.requeue(list(result.calls), **WHO) == list(result.calls)
    assert await later.drain() == 1
    assert (await trail(app))[-1] == "erasure_external_verified"
    assert await secrets(url) == []
