"""Verifying the trail on a real database: whoever changes it, with every right there is, is found out."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest

from postlude import AuditBroken, AuditReport, ConfigurationError, FileAuditSink, NaiveDatetime, Postlude
from postlude.core.pseudonym import TARGET, pseudonym
from tests.engine import make_app
from tests.tampering import chained, literal, rewrite, tamper, write

NAMES = "abcdef"


def kinds(report: AuditReport) -> set[str]:
    return {problem.kind for problem in report.problems}


async def filled(app: Postlude) -> AuditReport:
    await write(app, *NAMES)
    report = await app.audit.verify()
    assert (report.ok, report.linked, report.records, report.links, report.position) == (True, 6, 6, 6, 6)
    return report


async def test_what_nobody_touched_verifies_again_and_again(database_url: str) -> None:
    async with make_app(database_url) as app:
        empty = await app.audit.verify()
        assert (empty.ok, empty.records, empty.hash, empty.linked) == (True, 0, "", 0)
        first = await filled(app)
        again = await app.audit.verify()
        assert (again.ok, again.linked, again.hash) == (True, 0, first.hash)
        await write(app, "g")
        assert (await app.audit.verify()).hash != first.hash


@pytest.mark.parametrize(
    "change", ["reason = 'x'", "actor = 'bob'", "detail = '{\"a\": 1}'", "old_status = 'dead'", "trace_id = 't'"]
)
async def test_a_changed_record_is_named(database_url: str, change: str) -> None:
    async with make_app(database_url) as app:
        await filled(app)
        record = (await chained(app.store.audits))[2]
        await tamper(database_url, f"UPDATE postlude_audit SET {change} WHERE id = {literal(database_url, record.id)}")
        report = await app.audit.verify()
        assert not report.ok
        (problem,) = report.problems
        assert (problem.kind, problem.record, problem.position) == ("changed", record.id, 3)
        assert str(record.id) in problem.said


async def test_a_removed_record_is_named(database_url: str) -> None:
    async with make_app(database_url) as app:
        await filled(app)
        record = (await chained(app.store.audits))[2]
        where = literal(database_url, record.id)
        await tamper(database_url, f"DELETE FROM postlude_audit WHERE id = {where}")
        report = await app.audit.verify()
        assert [(one.kind, one.record) for one in report.problems] == [("missing", record.id)]
        await tamper(database_url, f"DELETE FROM postlude_audit_link WHERE audit_id = {where}")
        report = await app.audit.verify()
        assert [(one.kind, one.position) for one in report.problems] == [("link_missing", 3)]


async def test_reordered_records_are_named(database_url: str) -> None:
    async with make_app(database_url) as app:
        await filled(app)
        every = await chained(app.store.audits)
        ids = [literal(database_url, one.id) for one in every[1:3]]
        nobody = literal(database_url, UUID(int=1))
        moves = [(2, nobody), (3, ids[0]), (2, ids[1])]
        await tamper(
            database_url,
            *(f"UPDATE postlude_audit_link SET audit_id = {id} WHERE position = {position}" for position, id in moves),
        )
        report = await app.audit.verify()
        named = {(one.kind, one.record) for one in report.problems}
        assert named == {("reordered", every[1].id), ("reordered", every[2].id)}


async def test_links_that_changed_places_are_named(database_url: str) -> None:
    async with make_app(database_url) as app:
        await filled(app)
        every = await chained(app.store.audits)
        columns, system = ("audit_id", "row_hash", "hash"), ""
        if not database_url.startswith("sqlite"):
            system = "OVERRIDING SYSTEM VALUE "
        await tamper(
            database_url,
            f"CREATE TABLE kept AS SELECT 5 - position AS position, {', '.join(columns)} FROM postlude_audit_link"
            " WHERE position IN (2, 3)",
            "DELETE FROM postlude_audit_link WHERE position IN (2, 3)",
            f"INSERT INTO postlude_audit_link (position, {', '.join(columns)}) {system}SELECT * FROM kept",
        )
        report = await app.audit.verify()
        assert {("link", every[1].id), ("link", every[2].id)} <= {(one.kind, one.record) for one in report.problems}


async def test_a_tail_that_was_cut_off_is_found_by_the_head_and_nothing_is_linked_to_it(database_url: str) -> None:
    async with make_app(database_url) as app:
        await filled(app)
        await tamper(database_url, "DELETE FROM postlude_audit_link WHERE position > 4")
        await write(app, "late")
        app.clock.advance(60)
        report = await app.audit.verify()
        assert report.linked is None
        assert kinds(report) == {"link_missing", "unlinked"}
        assert (await app.store.audits.end()).position == 4


async def test_a_link_before_the_beginning_hides_no_record(database_url: str) -> None:
    """To insert it takes no more than a worker may."""
    async with make_app(database_url) as app:
        await filled(app)
        await write(app, "hidden")
        (record,) = await app.audit.list(limit=1)
        system = "" if database_url.startswith("sqlite") else "OVERRIDING SYSTEM VALUE "
        some = literal(database_url, bytes(32))
        await tamper(
            database_url,
            f"INSERT INTO postlude_audit_link (position, audit_id, row_hash, hash) {system}"
            f"VALUES (-1, {literal(database_url, record.id)}, {some}, {some})",
        )
        report = await app.audit.verify()
    assert [(one.kind, one.position, one.record) for one in report.problems] == [("link", -1, record.id)]


async def test_a_head_that_was_set_back_is_found(database_url: str) -> None:
    async with make_app(database_url) as app:
        await filled(app)
        await tamper(database_url, "UPDATE postlude_meta SET value = '0:' WHERE name = 'audit_head'")
        assert kinds(await app.audit.verify()) == {"head"}
        await tamper(database_url, "DELETE FROM postlude_meta WHERE name = 'audit_head'")
        assert kinds(await app.audit.verify()) == {"head"}


async def test_a_copy_shows_what_was_cut_off_with_the_head_rewritten(database_url: str, tmp_path: Path) -> None:
    copy = tmp_path / "audit.jsonl"
    async with make_app(database_url, audit={"file": str(copy)}) as app:
        await filled(app)
        await app.maintenance.run("chain")
        assert (await app.audit.verify(copy)).copied == 6
        every = await chained(app.store.audits)
        await rewrite(database_url, every[:4])
        assert (await app.audit.verify()).ok, "within the database nothing shows it"
        report = await app.audit.verify(copy)
        named = [(one.kind, one.record, one.position) for one in report.problems]
        assert named == [("cut_off", every[4].id, 5), ("cut_off", every[5].id, 6)]
        with pytest.raises(AuditBroken, match="file has position 6, the chain in the database ends at 4"):
            await app.maintenance.run("chain")


async def test_a_copy_shows_a_record_that_was_taken_out_with_everything_rewritten(
    database_url: str, tmp_path: Path
) -> None:
    copy = tmp_path / "audit.jsonl"
    async with make_app(database_url) as app:
        await filled(app)
        await FileAuditSink(copy).append([one async for one in app.audit.export()])
        every = await chained(app.store.audits)
        await rewrite(database_url, [*every[:2], *every[3:]])
        assert (await app.audit.verify()).ok
        report = await app.audit.verify(copy)
        assert report.problems[0].record == every[2].id
        assert kinds(report) == {"copy", "cut_off"}


async def test_a_copy_that_lags_or_is_torn_is_no_problem_and_a_broken_one_is(sqlite_url: str, tmp_path: Path) -> None:
    copy = tmp_path / "audit.jsonl"
    async with make_app(sqlite_url) as app:
        await filled(app)
        await FileAuditSink(copy).append([one async for one in app.audit.export()][:4])
        lines = copy.read_bytes().splitlines(keepends=True)
        copy.write_bytes(b"".join(lines[:3]) + lines[3][:20])
        assert (await app.audit.verify(copy)).ok
        copy.write_bytes(lines[0] + b"nonsense\n" + b"".join(lines[1:]))
        (problem,) = (await app.audit.verify(copy)).problems
        assert (problem.kind, problem.said) == ("copy", "line 2 of the copy is no audit record")
        copy.write_bytes(b"".join(lines).replace(b'"actor":"ann"', b'"actor":"bob"', 1))
        assert kinds(await app.audit.verify(copy)) == {"copy"}
        copy.write_bytes(b"".join(lines[2:]))
        (problem,) = (await app.audit.verify(copy)).problems
        assert (problem.kind, problem.said[:35]) == ("copy", "the copy begins at position 3, and ")


async def test_an_empty_copy_is_a_problem_unless_the_chain_is_empty_too(database_url: str, tmp_path: Path) -> None:
    copy = tmp_path / "audit.jsonl"
    copy.touch()
    async with make_app(database_url) as app:
        assert (await app.audit.verify(copy)).ok
        await write(app, "a")
        for content in (b"", b'{"torn'):
            copy.write_bytes(content)
            (problem,) = (await app.audit.verify(copy)).problems
            assert (problem.kind, problem.said[:22]) == ("copy", "the copy has no record")
        with pytest.raises(ConfigurationError, match="cannot be read"):
            await app.audit.verify(tmp_path / "nowhere")


@pytest.mark.parametrize("change", ["at = 1e300", "actor = x'00ff'", "detail = 'no json'", "detail = '[1]'"])
async def test_a_record_that_cannot_even_be_read_was_changed(sqlite_url: str, change: str) -> None:
    async with make_app(sqlite_url) as app:
        await filled(app)
        record = (await chained(app.store.audits))[0]
        await tamper(sqlite_url, f"UPDATE postlude_audit SET {change} WHERE id = {literal(sqlite_url, record.id)}")
        (problem,) = (await app.audit.verify()).problems
        assert (problem.kind, problem.record) == ("changed", record.id)


async def test_a_subject_is_found_by_an_id_that_is_stored_nowhere(database_url: str) -> None:
    async with make_app(database_url) as app:
        await app.start()
        of_ann = TARGET + pseudonym(await app.store.audits.pseudonym_key(), "ann@example.com")
        await write(app, of_ann, "other", action="erasure_requested")
        (found,) = await app.audit.list(subject="ann@example.com")
        assert (found.target, found.action) == (of_ann, "erasure_requested")
        assert await app.audit.list(subject="bob@example.com") == []
        with pytest.raises(ConfigurationError, match="subject is a target"):
            await app.audit.list(subject="ann@example.com", target="x")
        assert await app.audit.list(subject=4711) == [], "the same ids that requests take"
        with pytest.raises(ConfigurationError, match="limit"):
            await app.audit.list(limit=-1)
        with pytest.raises(NaiveDatetime, match="since"):
            await app.audit.list(since=datetime(2026, 1, 1))  # noqa: DTZ001 - that is the mistake


async def test_export_gives_the_chain_in_order(database_url: str) -> None:
    async with make_app(database_url) as app:
        await filled(app)
        every = [one async for one in app.audit.export()]
        assert [(one.position, one.target) for one in every] == list(enumerate(NAMES, 1))
        assert [one.position async for one in app.audit.export(after=4)] == [5, 6]
        assert every[-1].hash == (await app.audit.verify()).hash
        assert [*reversed(await app.audit.list())] == every
