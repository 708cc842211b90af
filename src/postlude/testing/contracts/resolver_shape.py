"""What a resolver looks like: its name, its methods, its references."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import inspect
import re
from typing import Any, get_args

from postlude.calls.resolvers import Resolvers
from postlude.core.retry import Retry
from postlude.outbox.routes import Routes
from postlude.ports.resolver import RectifyingResolver, Resolver, RetentionOnlyResolver, VerifyingResolver
from postlude.testing.contracts.resolver_arrange import (
    RECOGNISABLE,
    Capability,
    ResolverUnderTest,
    Vendor,
    fresh_key,
)

PROTOCOLS: dict[Capability, tuple[type, str]] = {
    "erase": (Resolver, "erase_subject"),
    "rectify": (RectifyingResolver, "rectify_subject"),
    "schedule": (RetentionOnlyResolver, "schedule_erasure"),
    "verify": (VerifyingResolver, "verify_absent"),
}


class ResolverShape(ResolverUnderTest):
    """Scenarios of every resolver."""

    async def test_its_name_is_valid_and_stable(self, resolver: Any, vendor: Vendor) -> None:
        name = resolver.name
        assert isinstance(name, str)
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", name), "letters, digits and . _ - (200 at most)"
        await self.act(resolver, await vendor.given_subject(), fresh_key())
        assert resolver.name == name

    async def test_an_app_can_register_it(self, resolver: Any) -> None:
        routes = Routes(retry=Retry(), retries={}, on_dead="skip")
        Resolvers(routes, Retry()).register(resolver)

    async def test_references_are_of_its_name(self, resolver: Any, vendor: Vendor) -> None:
        for ref in (await vendor.given_subject(), await vendor.missing_subject()):
            assert ref.kind == resolver.name
            assert len(ref.value) >= RECOGNISABLE, "the vendor's ids are too short to be recognised in an error"

    async def test_it_can_do_what_is_declared_and_no_more(self, resolver: Any) -> None:
        can = {word for word, (protocol, _) in PROTOCOLS.items() if isinstance(resolver, protocol)}
        assert can == self.capabilities
        assert len(can & {"erase", "schedule"}) == 1, "it erases, or says when the vendor will: one of them"

    async def test_its_methods_are_coroutine_functions(self, resolver: Any) -> None:
        for word in get_args(Capability):
            if word in self.capabilities:
                method = getattr(resolver, PROTOCOLS[word][1])
                assert inspect.iscoroutinefunction(method), f"{PROTOCOLS[word][1]} is not `async def`"

    async def test_its_methods_take_what_a_worker_gives(self, resolver: Any) -> None:
        for word in self.capabilities:
            signature = inspect.signature(getattr(resolver, PROTOCOLS[word][1]))
            key = {} if word == "verify" else {"idempotency_key": "key"}
            signature.bind(*(["ref", []] if word == "rectify" else ["ref"]), **key)
