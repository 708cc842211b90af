"""Corrections are kept for as long as a call may need them."""

from __future__ import annotations

import pytest

from postlude import ConfigurationError, ResolverError, Status
from tests.calling import WHO, Rectifying, detail, only_call, rectify, secrets, trail
from tests.engine import query


async def test_corrections_are_kept_over_retries_and_gone_after_success(make, url: str) -> None:
    vendor = Rectifying("vendor", OSError(), OSError())
    app = make(vendor)
    await rectify(app, value={"given": "Ada", "born": 1815})
    for _ in range(2):
        await app.drain()
        assert await secrets(url) == ["corrections", "subject"]
        app.clock.advance(3600)
    assert await app.drain() == 1
    assert [[one.value for one in given] for given in vendor.corrections] == [[{"given": "Ada", "born": 1815}]] * 3
    assert await secrets(url) == []
    assert (await trail(app))[-2:] == ["rectification_step_succeeded", "rectification_completed"]
    assert await detail(app, "rectification_step_succeeded") == {
        "entry_id": vendor.keys[0], "resolver": "vendor",
    }  # fmt: skip


@pytest.mark.parametrize("end", ["dead", "discarded", "buried"])
async def test_corrections_are_gone_on_every_other_end(make, url: str, end: str) -> None:
    vendor = Rectifying("vendor", ResolverError("no") if end == "dead" else OSError())
    app = make(vendor)
    result = await rectify(app)
    await app.drain()
    if end == "discarded":
        await app.actions.discard(list(result.calls), **WHO)
    if end == "buried":
        await app.actions.bury(list(result.calls), **WHO)
    assert await secrets(url) == ([] if end == "discarded" else ["subject"])
    for table in ("event", "delivery", "receipt", "audit", "secret"):
        for row in await query(url, f"SELECT * FROM postlude_{table}"):
            assert "Ada L." not in repr(row)


async def test_a_rectification_whose_corrections_are_gone_is_never_made(make, url: str) -> None:
    """Whoever sets its row back by hand does not have the vendor told that nothing is to be corrected."""
    vendor = Rectifying("vendor", ResolverError("no"))
    app = make(vendor)
    result = await rectify(app)
    await app.drain()
    assert await app.actions.requeue(list(result.calls), **WHO) == []
    with pytest.raises(ConfigurationError, match="corrections are gone"):
        await app.erasure.requeue(result.calls, **WHO)
    async with app.transaction() as tx:
        done = tx.execute("UPDATE postlude_delivery SET status = 'failed', attempts = 0")
        if hasattr(done, "__await__"):
            await done
    await app.drain()
    call = await only_call(app)
    assert (call.status, call.last_error, len(vendor.keys)) == (Status.dead, "SecretMissing", 1)
