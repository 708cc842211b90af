from __future__ import annotations

import re
import sqlite3
from importlib import resources

import pytest

from postlude import Status
from postlude.core.lifecycle import BIRTHS, OPEN, OUTCOMES, TRANSITIONS, blocks, mermaid
from postlude.storage import statements

OPEN_TRANSITIONS = {(was, becomes) for was in OPEN for becomes in TRANSITIONS[was] if becomes in OPEN}


def test_pending_is_a_birth_state() -> None:
    assert not any(Status.pending in becomes for becomes in TRANSITIONS.values())
    assert {Status.pending, Status.claimed, Status.scheduled} == BIRTHS


def test_an_outcome_is_final() -> None:
    for outcome in OUTCOMES:
        assert outcome.next() == frozenset()
        assert not outcome.is_open


def test_every_open_status_can_come_to_an_end() -> None:
    for status in OPEN:
        reached, fresh = {status}, {status}
        while fresh:
            fresh = {after for one in fresh for after in one.next()} - reached
            reached |= fresh
        assert Status.sent in reached, status
        assert status.is_open


def test_a_dead_letter_is_only_requeued_or_discarded() -> None:
    assert Status.dead.next() == {Status.failed, Status.discarded}
    assert not Status.dead.can_become(Status.sent)


@pytest.mark.parametrize("was", Status)
@pytest.mark.parametrize("becomes", Status)
def test_can_become_and_next_agree(was: Status, becomes: Status) -> None:
    assert was.can_become(becomes) == (becomes in was.next())


def test_what_holds_its_key() -> None:
    holding = {status for status in Status if blocks(status, "k")}
    assert holding == {Status.claimed, Status.failed}
    assert blocks(Status.dead, "k", on_dead_blocks=True)
    assert not any(blocks(status, None, on_dead_blocks=True) for status in Status)


def test_a_delay_never_holds_its_key() -> None:
    assert not blocks(Status.scheduled, "k", on_dead_blocks=True)
    assert not blocks(Status.pending, "k", on_dead_blocks=True)


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_the_databases_have_the_same_table(dialect: str) -> None:
    text = resources.files(f"postlude.storage.{dialect}").joinpath("migrations/0001_pre_engine.sql").read_text()
    inserted = text.split("INSERT INTO", 1)[1].split(";", 1)[0]
    assert set(re.findall(r"\('(\w+)', '(\w+)'\)", inserted)) == {(str(was), str(to)) for was, to in OPEN_TRANSITIONS}


def test_sqlite_refuses_what_the_table_does_not_allow(sqlite_url: str) -> None:
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))
    insert = (
        "INSERT INTO postlude_delivery (event_id, destination, status) VALUES (randomblob(16), 'd', ?) RETURNING seq"
    )
    for birth in OPEN:
        if birth not in BIRTHS:
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(insert, (str(birth),)).fetchone()
    for was in OPEN:
        for becomes in OPEN:
            connection.rollback()
            (seq,) = connection.execute(insert, ("pending" if was not in BIRTHS else str(was),)).fetchone()
            if was not in BIRTHS:
                connection.execute("UPDATE postlude_delivery SET status = ? WHERE seq = ?", (str(was), seq))
            change = ("UPDATE postlude_delivery SET status = ? WHERE seq = ?", (str(becomes), seq))
            if (was, becomes) in OPEN_TRANSITIONS:
                connection.execute(*change)
            else:
                with pytest.raises(sqlite3.IntegrityError):
                    connection.execute(*change)
    connection.close()


def test_the_diagram_shows_every_transition() -> None:
    lines = mermaid().splitlines()
    assert lines[0] == "stateDiagram-v2"
    drawn = {tuple(line.strip().split(" --> ")) for line in lines[1:]}
    assert {(str(was), str(to)) for was in Status for to in was.next()} <= drawn
    assert {("[*]", str(birth)) for birth in BIRTHS} <= drawn
    assert {(str(outcome), "[*]") for outcome in OUTCOMES} <= drawn


def test_no_query_makes_anything_pending() -> None:
    for dialect in ("postgres", "sqlite"):
        for name, statement in statements.load(f"postlude.storage.{dialect}").items():
            assert not re.search(r"SET\s+status\s*=\s*'pending'", statement.sql), (dialect, name)
