"""What calls keep secret, where the app has keys: stored sealed, opened for the resolver, sealed again, read by nobody."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from postlude import KeyRing, Postlude, ResolverError, Schedule, Status
from tests.calling import ADA, ON_BOTH, VALUE, WHO, Rectifying, Retaining, Vendor, erase, only_call, rectify, secrets
from tests.databases import Databases
from tests.engine import query, until
from tests.sealing import app_with, key_of, ring


@pytest.fixture(params=ON_BOTH)
def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh()


def app_for(url: str, vendor: Any, keys: KeyRing | None, **settings: Any) -> Postlude:
    app = app_with(url, keys, calls={"retry": {"base_delay_seconds": 1, "max_attempts": 3}}, **settings)
    app.resolvers.register(vendor)
    return app


async def contents(url: str) -> list[bytes]:
    found = await query(url, "SELECT content FROM postlude_secret WHERE part <> 'horizon' ORDER BY event_id, part")
    return [bytes(content) for (content,) in found]


async def test_nobody_reads_in_the_database_whom_a_call_is_about(url: str) -> None:
    vendor = Rectifying()
    async with app_for(url, vendor, ring("k1")) as app:
        await erase(app)
        await rectify(app, value="Ada Lovelace")
        stored = await contents(url)
        assert len(stored) == 3
        for one in stored:
            assert one.startswith(b"\x01k1\0")
            assert all(word not in one for word in (ADA.encode(), VALUE.encode(), b"Lovelace"))
        assert {(one.subject_id, one.ref.value) for one in (await app.erasure.show(ADA)).calls} == {(ADA, VALUE)}
        await app.drain()
    assert [one.value for one in vendor.refs] == [VALUE, VALUE]
    assert [one.value for (one,) in vendor.corrections] == ["Ada Lovelace"]
    assert await secrets(url) == []


async def test_an_abandoned_call_is_told_of_and_made_again(url: str) -> None:
    vendor = Vendor("vendor", ResolverError("no"))
    app = app_for(url, vendor, ring("k1"))
    told: list[str] = []
    app.erasure.on_abandoned(lambda signal: told.append(signal.subject_id))
    async with app:
        await erase(app)
        await app.drain()
        await until(lambda: told == [ADA])
        (call,) = await app.erasure.list_abandoned()
        assert (call.subject_id, call.ref.value) == (ADA, VALUE)
        assert [one.subject_id for one in await app.erasure.requeue([call.entry_id], **WHO)] == [ADA]
        await app.drain()
    assert len(vendor.refs) == 2
    assert await secrets(url) == []


async def test_a_call_that_was_parked_knows_its_horizon(url: str) -> None:
    later = datetime.now(UTC) + timedelta(days=30)
    vendor = Retaining(Schedule(expires_at=later), Schedule(already_absent=True))
    async with app_for(url, vendor, ring("k1")) as app:
        await erase(app)
        await app.drain()
        (call,) = await app.erasure.list_scheduled()
        assert (call.subject_id, call.next_attempt_at) == (ADA, later)
        await app.privacy.rotate(**WHO)
        app.clock.advance(31 * 86_400)
        await app.drain()
    assert len(vendor.keys) == 2
    assert await secrets(url) == []


async def test_rotation_seals_secrets_again_also_those_from_before(url: str) -> None:
    vendor = Vendor()
    for keys in (None, ring("k1")):
        async with app_for(url, vendor, keys) as app:
            await erase(app)
    async with app_for(url, vendor, ring("k2", "k1")) as app:
        rotated = await app.privacy.rotate(**WHO)
        assert (rotated.secrets_left, rotated.keys_left) == (0, 0)
        assert [one[:4] for one in await contents(url)] == [b"\x01k2\0", b"\x01k2\0"]
        (record,) = await app.insight.audits(target="calls")
        assert (record["action"], record["detail"]) == ("reseal", {"key": "k2", "secrets": 2})
        await app.privacy.rotate(**WHO)
        assert len(await app.insight.audits(target="calls")) == 1, "there was nothing left to do"
    async with app_for(url, vendor, ring("k2")) as app:
        await app.drain()
    assert [one.value for one in vendor.refs] == [VALUE, VALUE]


async def test_without_the_key_a_call_is_tried_again_and_shows_nobody(url: str) -> None:
    vendor = Vendor()
    async with app_for(url, vendor, ring("k1")) as app:
        await erase(app)
    for passed, keys in ((0, None), (60, ring("k2"))):
        async with app_for(url, vendor, keys) as app:
            app.clock.advance(passed)
            await app.drain()
            call = await only_call(app)
            assert (call.status, call.last_error) == (Status.failed, "KeyUnknown")
            assert (call.subject_id, call.ref.value) == ("", "")
    async with app_for(url, vendor, ring("k2")) as app:
        assert (await app.privacy.rotate(**WHO)).secrets_left == 1
    async with app_for(url, vendor, ring("k2", "k1")) as app:
        app.clock.advance(600)
        await app.drain()
    assert [one.value for one in vendor.refs] == [VALUE]


async def test_a_key_service_that_is_down_burns_no_attempt_of_a_call(url: str) -> None:
    is_down = False

    def find(key_id: str) -> bytes:
        if is_down:
            raise OSError
        return key_of(key_id)

    vendor = Vendor()
    async with app_for(url, vendor, KeyRing(find, active="k1", cache_seconds=0)) as app:
        await erase(app)
        is_down = True
        await app.run_once()
        assert vendor.refs == []
        is_down = False
        await app.drain()
        assert (await app.erasure.status_counts())["sent"] == 1
        ((attempts,),) = await query(url, "SELECT attempts FROM postlude_receipt")
        assert attempts == 1


async def test_a_secret_of_another_call_or_part_does_not_open(url: str) -> None:
    vendor = Rectifying()
    async with app_for(url, vendor, ring("k1")) as app:
        await rectify(app)
        await query(
            url, "UPDATE postlude_secret SET content ="
            " (SELECT s.content FROM postlude_secret s WHERE s.part = 'subject') WHERE part = 'corrections'",
        )  # fmt: skip
        await app.drain()
        assert (await only_call(app)).last_error == "BrokenSeal"
    assert vendor.corrections == []
