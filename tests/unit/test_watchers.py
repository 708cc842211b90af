from __future__ import annotations

import threading
from uuid import UUID, uuid4

import msgspec
import pytest

from postlude.core.delivery import Delivery
from postlude.core.lifecycle import Status
from postlude.core.outcome import Failed, Fault, Policy, Rejected, judge
from postlude.ports.upkeep import DutyRun
from postlude.runtime.telling import MAX_WAITING, Telling
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


class News(msgspec.Struct):
    id: UUID
    name: str = "Ada"


def test_a_hook_that_hangs_is_not_waited_for_and_the_log_says_only_ids(caplog: pytest.LogCaptureFixture) -> None:
    entered, release = threading.Event(), threading.Event()

    def hangs(news: News) -> None:
        entered.set()
        release.wait(60)

    telling = Telling("pager", [hangs], lambda news: news.id)
    telling.tell(News(uuid4()))
    assert entered.wait(20)
    for _ in range(MAX_WAITING):
        telling.tell(News(uuid4()))
    left_out = News(uuid4())
    telling.tell(left_out)
    telling.close(timeout=0.01)
    release.set()
    assert str(left_out.id) in caplog.text
    assert "not waited for" in caplog.text
    assert "Ada" not in caplog.text


@pytest.mark.parametrize("raised", [RuntimeError("Ada"), SystemExit("Ada")])
def test_a_hook_that_breaks_is_called_again_and_logged_without_its_words(
    caplog: pytest.LogCaptureFixture, raised: BaseException
) -> None:
    told: list[News] = []

    def breaks(news: News) -> None:
        told.append(news)
        raise raised

    telling = Telling("pager", [breaks], lambda news: news.id)
    for _ in ("first", "second"):
        telling.tell(News(uuid4()))
    telling.close(timeout=20)
    assert len(told) == 2
    assert all(str(one.id) in caplog.text for one in told)
    assert type(raised).__name__ in caplog.text
    assert "Ada" not in caplog.text


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
