"""Whatever is done to a chain afterwards is found and named; a chain that nobody touched verifies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from postlude.audit.lines import line_of, record_of
from postlude.core.audit_chain import (
    AuditRecord,
    Head,
    Link,
    canonical,
    link_hash,
    linked,
    parse_head,
    row_hash,
)
from postlude.core.audit_copy import CopyCheck
from postlude.core.audit_verify import KEPT, AuditProblem, Findings, Verifier

Chain = list[tuple[Link, AuditRecord | None]]
texts = st.text(max_size=12)
details = st.dictionaries(texts, st.one_of(texts, st.integers(), st.booleans()), max_size=4)
moments = st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
optional = st.none() | texts
records = st.builds(
    AuditRecord,
    id=st.uuids(),
    at=moments,
    actor=texts,
    action=texts,
    target=texts,
    reason=texts,
    detail=details,
    trace_id=optional,
    old_status=optional,
    new_status=optional,
)
histories = st.lists(records, min_size=3, max_size=12, unique_by=lambda one: one.id)
places = st.integers(min_value=0, max_value=10**6)


def chain_of(history: list[AuditRecord]) -> tuple[Chain, str]:
    head, links, _ = linked(Head(), history)
    return list(zip(links, history, strict=True)), str(head)


def verify(chain: Chain, head: str | None) -> list[AuditProblem]:
    verifier = Verifier()
    for link, record in chain:
        verifier.take(link, record)
    verifier.end(head)
    return verifier.found.problems


def named(problems: list[AuditProblem]) -> set[tuple[str, UUID | None]]:
    return {(one.kind, one.record) for one in problems}


@given(histories)
def test_an_untouched_chain_verifies(history: list[AuditRecord]) -> None:
    chain, head = chain_of(history)
    assert verify(chain, head) == []
    assert parse_head(head) == Head(len(history), chain[-1][0].hash)
    assert verify([], "0:") == []


@given(histories, places, st.sampled_from(AuditRecord.__struct_fields__[:10]), st.data())
def test_a_changed_record_is_named(history: list[AuditRecord], place: int, field: str, data: st.DataObject) -> None:
    chain, head = chain_of(history)
    at = place % len(chain)
    link, record = chain[at]
    assert record is not None
    kinds = {"id": st.uuids(), "at": moments, "detail": details}
    other = data.draw(kinds.get(field, texts).filter(lambda value: value != getattr(record, field)))
    changed = msgspec.structs.replace(record, **{field: other})
    chain[at] = (link, changed)
    assert named(verify(chain, head)) == {("changed", record.id)}


@given(histories, places)
def test_a_microsecond_more_is_a_change(history: list[AuditRecord], place: int) -> None:
    chain, head = chain_of(history)
    at = place % len(chain)
    link, record = chain[at]
    assert record is not None
    chain[at] = (link, msgspec.structs.replace(record, at=record.at + timedelta(microseconds=1)))
    assert named(verify(chain, head)) == {("changed", record.id)}


@given(histories, places)
def test_a_removed_record_is_named(history: list[AuditRecord], place: int) -> None:
    chain, head = chain_of(history)
    at = place % len(chain)
    chain[at] = (chain[at][0], None)
    assert named(verify(chain, head)) == {("missing", history[at].id)}


@given(histories, places)
def test_a_removed_link_is_named(history: list[AuditRecord], place: int) -> None:
    chain, head = chain_of(history)
    at = place % len(chain)
    del chain[at]
    (found,) = verify(chain, head)
    assert (found.kind, found.position) == ("link_missing", at + 1)


@given(histories, st.integers(min_value=1, max_value=3))
def test_a_tail_that_was_cut_off_is_found_by_the_head(history: list[AuditRecord], count: int) -> None:
    chain, head = chain_of(history)
    (found,) = verify(chain[:-count], head)
    assert (found.kind, found.position) == ("link_missing", len(history) - count + 1)


@given(histories, places, places)
def test_records_that_changed_places_are_named(history: list[AuditRecord], one: int, other: int) -> None:
    chain, head = chain_of(history)
    first, second = one % len(chain), other % len(chain)
    if first == second:
        second = (first + 1) % len(chain)
    (link, record), (link2, record2) = chain[first], chain[second]
    chain[first] = (msgspec.structs.replace(link, audit_id=link2.audit_id), record2)
    chain[second] = (msgspec.structs.replace(link2, audit_id=link.audit_id), record)
    assert {("reordered", history[first].id), ("reordered", history[second].id)} == named(verify(chain, head))


@given(histories, places)
def test_links_that_changed_places_are_named(history: list[AuditRecord], place: int) -> None:
    chain, head = chain_of(history)
    at = place % (len(chain) - 1)
    (link, record), (link2, record2) = chain[at], chain[at + 1]
    chain[at] = (msgspec.structs.replace(link2, position=link.position), record2)
    chain[at + 1] = (msgspec.structs.replace(link, position=link2.position), record)
    assert {("link", history[at].id), ("link", history[at + 1].id)} <= named(verify(chain, head))


@given(histories, places, records)
def test_a_record_that_was_put_in_is_named(history: list[AuditRecord], place: int, forged: AuditRecord) -> None:
    chain, head = chain_of(history)
    at = place % len(chain)
    before = chain[at - 1][0].hash if at else b""
    row = row_hash(forged)
    later = [(msgspec.structs.replace(link, position=link.position + 1), record) for link, record in chain[at:]]
    put_in = (Link(at + 1, forged.id, row, link_hash(before, row)), forged)
    found = named(verify([*chain[:at], put_in, *later], head))
    assert ("link", history[at].id) in found
    assert "head" in {kind for kind, _ in found}


@given(histories, places)
def test_a_rewritten_hash_is_named(history: list[AuditRecord], place: int) -> None:
    chain, head = chain_of(history)
    at = place % len(chain)
    link, record = chain[at]
    chain[at] = (msgspec.structs.replace(link, hash=bytes(32)), record)
    assert ("link", history[at].id) in named(verify(chain, head))


@given(histories, st.sampled_from([None, "", "x", "0:", "-1:", "3:abc", "1:" + "0" * 64]))
def test_a_head_that_does_not_fit_is_found(history: list[AuditRecord], head: str | None) -> None:
    assert {one.kind for one in verify(chain_of(history)[0], head)} == {"head"}


@given(histories)
def test_a_copy_has_every_bit_of_a_record(history: list[AuditRecord]) -> None:
    for record in linked(Head(), history)[2]:
        read = record_of(line_of(record))
        assert read is not None
        assert canonical(read) == canonical(record)
        assert (read.position, read.hash) == (record.position, record.hash)


def compare(copied: list[AuditRecord], chain: Chain) -> list[AuditProblem]:
    found = Findings()
    check, links = CopyCheck(found), {link.position: link for link, _ in chain}
    for one in copied:
        check.take(one, links.get(one.position or 0))
    return found.problems


@given(histories, places)
def test_a_copy_shows_a_history_that_was_rewritten_whole(history: list[AuditRecord], place: int) -> None:
    _, _, copied = linked(Head(), history)
    at = place % len(history)
    forged = [*history]
    forged[at] = msgspec.structs.replace(forged[at], reason=forged[at].reason + "!")
    chain, head = chain_of(forged)
    assert verify(chain, head) == [], "nothing within the database shows it"
    assert named(compare(copied, chain)) == {("copy", one.id) for one in history[at:]}


@given(histories, st.integers(min_value=1, max_value=3))
def test_a_copy_shows_what_was_cut_off(history: list[AuditRecord], count: int) -> None:
    _, _, copied = linked(Head(), history)
    chain, head = chain_of(history[:-count])
    assert verify(chain, head) == []
    assert named(compare(copied, chain)) == {("cut_off", one.id) for one in history[-count:]}


@given(history=histories, place=places, removed=st.booleans())
def test_a_copy_that_was_touched_itself_is_named(history: list[AuditRecord], place: int, *, removed: bool) -> None:
    chain, _ = chain_of(history)
    _, _, copied = linked(Head(), history)
    assert compare([*copied[:2], *copied[1:]], chain) == [], "a sink may have one twice"
    at = 1 + place % (len(copied) - 2)
    touched = copied[at]
    if removed:
        del copied[at]
        assert named(compare(copied, chain)) == {("copy", history[at + 1].id)}
    else:
        copied[at] = msgspec.structs.replace(touched, actor=touched.actor + "!")
        assert named(compare(copied, chain)) == {("copy", touched.id)}


def test_what_is_found_is_bounded_and_counted() -> None:
    found = Findings()
    for number in range(KEPT + 5):
        found.add("unlinked", "x", number)
    assert (len(found.problems), found.count) == (KEPT, KEPT + 5)
