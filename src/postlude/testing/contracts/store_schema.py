"""Schema: installing, upgrading and checking the structure; and what a store says without it."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio

import pytest

from postlude.errors import LanesDiffer, SchemaMissing, SchemaTooNew
from postlude.ports.enlist import Adapter
from postlude.ports.store import Store
from postlude.testing.contracts.arrange import LANES, Arranged, StoreUnderTest, event

Two = tuple[Store, Store]


class SchemaContract(StoreUnderTest):
    async def test_without_a_schema_the_version_is_zero(self, blanks: Two) -> None:
        status = await blanks[0].schema.status()
        assert (status.version, status.lanes, status.installation) == (0, None, None)
        assert len(status.pending) >= 1
        assert await blanks[0].schema.verify()

    async def test_without_a_schema_everything_says_so(self, blanks: Two, adapter: Adapter, prefix: str) -> None:
        given = Arranged(blanks[0], adapter, prefix)
        with pytest.raises(SchemaMissing):
            await given.store.reading.news(0, 10)
        with pytest.raises(SchemaMissing):
            await given.register()
        with pytest.raises(SchemaMissing):
            await given.append(event())

    async def test_an_upgrade_is_done_once(self, blanks: Two) -> None:
        schema = blanks[0].schema
        assert len(await schema.upgrade(lanes=LANES)) >= 1
        assert await schema.upgrade(lanes=LANES) == []
        status = await schema.status()
        assert (status.version, status.pending, status.lanes) == (status.newest, (), LANES)
        assert status.installation
        assert await schema.verify() == []

    async def test_the_lanes_can_be_asked_on_any_handle(self, given: Arranged) -> None:
        async with given.store.transaction() as tx:
            assert await given.adapter.play(tx, given.store.scripts.lanes()) == LANES

    async def test_a_phase_can_be_applied_alone(self, blanks: Two) -> None:
        schema = blanks[0].schema
        before = await schema.upgrade("pre", lanes=LANES)
        assert all("_pre_" in name for name in before)
        await schema.upgrade("post", lanes=LANES)
        assert (await schema.status()).pending == ()

    async def test_many_upgrades_at_once_make_one_schema(self, blanks: Two) -> None:
        upgrades = (store.schema.upgrade(lanes=LANES) for store in blanks * 3)
        applied = await asyncio.gather(*upgrades)
        assert sum(bool(names) for names in applied) == 1
        first, second = [await store.schema.status() for store in blanks]
        assert first == second

    async def test_the_number_of_lanes_is_fixed(self, given: Arranged) -> None:
        schema = given.store.schema
        before = await schema.status()
        assert before.lanes is not None
        with pytest.raises(LanesDiffer):
            await schema.upgrade(lanes=before.lanes + 1)
        assert await schema.status() == before

    async def test_a_schema_that_a_newer_version_cleaned_up_is_refused(self, given: Arranged) -> None:
        await given.run("INSERT INTO {}postlude_migration (number, phase, name) VALUES (9999, 'post', 'later')")
        for ask in (given.store.schema.status, lambda: given.store.schema.upgrade(lanes=LANES)):
            with pytest.raises(SchemaTooNew):
                await ask()

    async def test_a_schema_that_a_newer_version_only_prepared_is_fine(self, given: Arranged) -> None:
        await given.run("INSERT INTO {}postlude_migration (number, phase, name) VALUES (9999, 'pre', 'later')")
        lanes = (await given.store.schema.status()).lanes
        assert lanes is not None
        assert await given.store.schema.upgrade(lanes=lanes) == []
        assert await given.store.schema.verify() == []

    @pytest.mark.parametrize(
        ("damage", "name"),
        [
            ("DROP INDEX {}postlude_delivery_hot", "postlude_delivery_hot"),
            ("DROP TABLE {}postlude_audit_link", "postlude_audit_link"),
        ],
    )
    async def test_what_is_missing_is_found(self, given: Arranged, damage: str, name: str) -> None:
        await given.run(damage)
        assert any(name in problem for problem in await given.store.schema.verify())

    async def test_the_ddl_can_be_printed(self, given: Arranged) -> None:
        ddl = given.store.schema.sql(lanes=LANES)
        assert all(table in ddl for table in ("postlude_event", "postlude_delivery", "postlude_migration"))

    async def test_the_server_tells_what_it_is(self, given: Arranged) -> None:
        server = await given.store.server()
        assert server["version"]
        assert server["now"].tzinfo is not None

    async def test_a_hint_does_no_harm(self, given: Arranged) -> None:
        async with given.store.listen(lambda: None):
            await given.store.hint()

    async def test_a_store_closes_twice_and_opens_again(self, other: Store) -> None:
        await other.close()
        await other.close()
        await other.open()
        assert await other.reading.appenders() == frozenset()
