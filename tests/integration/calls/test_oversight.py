"""What operators see of calls and do to them, and the hooks that tell of abandoned ones."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from postlude import (
    AbandonedSignal,
    CallOperation,
    ConfigurationError,
    InvalidId,
    Postlude,
    ResolverError,
    Schedule,
    Status,
)
from postlude.erasure.oversight import Oversight
from postlude.ports.calls import Calls
from tests.calling import ADA, WHO, Rectifying, Retaining, Vendor, detail, erase, only_call, rectify, request, trail
from tests.engine import die, query, until, workers

# ---------------------------------------------------------------- hooks


async def test_the_hook_is_told_after_abandonment_and_record_are_durable(make, url: str) -> None:
    told: list[AbandonedSignal] = []
    seen: list[Any] = []
    app: Postlude = make(Vendor("vendor", ResolverError("no")))

    @app.erasure.on_abandoned
    def look(signal: AbandonedSignal) -> None:
        read = "SELECT status, (SELECT count(*) FROM postlude_audit WHERE action = 'erasure_step_failed') FROM postlude_delivery"
        seen.extend(asyncio.run(query(url, read)))
        told.append(signal)

    result = await erase(app)
    await app.drain()
    await until(lambda: bool(told))
    assert seen == [("dead", 1)]
    assert told == [
        AbandonedSignal(
            attempts=1,
            entry_id=result.calls[0],
            error="ResolverError",
            operation=CallOperation.erase,
            resolver="vendor",
            subject_id=ADA,
        )
    ]


async def test_a_hook_that_nobody_would_await_is_refused(make) -> None:
    async def page(_: AbandonedSignal) -> None: ...

    app: Postlude = make(Vendor("vendor"))
    hook: Any = page
    with pytest.raises(ConfigurationError, match="would never be awaited"):
        app.erasure.on_abandoned(hook)


async def test_a_hook_that_raises_or_blocks_changes_nothing(make) -> None:
    release, entered = threading.Event(), threading.Event()
    told: list[AbandonedSignal] = []
    vendor = Vendor("vendor", ResolverError("no"), ResolverError("no"))
    app: Postlude = make(vendor)

    @app.erasure.on_abandoned
    def blocks(signal: AbandonedSignal) -> None:
        entered.set()
        release.wait(20)

    @app.erasure.on_abandoned
    def raises(signal: AbandonedSignal) -> None:
        raise RuntimeError

    app.erasure.on_abandoned(told.append)
    try:
        for subject in ("a", "b", "c"):
            await erase(app, subject=subject)
        assert await app.drain() == 1, "the third is made while the hook blocks"
        await until(entered.is_set)
        assert told == []
        assert (await app.erasure.status_counts())["dead"] == 2
    finally:
        release.set()
    await until(lambda: len(told) == 2)


async def test_no_hook_for_what_is_tried_again_or_made(make) -> None:
    told: list[AbandonedSignal] = []
    app: Postlude = make(Vendor("vendor", OSError()))
    app.erasure.on_abandoned(told.append)
    await erase(app)
    await app.drain()
    app.clock.advance(30)
    assert await app.drain() == 1
    await app.close()
    assert told == []


async def test_a_call_that_kills_its_worker_is_poison_and_told(make) -> None:
    entered = asyncio.Event()
    told: list[AbandonedSignal] = []

    async def never_returns() -> None:
        entered.set()
        await asyncio.Event().wait()

    vendor = Vendor("vendor", *[never_returns] * 9)
    app: Postlude = make(vendor)
    app.erasure.on_abandoned(told.append)
    await erase(app)
    await app.start()
    for number in range(1, 4):
        entered.clear()
        worker = app.engine.new_worker(duties=False)
        await worker.start()
        passing = asyncio.create_task(worker.drain_once())
        async with asyncio.timeout(20):
            await entered.wait()
        await die(worker)
        passing.cancel()
        await asyncio.wait([passing])
        for relay in worker.relays.values():
            await relay.quiesce(0)
        assert len(vendor.keys) == number
        app.clock.advance(120)
    await app.drain()
    call = await only_call(app)
    assert (call.status, call.last_error, len(vendor.keys)) == (Status.dead, "Poison", 3)
    assert (await detail(app, "erasure_step_failed"))["error"] == "Poison"
    await until(lambda: bool(told))
    assert [(one.error, one.subject_id) for one in told] == [("Poison", ADA)]


async def test_a_call_that_is_cut_off_by_every_stop_of_its_worker_is_no_poison(make) -> None:
    entered = asyncio.Event()

    async def hangs() -> None:
        entered.set()
        await asyncio.Event().wait()

    vendor = Vendor("vendor", *[hangs] * 4)
    app: Postlude = make(vendor)
    await erase(app)
    for number in range(1, 5):
        entered.clear()
        async with workers(app) as (worker,):
            passing = asyncio.create_task(worker.drain_once())
            async with asyncio.timeout(20):
                await entered.wait()
            passing.cancel()
            await asyncio.wait([passing])
            for relay in worker.relays.values():
                await relay.quiesce(0)
            await worker.stop(timeout=20)
        assert len(vendor.keys) == number
        app.clock.advance(120)
    assert await app.drain() == 1, "the fifth attempt is as good as the first"
    assert (await trail(app))[-1] == "erasure_completed"


# ---------------------------------------------------------------- lists and counts


async def test_lists_come_in_their_orders(make) -> None:
    later, sooner = (datetime.now(UTC) + timedelta(days=days) for days in (9, 3))
    keeping = Retaining(Schedule(expires_at=later), Schedule(expires_at=sooner), name="keeping")
    app: Postlude = make(Vendor("vendor", ResolverError("no"), ResolverError("no")), keeping)
    dead = [(await erase(app, subject=subject)).calls[0] for subject in ("a", "b")]
    for _ in ("first", "second"):
        parked = (await erase(app, "keeping", subject=f"s-{uuid4()}")).calls[0]
        await app.drain()
    assert [one.entry_id for one in await app.erasure.list_abandoned()] == dead, "the oldest first"
    scheduled = await app.erasure.list_scheduled()
    assert [one.next_attempt_at for one in scheduled] == [sooner, later]
    assert scheduled[0].entry_id == parked
    assert len(await app.erasure.list_abandoned(limit=1)) == 1
    listed = await app.erasure.list(limit=3)
    assert [one.created_at for one in listed] == sorted((one.created_at for one in listed), reverse=True)
    assert len(await app.erasure.list(after=listed[-1].id)) == 1
    for limit in (0, -1, 10_001):
        with pytest.raises(ConfigurationError, match="limit"):
            await app.erasure.list_abandoned(limit=limit)


async def test_counts_have_every_status(make) -> None:
    app: Postlude = make(Vendor("vendor", ResolverError("no"), OSError()))
    assert await app.erasure.status_counts() == dict.fromkeys(map(str, Status), 0)
    for subject in ("a", "b", "c"):
        await erase(app, subject=subject)
    await app.drain()
    expected = {"dead": 1, "failed": 1, "sent": 1}
    assert await app.erasure.status_counts() == dict.fromkeys(map(str, Status), 0) | expected


async def test_what_is_past_its_deadline_is_overdue(make) -> None:
    app: Postlude = make(Vendor("vendor", *[ResolverError("no")] * 2))
    first = await erase(app, subject="a")
    app.clock.advance(86_400)
    second = await erase(app, subject="b")
    await app.drain()
    app.clock.advance(29.5 * 86_400)
    assert [one.id for one in await app.erasure.overdue()] == [first.group_id]
    app.clock.advance(86_400)
    assert [one.id for one in await app.erasure.overdue()] == [first.group_id, second.group_id]
    assert {one.status for one in await app.erasure.overdue()} == {"overdue"}
    assert await app.erasure.gauges() == {"postlude_erasures_overdue": 2, "postlude_calls_overdue": 2}
    await app.erasure.requeue([*first.calls, *second.calls], **WHO)
    await app.drain()
    assert await app.erasure.overdue() == []


# ---------------------------------------------------------------- requeue


async def test_requeue_is_audited_once_and_skips_what_is_not_abandoned(make) -> None:
    vendor = Vendor("vendor", ResolverError("no"))
    app: Postlude = make(vendor)
    dead = await erase(app, subject="dead")
    await app.drain()
    waiting = await erase(app, subject="waiting")
    ids = [*dead.calls, *waiting.calls, uuid4()]
    (again,) = await app.erasure.requeue(map(str, ids), **WHO)
    assert (again.entry_id, again.status, again.attempts, again.last_error) == (dead.calls[0], Status.failed, 0, None)
    assert await app.erasure.requeue(ids, **WHO) == []
    assert await app.erasure.requeue([], **WHO) == []
    assert await detail(app, "erasure_requeued", "dead") == {
        "entry_id": str(dead.calls[0]), "resolver": "vendor", "prior_attempts": 1, "prior_error": "ResolverError",
        "generation": 1,
    }  # fmt: skip
    assert await app.drain() == 2
    assert Counter(await trail(app, "dead"))["erasure_completed"] == 1
    assert (await request(app, dead.group_id, "dead")).status == "completed"


async def test_a_rectification_is_refused_before_anything_changes(make) -> None:
    app: Postlude = make(Rectifying("vendor", ResolverError("no"), ResolverError("no")))
    erased, rectified = await erase(app, subject="a"), await rectify(app, subject="b")
    await app.drain()
    with pytest.raises(ConfigurationError, match=str(rectified.calls[0])):
        await app.erasure.requeue([*erased.calls, *rectified.calls], **WHO)
    assert len(await app.erasure.list_abandoned()) == 2
    assert "erasure_requeued" not in await trail(app, "a")


async def test_a_requeue_needs_somebody_and_a_reason(make) -> None:
    app: Postlude = make(Vendor())
    wrong: list[Any] = [" ", "", None, 7, "a\0"]
    for who in [*({"actor": one, "reason": "x"} for one in wrong), *({"actor": "x", "reason": one} for one in wrong)]:
        with pytest.raises(ConfigurationError):
            await app.erasure.requeue([], **who)
    with pytest.raises(InvalidId):
        await app.erasure.requeue(["no-uuid"], **WHO)


async def test_a_requeued_call_is_told_of_though_a_worker_was_quicker(make) -> None:
    app: Postlude = make(Vendor("vendor", ResolverError("no")))
    result = await erase(app)
    await app.drain()

    class Quick:
        """Between the requeue and the next look, everything that is due is made."""

        def __getattr__(self, name: str) -> Any:
            return getattr(app.store.calls, name)

        async def requeue(self, ids: Sequence[UUID], *, actor: str, reason: str) -> list[UUID]:
            changed = await app.store.calls.requeue(ids, actor=actor, reason=reason)
            assert await app.drain() == 1
            return changed

    oversight = Oversight(lambda: cast(Calls, Quick()), app.erasure.pseudonym, app.start)
    (call,) = await oversight.requeue(result.calls[0], **WHO)
    assert (call.entry_id, call.status, call.attempts, call.last_error) == (result.calls[0], Status.failed, 0, None)
    assert (await app.erasure.show(ADA)).calls == []


async def test_requeued_calls_have_a_fresh_budget(make) -> None:
    vendor = Vendor("vendor", ResolverError("no"), *[OSError()] * 8)
    app: Postlude = make(vendor)
    result = await erase(app)
    await app.drain()
    await app.erasure.requeue(result.calls, **WHO)
    for _ in range(8):
        await app.drain()
        app.clock.advance(3600)
    call = await only_call(app)
    assert (call.status, call.attempts, len(vendor.keys)) == (Status.dead, 8, 9)
    assert Counter(await trail(app))["erasure_step_failed"] == 2
