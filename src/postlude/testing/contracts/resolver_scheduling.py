"""Vendors that cannot erase: horizons, and what comes after them."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from postlude.core.calls import Schedule, SubjectRef
from postlude.testing.contracts.resolver_arrange import (
    ResolverUnderTest,
    Vendor,
    checked,
    fresh_key,
    needs,
)


class ResolverScheduling(ResolverUnderTest):
    """Scenarios of resolvers that report a horizon."""

    @needs("schedule")
    async def test_the_horizon_lies_ahead(self, resolver: Any, vendor: Vendor) -> None:
        schedule = await self.schedule(resolver, await vendor.given_subject(), fresh_key())
        assert schedule.expires_at is not None, "it is stored there, and was called absent"
        assert schedule.expires_at > datetime.now(UTC)

    @needs("schedule")
    async def test_a_horizon_may_be_asked_for_again(self, resolver: Any, vendor: Vendor) -> None:
        ref, key = await vendor.given_subject(), fresh_key()
        first = await self.schedule(resolver, ref, key)
        assert await self.schedule(resolver, ref, key) == first, "asking moved the horizon"

    @needs("schedule", "expire")
    async def test_after_the_horizon_it_is_gone(self, resolver: Any, vendor: Vendor) -> None:
        """The worker asks again with the same key: an answer that the vendor remembers for it would be an old one."""
        ref, key = await vendor.given_subject(), fresh_key()
        await self.schedule(resolver, ref, key)
        await vendor.expire(ref)
        assert (await self.schedule(resolver, ref, key)).already_absent
        assert (await self.schedule(resolver, ref, fresh_key())).already_absent

    async def schedule(self, resolver: Any, ref: SubjectRef, key: str) -> Schedule:
        async with asyncio.timeout(self.patience):
            return checked(await resolver.schedule_erasure(ref, idempotency_key=key), Schedule)
