"""The example resolvers pass the resolver contract, each against a vendor behind a real HTTP server."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import ClassVar, get_args
from uuid import uuid4

import httpx
import pytest

from examples.resolvers.asking import VendorBusy
from examples.resolvers.http import HttpResolver
from examples.resolvers.log_vendor import LogVendorResolver
from examples.resolvers.object_store import ObjectStoreResolver
from postlude import Erasure, ResolverError, SubjectRef
from postlude.testing.contracts.resolver import ResolverContract
from postlude.testing.contracts.resolver_arrange import Ability, Capability, Vendor, VendorFault, fresh_key
from tests.vendor_server import InThread
from tests.vendors import VERSIONS

ALL_FAULTS: frozenset[Ability] = frozenset(get_args(VendorFault))


@pytest.fixture(scope="module")
def vendor_server() -> Iterator[InThread]:
    with InThread() as server:
        yield server


class Sandbox(Vendor):
    """A vendor of its own for each test."""

    def __init__(self, server: InThread, kind: str, name: str) -> None:
        self._server = server
        self._admin = server.admin
        self._kind = kind
        self._name = name
        self._vendor = f"{name}-{uuid4().hex}"
        self.url = f"{server.url}/{kind}/{self._vendor}"

    async def given_subject(self) -> SubjectRef:
        ref = await self.missing_subject()
        self._admin.give(self._kind, self._vendor, [ref.value], {"email": "old@example.org"})
        return ref

    async def missing_subject(self) -> SubjectRef:
        return SubjectRef(self._name, f"cus_{uuid4().hex}")

    async def malformed_subject(self) -> SubjectRef:
        return SubjectRef(self._name, "cus_" * 100)

    async def effects(self) -> Counter[str]:
        return Counter(one.key for one in self._admin.journal() if one.vendor == self._vendor)

    async def values(self, ref):
        return self._admin.values(self._vendor, ref.value) or {}

    async def expire(self, ref):
        self._admin.expire(self._vendor, ref.value)

    async def fail(self, fault):
        if fault == "down":
            self._server.stop()
        else:
            self._admin.fail(self._vendor, fault)

    async def heal(self):
        self._server.start()
        self._admin.heal(self._vendor)


class OnVendor(ResolverContract):
    kind: ClassVar[str]
    name: ClassVar[str]

    @pytest.fixture
    def vendor(self, vendor_server: InThread) -> Sandbox:
        return Sandbox(vendor_server, self.kind, self.name)

    @pytest.fixture
    async def client(self, vendor: Sandbox) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(base_url=vendor.url, timeout=30) as client:
            yield client


class TestHttpResolver(OnVendor):
    kind, name = "rest", "crm"
    capabilities: ClassVar[frozenset[Capability]] = frozenset({"erase", "rectify", "verify"})
    abilities: ClassVar[frozenset[Ability]] = ALL_FAULTS | {"effects", "values", "malformed"}

    @pytest.fixture
    def resolver(self, client: httpx.AsyncClient) -> HttpResolver:
        return HttpResolver(self.name, client, "customers")

    async def test_what_throttles_may_say_for_how_long(self, resolver, vendor):
        async with self.broken(vendor, "throttle"):
            with pytest.raises(VendorBusy) as busy:
                await resolver.verify_absent(await vendor.given_subject())
        assert busy.value.retry_after == "1"

    async def test_an_id_is_one_part_of_a_path(self, resolver, vendor):
        """Whatever an id looks like, it does not reach into somebody else's."""
        victim = await vendor.given_subject()
        crafted = SubjectRef(self.name, f"x/../{victim.value}")
        assert await resolver.erase_subject(crafted, idempotency_key=fresh_key()) == Erasure(already_absent=True)
        assert await resolver.verify_absent(victim) is False


class TestObjectStoreResolver(OnVendor):
    kind, name = "store", "uploads"
    capabilities: ClassVar[frozenset[Capability]] = frozenset({"erase", "verify"})
    abilities: ClassVar[frozenset[Ability]] = ALL_FAULTS | {"effects", "malformed"}

    @pytest.fixture
    def resolver(self, client: httpx.AsyncClient) -> ObjectStoreResolver:
        return ObjectStoreResolver(self.name, client)

    async def test_all_versions_go_on_all_pages(self, resolver, vendor):
        await resolver.erase_subject(await vendor.given_subject(), idempotency_key="call-1")
        assert await vendor.effects() == {"call-1": VERSIONS}

    async def test_a_prefix_ends_where_the_id_does(self, resolver, vendor):
        longer = await vendor.given_subject()
        shorter = SubjectRef(self.name, longer.value[:-1])
        assert await resolver.erase_subject(shorter, idempotency_key=fresh_key()) == Erasure(already_absent=True)
        assert await resolver.verify_absent(longer) is False

    async def test_an_empty_id_erases_nobody(self, resolver, vendor):
        somebody = await vendor.given_subject()
        with pytest.raises(ResolverError):
            await resolver.erase_subject(SubjectRef(self.name, ""), idempotency_key=fresh_key())
        assert await resolver.verify_absent(somebody) is False


class TestLogVendorResolver(OnVendor):
    kind, name = "logs", "logs"
    capabilities: ClassVar[frozenset[Capability]] = frozenset({"schedule", "verify"})
    abilities: ClassVar[frozenset[Ability]] = ALL_FAULTS | {"effects", "expire", "malformed"}

    @pytest.fixture
    def resolver(self, client: httpx.AsyncClient) -> LogVendorResolver:
        return LogVendorResolver(self.name, client)
