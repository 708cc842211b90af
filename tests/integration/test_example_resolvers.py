"""The example resolvers under the engine: through every fault of the vendors, each request ends as its plan says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from examples.resolvers.http import HttpResolver
from examples.resolvers.log_vendor import LogVendorResolver
from examples.resolvers.object_store import ObjectStoreResolver
from postlude import Correction, Postlude, ResolverError, SubjectRef
from postlude.testing.clock import ManualClock
from tests.vendor_server import InThread
from tests.vendors import Plan, Vendors

PLAN = Plan(seed=36, rate=0.3, refused=0.08)
PEOPLE = [f"person-{number:02}" for number in range(12)]
MONTH = 31 * 86400
KINDS = {"crm": "rest", "uploads": "store", "logs": "logs"}


@pytest.fixture
async def resolvers() -> AsyncIterator[tuple[InThread, list[Any]]]:
    with InThread(Vendors(PLAN)) as server:
        timeout = httpx.Timeout(30, read=1)
        clients = {
            name: httpx.AsyncClient(base_url=f"{server.url}/{kind}/{name}", timeout=timeout)
            for name, kind in KINDS.items()
        }
        yield (
            server,
            [
                HttpResolver("crm", clients["crm"], "customers"),
                ObjectStoreResolver("uploads", clients["uploads"]),
                LogVendorResolver("logs", clients["logs"]),
            ],
        )
        for client in clients.values():
            await client.aclose()


async def test_each_request_ends_as_planned(resolvers: tuple[InThread, list[Any]], sqlite_url: str) -> None:
    server, registered = resolvers
    app = Postlude(sqlite_url)
    app.clock = clock = ManualClock()
    for resolver in registered:
        server.admin.give(KINDS[resolver.name], resolver.name, PEOPLE)
        app.resolvers.register(resolver, timeout=30, concurrency=8)
    async with app:
        for person in PEOPLE:
            async with app.transaction() as tx:
                await app.erasure.erase_subject(tx, person, [SubjectRef(name, person) for name in KINDS])
        for _ in range(8):
            await app.drain()
            clock.advance(3600)
        for call in await app.erasure.list_scheduled():
            assert call.resolver == "logs"
            server.admin.expire("logs", call.ref.value)
        for _ in range(8):
            clock.advance(MONTH)
            await app.drain()

        refused = {(name, person) for name in KINDS for person in PEOPLE if PLAN.fate(name, person) == "refused"}
        abandoned = await app.erasure.list_abandoned()
        assert {(call.resolver, call.ref.value) for call in abandoned} == refused
        assert refused
        for person in PEOPLE:
            (request,) = (await app.erasure.show(person)).requests
            is_refused = any(person == whom for _, whom in refused)
            assert (request.completed_at is None) == is_refused
    assert set(server.admin.effects().values()) == {1}
    assert {len(keys) for keys in server.admin.keys().values()} == {1}


@pytest.mark.parametrize("value", [".", "..", " "])
async def test_a_reference_that_would_be_everybody_is_refused_before_anybody_is_asked(value: str) -> None:
    """In a path, `customers/.` is all customers."""

    def answer(request: httpx.Request) -> httpx.Response:
        raise AssertionError(request.url)

    async with httpx.AsyncClient(base_url="https://vendor", transport=httpx.MockTransport(answer)) as client:
        crm, logs, ref = HttpResolver("v", client, "customers"), LogVendorResolver("v", client), SubjectRef("v", value)
        for asked in (
            crm.erase_subject(ref, idempotency_key="k"),
            crm.rectify_subject(ref, [Correction("name", "Ada")], idempotency_key="k"),
            crm.verify_absent(ref),
            logs.schedule_erasure(ref, idempotency_key="k"),
        ):
            with pytest.raises(ResolverError, match="no id"):
                await asked
