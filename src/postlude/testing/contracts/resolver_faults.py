"""Faults: which are tried again, which never will work, and that nothing is told of the subject."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from typing import Any, get_args

import msgspec

from postlude.core.calls import Erasure, Schedule
from postlude.errors import ResolverError
from postlude.testing.contracts.resolver_arrange import (
    ResolverUnderTest,
    Transient,
    Vendor,
    VendorFault,
    assert_discreet,
    assert_transient,
    fresh_key,
    is_gone,
    needs,
)

MARK = "extra-of-the-subject-7f3a"


class ResolverFaults(ResolverUnderTest):
    """Scenarios for vendors that the suite can break."""

    @needs("error")
    async def test_a_server_error_passes(self, resolver: Any, vendor: Vendor) -> None:
        await self._passes(resolver, vendor, "error")

    @needs("throttle")
    async def test_being_throttled_passes(self, resolver: Any, vendor: Vendor) -> None:
        await self._passes(resolver, vendor, "throttle")

    @needs("drop")
    async def test_a_dropped_connection_passes(self, resolver: Any, vendor: Vendor) -> None:
        await self._passes(resolver, vendor, "drop")

    @needs("down")
    async def test_a_refused_connection_passes(self, resolver: Any, vendor: Vendor) -> None:
        await self._passes(resolver, vendor, "down")

    @needs("hang")
    async def test_a_timeout_passes(self, resolver: Any, vendor: Vendor) -> None:
        await self._passes(resolver, vendor, "hang")

    @needs("lost", "effects")
    async def test_an_effect_whose_answer_is_lost_happens_once(self, resolver: Any, vendor: Vendor) -> None:
        once, twice = fresh_key(), fresh_key()
        await self.act(resolver, await vendor.given_subject(), once)
        ref = await vendor.given_subject()
        async with self.broken(vendor, "lost"):
            assert_transient(await self.failure(self.act(resolver, ref, twice)))
        await self.act(resolver, ref, twice)
        effects = await vendor.effects()
        assert effects[twice] == effects[once]

    @needs("refuse")
    async def test_bad_credentials_are_a_resolver_error(self, resolver: Any, vendor: Vendor) -> None:
        ref = await vendor.given_subject()
        async with self.broken(vendor, "refuse"):
            error = await self.failure(self.act(resolver, ref, fresh_key()))
        assert isinstance(error, ResolverError), f"{type(error).__name__} would be tried again and again"
        assert not is_gone(await self.act(resolver, ref, fresh_key()))

    @needs("malformed")
    async def test_a_malformed_reference_is_a_resolver_error(self, resolver: Any, vendor: Vendor) -> None:
        ref = await vendor.malformed_subject()
        error = await self.failure(self.act(resolver, ref, fresh_key()))
        assert isinstance(error, ResolverError), f"{type(error).__name__} would be tried again and again"
        assert_discreet(error, ref.value, ref.extra)

    @needs(any_of=get_args(VendorFault))
    async def test_no_error_names_the_subject(self, resolver: Any, vendor: Vendor) -> None:
        given = await vendor.given_subject()
        ref = msgspec.structs.replace(given, extra={**(given.extra or {}), "unheard-of": MARK})
        for fault in self.faults():
            async with self.broken(vendor, fault):
                error = await self.failure(self.act(resolver, ref, fresh_key()), fault)
            assert_discreet(error, ref.value, ref.extra)

    @needs(any_of=get_args(VendorFault))
    async def test_it_works_again_after_any_fault(self, resolver: Any, vendor: Vendor) -> None:
        for fault in self.faults():
            ref = await vendor.given_subject()
            async with self.broken(vendor, fault):
                await self.failure(self.act(resolver, ref, fresh_key()), fault)
            assert not is_gone(await self.act(resolver, await vendor.given_subject(), fresh_key()))

    @needs("hang")
    async def test_a_call_that_hangs_can_be_cancelled(self, resolver: Any, vendor: Vendor) -> None:
        ref, key = await vendor.given_subject(), fresh_key()
        async with self.broken(vendor, "hang"):
            calling = asyncio.create_task(self.act(resolver, ref, key))
            await asyncio.wait({calling}, timeout=self.moment)
            calling.cancel()
            await asyncio.wait({calling}, timeout=self.patience)
            assert calling.cancelled(), "cancelling a call must raise CancelledError out of it"
        await self.act(resolver, ref, key)

    async def test_cancelled_at_any_step_it_stays_usable(self, resolver: Any, vendor: Vendor) -> None:
        ref, key = await vendor.given_subject(), fresh_key()
        for steps in range(12):
            calling = asyncio.create_task(self.act(resolver, ref, key))
            for _ in range(steps):
                await asyncio.sleep(0)
            calling.cancel()
            (outcome,) = await asyncio.gather(calling, return_exceptions=True)
            assert isinstance(outcome, asyncio.CancelledError | Erasure | Schedule), type(outcome).__name__
        await self.act(resolver, ref, key)
        assert not is_gone(await self.act(resolver, await vendor.given_subject(), fresh_key()))

    async def _passes(self, resolver: Any, vendor: Vendor, fault: Transient) -> None:
        """It is raised, so that the call is tried again; the next attempt does it."""
        ref, key = await vendor.given_subject(), fresh_key()
        async with self.broken(vendor, fault):
            assert_transient(await self.failure(self.act(resolver, ref, key), fault))
        assert not is_gone(await self.act(resolver, ref, key)), "it failed, and yet the subject was gone"
