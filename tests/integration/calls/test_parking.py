"""Calls that wait until a vendor has let the data expire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from postlude import Park, Schedule, Status
from tests.calling import Retaining, Vendor, detail, erase, only_call, records, secrets


def horizon(**ahead: float) -> datetime:
    return datetime.now(UTC) + timedelta(**ahead)


async def test_a_call_is_parked_until_the_horizon_and_each_slip_is_audited(make, url: str) -> None:
    first, second = horizon(days=10), horizon(days=20)
    vendor = Retaining(Schedule(expires_at=first), Schedule(expires_at=second), Schedule(already_absent=True))
    app = make(vendor)
    result = await erase(app)
    await app.drain()
    call = await only_call(app)
    assert (call.status, call.attempts, call.next_attempt_at) == (Status.scheduled, 0, first)
    assert [one.entry_id for one in await app.erasure.list_scheduled()] == list(result.calls)
    app.clock.advance(9 * 86_400)
    await app.drain()
    assert len(vendor.keys) == 1, "not before its time"
    app.clock.advance(2 * 86_400)
    await app.drain()
    assert (await only_call(app)).next_attempt_at == second
    slips = [one["detail"] for one in await records(app, "erasure_expiry_scheduled")]
    own = {"entry_id": str(result.calls[0]), "resolver": "vendor", "prior_attempts": 1}
    assert slips == [
        own | {"expires_at": first.isoformat()},
        own | {"expires_at": second.isoformat(), "prior_expires_at": first.isoformat()},
    ]
    app.clock.advance(10 * 86_400)
    assert await app.drain() == 1
    succeeded = await detail(app, "erasure_step_succeeded")
    assert (succeeded["already_absent"], succeeded["verified_expiry"]) == (True, True)
    assert len(set(vendor.keys)) == 1
    assert await secrets(url) == []


async def test_parking_resets_the_attempts(make) -> None:
    vendor = Retaining(OSError(), OSError(), Schedule(expires_at=horizon(hours=8)), *[OSError()] * 8)
    app = make(vendor)
    await erase(app)
    for _ in range(3):
        await app.drain()
        app.clock.advance(3600)
    assert (await only_call(app)).attempts == 0
    assert (await detail(app, "erasure_expiry_scheduled"))["prior_attempts"] == 3
    for _ in range(8):
        app.clock.advance(9 * 3600)
        await app.drain()
    call = await only_call(app)
    assert (call.status, call.attempts, len(vendor.keys)) == (Status.dead, 8, 11)


@pytest.mark.parametrize("at", [datetime(2001, 1, 1, tzinfo=UTC), None])
async def test_a_horizon_is_at_least_one_step_away(make, at: datetime | None) -> None:
    said = at or datetime.now(UTC) + timedelta(seconds=1)
    app = make(Retaining(Schedule(expires_at=said), Schedule(already_absent=True)))
    await erase(app)
    before = datetime.now(UTC)
    await app.drain()
    call = await only_call(app)
    assert call.next_attempt_at is not None
    assert before + timedelta(seconds=29) < call.next_attempt_at < datetime.now(UTC) + timedelta(seconds=31)
    assert (await detail(app, "erasure_expiry_scheduled"))["expires_at"] == said.isoformat(), "as the vendor said"


async def test_a_horizon_may_lie_at_the_ends_of_time(make) -> None:
    zones = [timezone(timedelta(hours=hours)) for hours in (-14, 0, 14)]
    ends = [end for zone in zones for end in (datetime.max.replace(tzinfo=zone), datetime.min.replace(tzinfo=zone))]
    app = make(Retaining(*[Schedule(expires_at=end) for end in ends]))
    for number, _ in enumerate(ends):
        await erase(app, subject=f"s-{number}")
    await app.drain()
    assert (await app.erasure.status_counts())["scheduled"] == len(ends)


async def test_parking_never_abandons_by_itself(make) -> None:
    vendor = Retaining(*[Schedule(expires_at=horizon(days=n)) for n in range(1, 13)], Schedule(already_absent=True))
    app = make(vendor)
    await erase(app)
    for _ in range(12):
        await app.drain()
        assert (await only_call(app)).status is Status.scheduled
        app.clock.advance(86_400)
    assert await app.drain() == 1


async def test_gone_at_the_first_question_is_no_verified_expiry(make) -> None:
    app = make(Retaining(Schedule(already_absent=True)))
    await erase(app)
    assert await app.drain() == 1
    assert "verified_expiry" not in await detail(app, "erasure_step_succeeded")


async def test_a_resolver_that_raises_park_is_parked_with_a_record(make) -> None:
    until_then = horizon(hours=2)
    app = make(Vendor("vendor", Park(until=until_then)))
    await erase(app)
    await app.drain()
    assert (await only_call(app)).next_attempt_at == until_then
    assert (await detail(app, "erasure_expiry_scheduled"))["expires_at"] == until_then.isoformat()
