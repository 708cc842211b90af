"""Erasing: what is gone, what was gone before, what comes twice, what comes at once."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from postlude.core.calls import Erasure
from postlude.testing.contracts.resolver_arrange import (
    ResolverUnderTest,
    Vendor,
    fresh_key,
    is_gone,
    needs,
)


class ResolverErasing(ResolverUnderTest):
    """Scenarios of a vendor that is well."""

    @needs("erase")
    async def test_what_is_stored_is_erased(self, resolver: Any, vendor: Vendor) -> None:
        ref = await vendor.given_subject()
        assert not is_gone(await self.act(resolver, ref, fresh_key())), "it was there, and was called absent"
        assert is_gone(await self.act(resolver, ref, fresh_key())), "it was erased, and another call finds it"

    async def test_a_missing_subject_is_already_absent(self, resolver: Any, vendor: Vendor) -> None:
        assert is_gone(await self.act(resolver, await vendor.missing_subject(), fresh_key()))

    @needs("erase")
    async def test_the_same_key_may_come_again(self, resolver: Any, vendor: Vendor) -> None:
        ref, key = await vendor.given_subject(), fresh_key()
        assert [type(await self.act(resolver, ref, key)) for _ in range(3)] == [Erasure] * 3

    @needs("effects")
    async def test_the_same_key_has_one_effect(self, resolver: Any, vendor: Vendor) -> None:
        ref, key = await vendor.given_subject(), fresh_key()
        await self.act(resolver, ref, key)
        effects = await vendor.effects()
        await self.act(resolver, ref, key)
        assert await vendor.effects() == effects

    @needs("effects")
    async def test_the_key_reaches_the_vendor(self, resolver: Any, vendor: Vendor) -> None:
        before = await vendor.effects()
        key = fresh_key()
        await self.act(resolver, await vendor.given_subject(), key)
        changed = {name for name, count in (await vendor.effects()).items() if count != before.get(name, 0)}
        assert changed == {key}, "the vendor did not get the idempotency key with everything it did"

    async def test_extra_is_optional(self, resolver: Any, vendor: Vendor) -> None:
        for extra in (None, {}, {"unheard-of": "thing"}):
            ref = msgspec.structs.replace(await vendor.given_subject(), extra=extra)
            assert not is_gone(await self.act(resolver, ref, fresh_key()))

    async def test_many_subjects_at_once(self, resolver: Any, vendor: Vendor) -> None:
        refs = [await vendor.given_subject() for _ in range(10)]
        results = await asyncio.gather(*(self.act(resolver, ref, fresh_key()) for ref in refs))
        assert [is_gone(result) for result in results] == [False] * 10

    @needs("erase")
    async def test_one_subject_many_times_at_once(self, resolver: Any, vendor: Vendor) -> None:
        ref = await vendor.given_subject()
        results = await asyncio.gather(*(self.act(resolver, ref, fresh_key()) for _ in range(5)))
        assert not all(is_gone(result) for result in results), "nobody erased it, and everybody found it absent"
        assert is_gone(await self.act(resolver, ref, fresh_key()))

    @needs("effects")
    async def test_one_call_twice_at_once_has_one_effect(self, resolver: Any, vendor: Vendor) -> None:
        """Two workers may make the same call for a moment, when one of them is taken for dead."""
        once, twice = fresh_key(), fresh_key()
        await self.act(resolver, await vendor.given_subject(), once)
        ref = await vendor.given_subject()
        await asyncio.gather(*(self.act(resolver, ref, twice) for _ in range(4)))
        effects = await vendor.effects()
        assert effects[twice] == effects[once]
