"""The audit trail: records that commit with what they tell of, and the chain over them."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from postlude.core.audit_chain import AuditRecord, Head, linked
from postlude.errors import AuditBroken
from postlude.ports.audit import AuditEntry, Which
from postlude.ports.store import Store
from postlude.ports.trace import tracing
from postlude.testing.contracts.arrange import Arranged, StoreUnderTest, Undo, undone

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
EVERY = Which()


class AuditContract(StoreUnderTest):
    async def test_a_record_keeps_every_field(self, given: Arranged) -> None:
        detail: dict[str, str | int | bool] = {"resolver": "störe", "attempts": 3, "abandoned": True}
        entry = AuditEntry(
            actor="ann", action="erasure_requeued", target="subject:ab", reason="she 'looked'\n", detail=detail,
            trace_id="t", old_status="dead", new_status="failed",
        )  # fmt: skip
        await self._write(given, entry)
        (one,) = await given.store.audits.records(EVERY, limit=10, after=None)
        assert (one.actor, one.action, one.target, one.reason) == (
            entry.actor,
            entry.action,
            entry.target,
            entry.reason,
        )
        assert (one.detail, one.trace_id, one.old_status, one.new_status) == (detail, "t", "dead", "failed")
        assert (one.position, one.hash) == (None, None)
        assert one.at.utcoffset() == timedelta(0)

    async def test_a_record_names_the_trace_that_it_was_written_in(self, given: Arranged) -> None:
        with tracing(f"00-{TRACE}-00f067aa0ba902b7-01"):
            await self._write(given, _entry("a"))
        with tracing("nonsense"):
            await self._write(given, _entry("b"))
        found = await given.store.audits.records(EVERY, limit=10, after=None)
        assert {one.target: one.trace_id for one in found} == {"a": TRACE, "b": None}

    async def test_records_are_linked_in_order_of_time_without_a_gap(self, given: Arranged) -> None:
        trail = given.store.audits
        assert (await trail.end()).head == "0:"
        for target in "abc":
            await self._write(given, _entry(target))
        first = await self._link(given, limit=2)
        second = await self._link(given)
        assert [(one.position, one.target) for one in [*first, *second]] == [(1, "a"), (2, "b"), (3, "c")]
        page = await trail.page_of_chain(0, 10)
        head, links, _ = linked(Head(), [record for _, record in page if record is not None])
        assert [link for link, _ in page] == links
        assert (await trail.end()).head == str(head)
        assert [one.hash for one in [*first, *second]] == [link.hash.hex() for link in links]
        assert [link.position for link, _ in await trail.page_of_chain(1, 1)] == [2]

    async def test_what_is_linked_is_not_linked_again(self, given: Arranged) -> None:
        await self._write(given, _entry("a"))
        ids = await given.store.audits.recent(reach=60, limit=10)
        assert len(await given.store.audits.link(ids)) == 1
        assert await given.store.audits.link([*ids, UUID(int=1)]) == []
        assert await given.store.audits.recent(reach=60, limit=10) == []
        assert (await given.store.audits.end()).position == 1

    async def test_two_that_link_at_once_make_one_chain(self, given: Arranged, other: Store) -> None:
        for number in range(6):
            await self._write(given, _entry(str(number)))
        ids = await given.store.audits.recent(reach=60, limit=10)
        both = await asyncio.gather(given.store.audits.link(ids), other.audits.link(ids[::-1]))
        assert sorted(len(one) for one in both) == [0, 6]
        assert [link.position for link, _ in await other.audits.page_of_chain(0, 10)] == [1, 2, 3, 4, 5, 6]

    async def test_what_is_rolled_back_was_never_there(self, given: Arranged) -> None:
        with undone():
            async with given.store.transaction() as tx:
                await given.adapter.play(tx, given.store.scripts.audit(_entry("a")))
                raise Undo
        assert await given.store.audits.recent(reach=60, limit=10) == []

    async def test_what_commits_late_is_found_by_looking_at_everything(self, given: Arranged) -> None:
        trail = given.store.audits
        for target in "abcd":
            await self._write(given, _entry(target))
        await self._link(given)
        (first,) = await given.run("SELECT min(at) FROM {}postlude_audit")
        earlier = first[0] - (3600.0 if isinstance(first[0], float) else timedelta(hours=1))
        late = UUID(int=7) if given.prefix else UUID(int=7).bytes
        await given.run(
            "INSERT INTO {}postlude_audit (id, at, actor, action, target, reason)"
            " VALUES (:id, :at, 'ann', 'late', 'x', '')",
            id=late,
            at=earlier,
        )
        assert await trail.recent(reach=60, limit=10) == []
        assert await trail.recent(reach=7200, limit=10) == [UUID(int=7)]
        place, found, stretches = None, [], 0
        while True:
            part = await trail.look(place, 2)
            found += part.unlinked
            stretches += 1
            if (place := part.following) is None:
                break
        assert (found, stretches) == ([UUID(int=7)], 3)
        assert [one.position for one in await trail.link(found)] == [5]

    async def test_only_what_is_old_enough_counts_as_not_linked(self, given: Arranged) -> None:
        await self._write(given, _entry("a"))
        assert len((await given.store.audits.look(None, 10)).unlinked) == 1
        assert (await given.store.audits.look(None, 10, older_than=3600)).unlinked == []

    @pytest.mark.parametrize("head", ["0:", "7:" + "0" * 64, "nonsense"])
    async def test_nothing_is_linked_to_a_head_that_does_not_fit(self, given: Arranged, head: str) -> None:
        await self._write(given, _entry("a"))
        await self._link(given)
        await self._write(given, _entry("b"))
        await given.run("UPDATE {}postlude_meta SET value = :head WHERE name = 'audit_head'", head=head)
        with pytest.raises(AuditBroken):
            await self._link(given)
        assert (await given.store.audits.end()).position == 1

    @pytest.mark.parametrize("table", ["postlude_audit", "postlude_audit_link"])
    async def test_records_and_links_are_insert_only(self, given: Arranged, table: str) -> None:
        await self._write(given, _entry("a"))
        await self._link(given)
        column = "reason" if table == "postlude_audit" else "hash"
        attempts = [f"UPDATE {{}}{table} SET {column} = {column}", f"DELETE FROM {{}}{table}"]  # noqa: S608 - our words
        if given.store.dialect == "postgres":
            attempts += [f"TRUNCATE {{}}{table}", f"TRUNCATE {{}}{table} CASCADE"]
        else:
            attempts.append(f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}")  # noqa: S608 - our words
        for attempt in attempts:
            with pytest.raises(Exception, match="is insert only"):
                await given.run(attempt)
        ((link, record),) = await given.store.audits.page_of_chain(0, 10)
        assert record is not None
        assert link.position == 1

    async def test_records_are_listed_newest_first_by_what_is_asked(self, given: Arranged) -> None:
        for target in "abc":
            await self._write(given, _entry(target, action=f"act_{target}"))
        await self._link(given)
        trail = given.store.audits
        every = await trail.records(EVERY, limit=10, after=None)
        assert [(one.target, one.position) for one in every] == [("c", 3), ("b", 2), ("a", 1)]
        assert await trail.records(EVERY, limit=1, after=every[0].id) == [every[1]]
        assert await trail.records(Which(target="a"), limit=10, after=None) == [every[2]]
        assert await trail.records(Which(action="act_b"), limit=10, after=None) == [every[1]]
        assert await trail.records(Which(actor="bob"), limit=10, after=None) == []
        assert await trail.records(Which(since=every[1].at), limit=10, after=None) == every[:2]
        assert await trail.records(Which(until=every[1].at), limit=10, after=None) == every[2:]

    async def test_how_far_a_sink_is_is_kept(self, given: Arranged, other: Store) -> None:
        assert await given.store.audits.shipped("file") == 0
        for position in (3, 12):
            await given.store.audits.set_shipped("file", position)
        assert await other.audits.shipped("file") == 12
        assert await other.audits.shipped("other") == 0

    async def test_the_key_of_pseudonyms_is_the_installation_s(self, given: Arranged) -> None:
        async with given.store.transaction() as tx:
            key = await given.adapter.play(tx, given.store.scripts.pseudonym_key())
        assert await given.store.audits.pseudonym_key() == key
        assert len(key) == 32

    async def _write(self, given: Arranged, entry: AuditEntry) -> None:
        async with given.store.transaction() as tx:
            await given.adapter.play(tx, given.store.scripts.audit(entry))

    async def _link(self, given: Arranged, limit: int = 100) -> list[AuditRecord]:
        return await given.store.audits.link(await given.store.audits.recent(reach=60, limit=limit))


def _entry(target: str, action: str = "requeue") -> AuditEntry:
    return AuditEntry(actor="ann", action=action, target=target, reason="fixed")
