from __future__ import annotations

import threading
from uuid import uuid4

from postlude.core.delivery import Delivery
from postlude.core.lifecycle import Status
from postlude.core.outcome import Failed, Fault, Policy, Rejected, judge
from postlude.ports.upkeep import DutyRun
from postlude.runtime.watchers import DeadLetter, Watchers


def dead(error: str = "Boom"):
    delivery = Delivery(1, uuid4(), 0, "k", 1, Status.pending, 0)
    return delivery, judge(delivery, Rejected(Fault(error, at="shop:place:3")), Policy())


def test_a_dead_letter_is_told_to_every_hook_though_one_breaks() -> None:
    told: list[DeadLetter] = []

    def breaks(letter: DeadLetter) -> None:
        raise RuntimeError

    watchers = Watchers([breaks, told.append])
    delivery, verdict = dead()
    watchers.recorded("mail", [(delivery, verdict)])
    watchers.close()
    assert [letter.event_id for letter in told] == [delivery.event_id]
    assert told[0].destination == "mail"
    assert told[0].attempts == 1
    assert told[0].error == "Boom at shop:place:3"


def test_a_failure_that_will_be_tried_again_is_told_to_nobody() -> None:
    told: list[DeadLetter] = []
    watchers = Watchers([told.append])
    delivery, _ = dead()
    watchers.recorded("mail", [(delivery, judge(delivery, Failed(Fault("Boom")), Policy()))])
    watchers.close()
    assert told == []
    assert watchers.counts["failed:mail"] == 1


def test_a_slow_hook_holds_nobody_up() -> None:
    release, told = threading.Event(), []

    def slow(letter: DeadLetter) -> None:
        release.wait(10)
        told.append(letter)

    watchers = Watchers([slow])
    for _ in range(3):
        watchers.recorded("mail", [dead()])
    assert told == []
    release.set()
    watchers.close()
    assert len(told) == 3


def test_a_duty_is_counted_with_its_rows_failures_and_seconds() -> None:
    watchers = Watchers([])
    watchers.duty("duty:retention", DutyRun(rows=3, seconds=0.5))
    watchers.duty("duty:retention", DutyRun(rows=0, seconds=0.25, error="Boom"))
    assert watchers.counts == {"duty:retention:turns": 2, "duty:retention:rows": 3, "duty:retention:failures": 1}
    assert watchers.seconds == {"duty:retention:seconds": 0.75}


def test_counts_are_kept_by_destination() -> None:
    watchers = Watchers([])
    delivery, _ = dead()
    watchers.settled("mail", [delivery, delivery])
    watchers.unavailable("mail")
    watchers.overtaken("mail", 4)
    assert watchers.counts == {"sent:mail": 2, "unavailable:mail": 1, "overtaken:mail": 4}
    watchers.close()
