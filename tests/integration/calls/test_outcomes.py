"""Every outcome that a call to a foreign system can have, and what stands in the books after it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from postlude import DatabaseUnavailable, Erasure, ResolverError, Schedule, Status, SubjectRef
from tests.calling import (
    ADA,
    VALUE,
    WHO,
    Retaining,
    Vendor,
    Verifying,
    calling_app,
    detail,
    erase,
    only_call,
    records,
    rectify,
    request,
    secrets,
    trail,
)
from tests.engine import until, workers

STEPS = [30, 60, 120, 240, 480, 960, 1920]
"""Seconds between the eight attempts."""


# ---------------------------------------------------------------- what it answers


async def test_a_vendors_answer_does_not_get_into_the_trail(make) -> None:
    answers: list[Any] = [{"email": VALUE}, object()]
    app = make(Vendor("vendor", *(Erasure(already_absent=one) for one in answers)))
    for _ in answers:
        await erase(app)
        assert await app.drain() == 1
    succeeded = await records(app, "erasure_step_succeeded")
    assert [one["detail"]["already_absent"] for one in succeeded] == [True, True]


@pytest.mark.parametrize("absent", [False, True])
async def test_an_erasure_is_a_success_also_when_there_was_nothing(make, url: str, absent: bool) -> None:
    vendor = Vendor("vendor", Erasure(already_absent=absent))
    app = make(vendor)
    result = await erase(app)
    assert await app.drain() == 1
    assert vendor.keys == [str(entry) for entry in result.calls]
    assert vendor.refs == [SubjectRef("vendor", VALUE)]
    assert await trail(app) == [
        "erasure_requested", "erasure_local_completed", "erasure_step_succeeded", "erasure_completed",
    ]  # fmt: skip
    assert await detail(app, "erasure_step_succeeded") == {
        "entry_id": str(result.calls[0]), "resolver": "vendor", "already_absent": absent,
    }  # fmt: skip
    assert (await request(app, result.group_id)).status == "completed"
    assert await secrets(url) == []
    assert (await app.erasure.status_counts())["sent"] == 1


class AccountLocked(ResolverError):
    """A vendor's own."""


@pytest.mark.parametrize("error", [ResolverError, AccountLocked])
async def test_a_resolver_error_abandons_at_once(make, url: str, error: type[ResolverError]) -> None:
    vendor = Vendor("vendor", error(f"{VALUE} is locked"))
    app = make(vendor)
    result = await erase(app)
    assert await app.drain() == 0
    call = await only_call(app)
    assert (call.status, call.attempts, call.last_error) == (Status.dead, 1, error.__name__)
    assert (call.next_attempt_at, call.subject_id, call.ref) == (None, ADA, SubjectRef("vendor", VALUE))
    failed = await detail(app, "erasure_step_failed")
    assert failed == {
        "entry_id": str(result.calls[0]), "resolver": "vendor", "abandoned": True, "attempts": 1,
        "error": error.__name__, "generation": 1,
    }  # fmt: skip
    assert "erasure_completed" not in await trail(app)
    app.clock.advance(90 * 86_400)
    await app.drain()
    assert len(vendor.keys) == 1


@pytest.mark.parametrize("others", [[], [OSError("and the line broke")]])
async def test_a_resolver_error_counts_in_a_group_of_tasks_too(make, others: list[Exception]) -> None:
    async def refused() -> None:
        raise ExceptionGroup("two requests at once", [ExceptionGroup("inner", [ResolverError("locked")]), *others])

    app = make(Vendor("vendor", refused))
    await erase(app)
    await app.drain()
    call = await only_call(app)
    assert (call.status, call.attempts, call.last_error) == (Status.dead, 1, "ResolverError")


async def test_an_unknown_resolver_name_waits_and_is_seen(make, url: str) -> None:
    """A worker that knows it may come, so it stays and is counted."""
    await erase(make(Vendor()))
    without = make()
    assert await without.drain() == 0
    assert (await only_call(without)).status is Status.pending
    assert await without.insight.unserved() == {"call:vendor": 1}
    vendor = Vendor()
    await make(vendor).drain()
    assert len(vendor.keys) == 1


async def test_another_error_is_tried_again_and_not_audited(make, url: str) -> None:
    vendor = Vendor("vendor", TimeoutError(f"no answer about {VALUE}"))
    app = make(vendor)
    await erase(app)
    await app.drain()
    call = await only_call(app)
    assert (call.status, call.attempts, call.last_error) == (Status.failed, 1, "TimeoutError")
    assert await trail(app) == ["erasure_requested", "erasure_local_completed"]
    assert call.last_attempt_at is not None
    assert call.next_attempt_at is not None
    app.clock.advance(30)
    assert await app.drain() == 1
    assert len(set(vendor.keys)) == 1
    assert "erasure_step_failed" not in await trail(app)


async def test_when_attempts_are_exhausted_it_is_abandoned(make, url: str) -> None:
    vendor = Vendor("vendor", *[ConnectionError()] * 20)
    app = make(vendor)
    await erase(app)
    for number, step in enumerate(STEPS, start=1):
        await app.drain()
        assert len(vendor.keys) == number
        call = await only_call(app)
        assert (call.status, call.attempts) == (Status.failed, number)
        assert call.next_attempt_at is not None
        assert call.last_attempt_at is not None
        waits = (call.next_attempt_at - call.last_attempt_at).total_seconds()
        assert step <= waits < step + 15, "the step, and how long the attempt took"
        app.clock.advance(step - 15)
        await app.drain()
        assert len(vendor.keys) == number, "not before its time"
        app.clock.advance(15)
    await app.drain()
    call = await only_call(app)
    assert (call.status, call.attempts, len(vendor.keys)) == (Status.dead, 8, 8)
    assert (await detail(app, "erasure_step_failed"))["attempts"] == 8
    assert len(set(vendor.keys)) == 1


def test_the_schedule_doubles_up_to_an_hour_without_chance() -> None:
    retry = calling_app("sqlite:///unused.db").resolvers.retry
    for chance in (0.0, 0.5, 0.999):
        steps = [retry.delay(n, chance=chance).total_seconds() for n in range(1, 11)]
        assert steps == [*STEPS, 3600, 3600, 3600]
    assert retry.max_attempts == 8


# ---------------------------------------------------------------- how it is called


async def test_rectifying_without_the_capability_abandons_at_once(make, url: str) -> None:
    vendor = Vendor()
    app = make(vendor)
    await rectify(app)
    await app.drain()
    call = await only_call(app)
    assert (call.status, call.last_error, vendor.keys) == (Status.dead, "ResolverError", [])
    assert await secrets(url) == ["subject"], "the corrections are gone"
    assert "rectification_step_failed" in await trail(app)


async def test_a_call_that_takes_too_long_is_tried_again(url: str, make) -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    slow, quick = Vendor("slow", hangs), Vendor("quick")
    app = make(quick)
    app.resolvers.register(slow, timeout=0.05)
    await erase(app, "slow", "quick")
    await app.drain()
    assert (await only_call(app)).last_error == "TimeoutError"
    app.clock.advance(30)
    assert await app.drain() == 1
    assert (len(slow.keys), len(set(slow.keys)), len(quick.keys)) == (2, 1, 1)


async def test_no_more_calls_at_a_time_than_the_resolver_bears(make) -> None:
    pairs = asyncio.Barrier(2)
    active = peak = 0

    async def in_pairs() -> Erasure:
        nonlocal active, peak
        active += 1
        peak = max(peak, active)
        async with asyncio.timeout(20):
            await pairs.wait()
        active -= 1
        return Erasure()

    vendor = Vendor("vendor", *[in_pairs] * 6)
    app = make()
    app.resolvers.register(vendor, concurrency=2)
    for n in range(6):
        await erase(app, subject=f"s-{n}")
    assert await app.drain() == 6
    assert peak == 2


async def test_calls_start_no_faster_than_the_rate(make) -> None:
    step, moments = 0.04, []

    async def look() -> Erasure:
        moments.append(time.monotonic())
        return Erasure()

    app = make()
    app.resolvers.register(Vendor("vendor", *[look] * 5), rate=1 / step)
    for n in range(5):
        await erase(app, subject=f"s-{n}")
    began = time.monotonic()
    assert await app.drain() == 5
    assert all(moment - began >= n * step - 0.001 for n, moment in enumerate(sorted(moments)))


async def test_the_idempotency_key_stays_through_retries_and_requeue(make) -> None:
    vendor = Vendor("vendor", OSError(), OSError(), ResolverError("no"), OSError())
    app = make(vendor)
    result = await erase(app)
    for _ in range(3):
        await app.drain()
        app.clock.advance(3600)
    (again,) = await app.erasure.requeue(result.calls, **WHO)
    assert again.entry_id == result.calls[0]
    await app.drain()
    app.clock.advance(30)
    assert await app.drain() == 1
    assert vendor.keys == [str(result.calls[0])] * 5
    assert vendor.effects == {str(result.calls[0]): 1}


async def test_a_cancellation_is_no_outcome(make, url: str) -> None:
    entered = asyncio.Event()

    async def hangs() -> None:
        entered.set()
        await asyncio.Event().wait()

    vendor = Vendor("vendor", hangs)
    app = make(vendor)
    await erase(app)
    async with workers(app) as (worker,):
        passing = asyncio.create_task(worker.drain_once())
        async with asyncio.timeout(20):
            await entered.wait()
        await worker.stop(timeout=0)
        await passing
    call = await only_call(app)
    assert (call.status, call.attempts, call.last_error) == (Status.claimed, 1, None)
    assert await trail(app) == ["erasure_requested", "erasure_local_completed"]
    await app.drain()
    assert len(vendor.keys) == 1, "its lease is not over"
    app.clock.advance(60)
    assert await app.drain() == 1
    assert len(set(vendor.keys)) == 1
    assert await secrets(url) == []


async def test_a_cancellation_inside_the_client_is_a_failure(make) -> None:
    vendor = Vendor("vendor", asyncio.CancelledError())
    app = make(vendor)
    await erase(app)
    await app.drain()
    call = await only_call(app)
    assert (call.status, call.last_error) == (Status.failed, "CancelledError")


class Bomb(BaseException):
    """No Exception."""


@pytest.mark.parametrize("raised", [Bomb, SystemExit])
async def test_what_never_has_an_outcome_is_given_up_after_all_attempts(
    make, caplog: pytest.LogCaptureFixture, raised: type[BaseException]
) -> None:
    """A worker does not end because a client calls sys.exit()."""
    vendor = Vendor("vendor", *[raised(VALUE)] * 20)
    app = make(vendor)
    await erase(app)
    for number in range(1, 9):
        await app.run_once()
        call = await only_call(app)
        assert (call.status, call.attempts, len(vendor.keys)) == (Status.claimed, number, number), "no outcome"
        app.clock.advance(60)
    await app.run_once()
    call = await only_call(app)
    assert (call.status, call.last_error, len(vendor.keys)) == (Status.dead, "AttemptsExhausted", 8)
    assert raised.__name__ in caplog.text
    assert VALUE not in caplog.text


async def test_an_error_of_ours_in_a_resolver_is_the_resolvers(make) -> None:
    app = make(Vendor("vendor", DatabaseUnavailable("the vendor's own Postlude")))
    await erase(app)
    await app.drain()
    assert (await only_call(app)).last_error == "DatabaseUnavailable"


async def test_a_wrong_result_is_dead_at_once(make) -> None:
    answers = [True, "gone", {"already_absent": True}, Schedule(already_absent=True)]
    app = make(Vendor("vendor", *answers))
    for number, _ in enumerate(answers):
        await erase(app, subject=f"s-{number}")
    await app.drain()
    dead = await app.erasure.list_abandoned()
    assert [one.last_error for one in dead] == ["ContractViolation"] * len(answers)


async def test_a_wrong_schedule_is_dead_at_once(make) -> None:
    app = make(Retaining(Erasure()))
    await erase(app)
    await app.drain()
    assert (await only_call(app)).status is Status.dead


# ---------------------------------------------------------------- verification


@pytest.mark.parametrize(
    ("absent", "action", "said"),
    [
        (True, "erasure_external_verified", {}),
        (False, "erasure_external_verification_failed", {}),
        (OSError(VALUE), "erasure_external_verification_failed", {"error": "OSError"}),
        (ResolverError(VALUE), "erasure_external_verification_failed", {"error": "ResolverError"}),
        (asyncio.CancelledError(VALUE), "erasure_external_verification_failed", {"error": "CancelledError"}),
        (Bomb(VALUE), "erasure_external_verification_failed", {"error": "Bomb"}),
    ],
)
async def test_verification_is_recorded_and_reverts_nothing(
    make, url: str, absent: Any, action: str, said: dict[str, str]
) -> None:
    vendor = Verifying(absent=absent)
    app = make(vendor)
    result = await erase(app)
    assert await app.drain() == 2, "the call, and its verification"
    assert await trail(app) == [
        "erasure_requested", "erasure_local_completed", "erasure_step_succeeded", "erasure_completed", action,
    ]  # fmt: skip
    assert await detail(app, action) == {"entry_id": str(result.calls[0]), "resolver": "vendor"} | said
    assert (await request(app, result.group_id)).status == "completed"
    app.clock.advance(86_400)
    assert await app.drain() == 0
    assert (len(vendor.keys), vendor.verified) == (1, 1)


async def test_a_verification_that_hangs_is_recorded_too(make) -> None:
    class Hanging(Vendor):
        async def verify_absent(self, ref: SubjectRef) -> bool:
            await asyncio.Event().wait()
            return True

    app = make()
    app.resolvers.register(Hanging(), timeout=0.05)
    await erase(app)
    assert await app.drain() == 2
    assert (await detail(app, "erasure_external_verification_failed"))["error"] == "TimeoutError"


async def test_nothing_is_verified_without_a_success(make) -> None:
    failing = Verifying("vendor", OSError(), ResolverError("no"))
    app = make(failing)
    await erase(app)
    await app.drain()
    app.clock.advance(30)
    await app.drain()
    assert failing.verified == 0


# ---------------------------------------------------------------- by itself


async def test_the_worker_goes_on_by_itself(make) -> None:
    vendor = Vendor()
    app = make(vendor)
    async with app.worker():
        result = await erase(app)
        await until(lambda: len(vendor.keys) == 1)

        async def is_complete() -> bool:
            return bool((await request(app, result.group_id)).status == "completed")

        await until(is_complete)
