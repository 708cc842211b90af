"""The flaky vendors that erasure is tested against: what they do is known beforehand, and they count honestly."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from examples.resolvers.asking import VendorUnavailable
from examples.resolvers.http import HttpResolver
from examples.resolvers.log_vendor import LogVendorResolver
from examples.resolvers.object_store import ObjectStoreResolver
from postlude import ResolverError, SubjectRef
from tests.vendor_server import InThread, VendorAdmin, vendor_process
from tests.vendors import VERSIONS, Asked, Plan, Vendors

FLAKY = Plan(seed=7, rate=0.3, refused=0.05)
PEOPLE = [f"person-{number:03}" for number in range(40)]


def test_a_plan_is_the_same_everywhere() -> None:
    assert [FLAKY.fault("crm", "person-000", number) for number in range(8)] == [
        FLAKY.fault("crm", "person-000", number) for number in range(8)
    ]
    fates = {plan: [plan.fate("crm", person) for person in PEOPLE] for plan in (FLAKY, Plan(seed=8, refused=0.05))}
    assert len(set(map(tuple, fates.values()))) == 2


def test_a_plan_keeps_its_rates() -> None:
    plan = Plan(seed=1, rate=0.3, most=1000, refused=0.05)
    fates = Counter(plan.fate("crm", str(number)) for number in range(2000))
    assert 60 <= fates["refused"] <= 140
    faults = [Plan(seed=1, rate=0.3).fault("crm", str(number), 0) for number in range(2000)]
    assert 500 <= len([fault for fault in faults if fault]) <= 700


def test_a_subject_has_only_so_many_faults() -> None:
    plan = Plan(seed=3, rate=0.9, most=4)
    for person in PEOPLE[:10]:
        faults = [plan.fault("crm", person, number) for number in range(30)]
        assert len([fault for fault in faults if fault]) == 4


def test_a_key_that_is_repeated_has_one_effect_and_one_answer() -> None:
    vendors = Vendors()
    vendors.give("rest", "crm", ["ada"], {})
    delete = Asked("DELETE", "/rest/crm/customers/ada", {"idempotency-key": "k-1"})
    assert [vendors.answer(delete).status for _ in range(3)] == [204] * 3
    other = Asked("DELETE", "/rest/crm/customers/ada", {"idempotency-key": "k-2"})
    assert vendors.answer(other).status == 404
    assert [(one.key, one.target) for one in vendors.done()] == [("k-1", "ada")]
    assert sorted(vendors.keyed()) == [("crm", "ada", "k-1", 3), ("crm", "ada", "k-2", 1)]


def test_a_key_with_another_body_is_refused() -> None:
    vendors = Vendors()
    vendors.give("rest", "crm", ["ada"], {})
    patches = [
        Asked("PATCH", "/rest/crm/customers/ada", {"idempotency-key": "k-1"}, body) for body in (b'{"a":1}', b'{"a":2}')
    ]
    assert [vendors.answer(patch).status for patch in patches] == [200, 422]
    assert vendors.values("crm", "ada") == {"a": 1}


def test_what_has_no_key_has_its_effect_each_time() -> None:
    vendors = Vendors()
    vendors.give("rest", "crm", ["ada"], {})
    patch = Asked("PATCH", "/rest/crm/customers/ada", {}, b"{}")
    assert [vendors.answer(patch).status for _ in range(2)] == [200, 200]
    assert len(vendors.done()) == 2


def test_logs_expire_in_their_time() -> None:
    vendors = Vendors(retention=0)
    vendors.give("logs", "logs", ["ada"], {})
    ask = Asked("POST", "/logs/logs/subjects/ada/expiry", {"idempotency-key": "k-1"})
    assert [vendors.answer(ask).status for _ in range(2)] == [200, 404]
    assert len(vendors.done()) == 1


@pytest.fixture
async def clients() -> AsyncIterator[list[httpx.AsyncClient]]:
    opened: list[httpx.AsyncClient] = []
    yield opened
    for client in opened:
        await client.aclose()


async def test_every_effect_happens_once_through_all_faults(clients: list[httpx.AsyncClient]) -> None:
    """In small what the acceptance test does: a process, three vendors, and calls that are made until they end."""
    with vendor_process(FLAKY) as admin:
        resolvers = _resolvers(admin, clients)
        places = asyncio.Semaphore(24)
        outcomes = await asyncio.gather(*(_finish(one, person, places) for one in resolvers for person in PEOPLE))
        scripted = [FLAKY.fate(one.name, person) for one in resolvers for person in PEOPLE]
        assert outcomes == scripted
        assert {"erased", "refused"} == set(scripted)

        erased = Counter(one.name for one in resolvers for person in PEOPLE if FLAKY.fate(one.name, person) == "erased")
        effects = admin.effects()
        assert set(effects.values()) == {1}
        assert Counter(vendor for vendor, _, _ in effects) == {
            "crm": erased["crm"],
            "uploads": erased["uploads"] * VERSIONS,
            "logs": erased["logs"],
        }
        assert {len(keys) for keys in admin.keys().values()} == {1}
        refused = [person for person in PEOPLE if FLAKY.fate("crm", person) == "refused"]
        assert admin.left("crm") == refused
        told = admin.told()
        assert {kind for kind in ("error", "drop", "lost", "lost_drop") if told.get(f"crm {kind}")} >= {"error", "lost"}


def test_a_server_that_stops_refuses_and_comes_back_at_its_port() -> None:
    with InThread() as server:
        server.admin.give("rest", "crm", ["ada"])
        server.stop()
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{server.url}/rest/crm/customers/ada")
        server.start()
        assert httpx.get(f"{server.url}/rest/crm/customers/ada").status_code == 200


def _resolvers(admin: VendorAdmin, clients: list[httpx.AsyncClient]) -> list[Any]:
    made = []
    for kind, name in (("rest", "crm"), ("store", "uploads"), ("logs", "logs")):
        admin.give(kind, name, PEOPLE)
        client = httpx.AsyncClient(base_url=f"{admin.url}/{kind}/{name}", timeout=httpx.Timeout(30, read=1))
        clients.append(client)
        made.append(
            HttpResolver(name, client, "customers")
            if kind == "rest"
            else ObjectStoreResolver(name, client)
            if kind == "store"
            else LogVendorResolver(name, client)
        )
    return made


async def _finish(resolver: Any, person: str, places: asyncio.Semaphore) -> str:
    """As a worker does it, without waiting between attempts."""
    call = getattr(resolver, "erase_subject", None) or resolver.schedule_erasure
    while True:
        try:
            async with places:
                await call(SubjectRef(resolver.name, person), idempotency_key=f"call-{resolver.name}-{person}")
        except ResolverError:
            return "refused"
        except VendorUnavailable:
            continue
        return "erased"
