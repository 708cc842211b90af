"""Correcting what a vendor has stored."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from postlude.core.calls import Correction, SubjectRef
from postlude.errors import ResolverError
from postlude.testing.contracts.resolver_arrange import (
    ResolverUnderTest,
    Vendor,
    assert_discreet,
    assert_transient,
    fresh_key,
    is_gone,
    needs,
)


class ResolverRectifying(ResolverUnderTest):
    """Scenarios of resolvers that rectify."""

    @needs("rectify", "values")
    async def test_a_correction_is_made(self, resolver: Any, vendor: Vendor) -> None:
        ref, wanted = await vendor.given_subject(), vendor.corrections()
        await self.rectify(resolver, ref, wanted, fresh_key())
        await self.assert_stored(vendor, ref, wanted)

    @needs("rectify", "values")
    async def test_a_later_correction_wins(self, resolver: Any, vendor: Vendor) -> None:
        ref = await vendor.given_subject()
        for _ in range(2):
            wanted = vendor.corrections()
            await self.rectify(resolver, ref, wanted, fresh_key())
            await self.assert_stored(vendor, ref, wanted)

    @needs("rectify")
    async def test_a_correction_may_come_again(self, resolver: Any, vendor: Vendor) -> None:
        ref, wanted, key = await vendor.given_subject(), vendor.corrections(), fresh_key()
        for _ in range(3):
            await self.rectify(resolver, ref, wanted, key)
        assert not is_gone(await self.act(resolver, ref, fresh_key())), "a corrected subject is still there"

    @needs("rectify", "effects")
    async def test_a_correction_has_one_effect_under_its_key(self, resolver: Any, vendor: Vendor) -> None:
        ref, wanted, key = await vendor.given_subject(), vendor.corrections(), fresh_key()
        before = await vendor.effects()
        await self.rectify(resolver, ref, wanted, key)
        after = await vendor.effects()
        assert {name for name, count in after.items() if count != before.get(name, 0)} == {key}
        await self.rectify(resolver, ref, wanted, key)
        assert await vendor.effects() == after

    @needs("rectify")
    async def test_correcting_nobody_is_not_tried_again(self, resolver: Any, vendor: Vendor) -> None:
        """There is nothing to correct: that is well, or never will be; it is no outage."""
        with contextlib.suppress(ResolverError):
            await self.rectify(resolver, await vendor.missing_subject(), vendor.corrections(), fresh_key())

    @needs("rectify", any_of=["error", "throttle", "drop", "down"])
    async def test_a_correction_waits_for_the_vendor(self, resolver: Any, vendor: Vendor) -> None:
        ref, wanted, key = await vendor.given_subject(), vendor.corrections(), fresh_key()
        for fault in self.transients():
            async with self.broken(vendor, fault):
                error = await self.failure(resolver.rectify_subject(ref, wanted, idempotency_key=key), fault)
            assert_transient(error)
        await self.rectify(resolver, ref, wanted, key)

    @needs("rectify", any_of=["error", "throttle", "drop", "down", "refuse"])
    async def test_no_error_names_a_correction(self, resolver: Any, vendor: Vendor) -> None:
        ref, wanted = await vendor.given_subject(), vendor.corrections()
        private = [one.value for one in wanted]
        for fault in self.faults():
            async with self.broken(vendor, fault):
                error = await self.failure(resolver.rectify_subject(ref, wanted, idempotency_key=fresh_key()), fault)
            assert_discreet(error, ref.value, ref.extra, private)

    async def rectify(self, resolver: Any, ref: SubjectRef, wanted: Sequence[Correction], key: str) -> None:
        async with asyncio.timeout(self.patience):
            assert await resolver.rectify_subject(ref, wanted, idempotency_key=key) is None

    async def assert_stored(self, vendor: Vendor, ref: SubjectRef, wanted: Sequence[Correction]) -> None:
        stored = await vendor.values(ref)
        assert {one.category: stored.get(one.category) for one in wanted} == {one.category: one.value for one in wanted}
