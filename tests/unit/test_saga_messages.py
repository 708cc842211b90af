"""What a saga sends to itself, ids that follow from others, and the database's time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest

from postlude.core.saga.decision import RunStep, RunUndo, ScheduleDeadline, SendCommand, SendUndo
from postlude.core.saga.signal import DeadlinePassed
from postlude.core.uuid7 import time_of, uuid7
from postlude.saga.messages import SagaMessage, deadline_id, derived, message_of
from postlude.saga.times import Times
from postlude.testing.clock import ManualClock

MADE = uuid7(1_700_000_000_000, 12345)


@pytest.mark.parametrize("work", [RunStep, SendCommand, RunUndo, SendUndo])
def test_work_comes_back_as_it_was_sent(work: type[RunStep]) -> None:
    sent = message_of(work("charge", 2, "k"))
    assert SagaMessage.read(msgspec.json.encode(sent)).work() == work("charge", 2, "k")


def test_a_result_is_not_carried_along() -> None:
    assert b"secret" not in msgspec.json.encode(message_of(RunUndo("charge", 1, "k", "secret")))


def test_a_deadline_comes_back_as_what_has_passed() -> None:
    sent = message_of(ScheduleDeadline(datetime.now(UTC), "charge", 3, undo=True))
    assert SagaMessage.read(msgspec.json.encode(sent)).deadline() == DeadlinePassed("charge", 3, undo=True)


def test_a_derived_id_is_the_same_again_and_of_the_time_of_its_source() -> None:
    assert derived(MADE, "a") == derived(MADE, "a")
    assert len({derived(MADE, "a"), derived(MADE, "b"), derived(MADE, "a", "b"), derived(uuid4(), "a"), MADE}) == 5
    assert time_of(derived(MADE, "a")) == time_of(MADE)
    other = UUID("c56a4180-65aa-42ec-a945-5fd21dec0538")
    assert derived(other, "a") == derived(other, "a")
    assert derived(other, "a").version == 5


def test_every_deadline_has_an_id_of_its_own() -> None:
    ids = {
        deadline_id(MADE, step, attempt, undo=undo)
        for step in (None, "a", "b")
        for attempt in (1, 2)
        for undo in (False, True)
    }
    assert len(ids) == 12


async def test_the_time_is_the_databases_once_it_was_asked() -> None:
    clock = ManualClock()
    times = Times(lambda: clock)
    assert abs(times.now() - datetime.now(UTC)) < timedelta(seconds=5)

    async def ask() -> datetime:
        return datetime.now(UTC) + timedelta(hours=3) + timedelta(seconds=clock.ahead)

    clock.advance(60)
    await times.learn(ask)
    assert abs(times.now() - datetime.now(UTC) - timedelta(hours=3, seconds=60)) < timedelta(seconds=5)
    clock.advance(600)
    assert abs(times.now() - datetime.now(UTC) - timedelta(hours=3, seconds=660)) < timedelta(seconds=5)
