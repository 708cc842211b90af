"""Reading back: is the subject really gone?"""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from typing import Any

from postlude.core.calls import SubjectRef
from postlude.testing.contracts.resolver_arrange import (
    ResolverUnderTest,
    Vendor,
    assert_discreet,
    assert_transient,
    fresh_key,
    is_gone,
    needs,
)


class ResolverVerifying(ResolverUnderTest):
    """Scenarios of resolvers that can look."""

    @needs("verify", "erase")
    async def test_verifying_tells_before_from_after(self, resolver: Any, vendor: Vendor) -> None:
        ref = await vendor.given_subject()
        assert await self.absent(resolver, ref) is False
        await self.act(resolver, ref, fresh_key())
        assert await self.absent(resolver, ref) is True

    @needs("verify", "expire")
    async def test_verifying_tells_before_expiry_from_after(self, resolver: Any, vendor: Vendor) -> None:
        ref = await vendor.given_subject()
        assert await self.absent(resolver, ref) is False
        await vendor.expire(ref)
        assert await self.absent(resolver, ref) is True

    @needs("verify")
    async def test_a_missing_subject_is_verified_absent(self, resolver: Any, vendor: Vendor) -> None:
        assert await self.absent(resolver, await vendor.missing_subject()) is True

    @needs("verify")
    async def test_verifying_changes_nothing(self, resolver: Any, vendor: Vendor) -> None:
        ref = await vendor.given_subject()
        effects = await vendor.effects() if "effects" in self.abilities else None
        assert [await self.absent(resolver, ref) for _ in range(3)] == [False] * 3
        assert effects is None or await vendor.effects() == effects
        assert not is_gone(await self.act(resolver, ref, fresh_key()))

    @needs("verify", any_of=["error", "throttle", "drop", "down"])
    async def test_an_outage_is_no_proof_of_absence(self, resolver: Any, vendor: Vendor) -> None:
        ref = await vendor.given_subject()
        for fault in self.transients():
            async with self.broken(vendor, fault):
                error = await self.failure(resolver.verify_absent(ref), fault)
            assert_transient(error)
            assert_discreet(error, ref.value, ref.extra)

    async def absent(self, resolver: Any, ref: SubjectRef) -> bool:
        async with asyncio.timeout(self.patience):
            answer = await resolver.verify_absent(ref)
        assert isinstance(answer, bool)
        return answer
