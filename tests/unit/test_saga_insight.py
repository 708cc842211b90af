"""Where a saga stands for those who do not have its code, and what a list refuses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from postlude import ConfigurationError, NaiveDatetime
from postlude.insight.sagas import SagaInsight, stands
from postlude.ports.sagas import SagaFilter
from postlude.testing.saga import Happening, compensate, dies, err, given, gives_up, ok, undo_err, undo_ok
from tests.sagas import PLAIN_ORDER, OrderState

STATE = OrderState(order_id="o-1")


def where(*happenings: Happening) -> tuple[str | None, tuple[str, ...], tuple[str, ...]]:
    found = stands(given(PLAIN_ORDER, STATE).when(*happenings).instance)
    return found.step, found.waits_for, found.remaining


def test_on_the_way_forward() -> None:
    assert where() == ("reserve", ("reserve: running",), ("reserve", "charge", "note", "ship", "mail"))
    step, waits, remaining = where(ok("reserve"), ok("note"))
    assert (step, waits, remaining) == ("charge", ("charge: running",), ("charge", "ship", "mail"))


def test_on_the_way_back() -> None:
    step, waits, remaining = where(ok("reserve"), ok("charge"), ok("note"), err("ship", "NoCourier"))
    assert (step, waits) == ("charge", ("charge: undoing",))
    assert remaining[-1] == "reserve", "the first step is undone last"


def test_what_needs_an_operator() -> None:
    stuck = (ok("reserve"), err("charge"), ok("note"), undo_err("reserve", "Jammed"))
    assert where(*stuck)[:2] == ("reserve", ("reserve: undo failed (Jammed)",))
    assert where(dies("Unreadable"))[1][0] == "an operator: a signal died (Unreadable)"
    behind = (ok("reserve"), ok("charge"), ok("note"), ok("ship"), gives_up("mail", "Gone"))
    assert where(*behind) == ("mail", ("mail: gave up (Gone)",), ("mail",))


def test_after_the_end_there_is_nothing_left() -> None:
    assert where(compensate(), ok("reserve"), undo_ok("reserve")) == (None, (), ())


@pytest.mark.parametrize(
    ("which", "options"),
    [
        ({"status": "odd"}, {}),
        ({}, {"limit": 0}),
        ({}, {"limit": 10_001}),
        ({}, {"after": "x"}),
        ({}, {"after": f"{datetime(2030, 1, 1, tzinfo=UTC).isoformat()}/x"}),
    ],
)
async def test_a_list_refuses_what_cannot_be_meant(which: dict[str, Any], options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        await SagaInsight(Unread(), lambda _: None).list(SagaFilter(**which), **options)


async def test_a_list_refuses_times_without_a_zone() -> None:
    moment = datetime(2030, 1, 1)  # noqa: DTZ001 - that is the point
    with pytest.raises(NaiveDatetime):
        await SagaInsight(Unread(), lambda _: None).list(SagaFilter(since=moment))
    with pytest.raises(NaiveDatetime):
        after = f"{moment.isoformat()}/00000000-0000-0000-0000-000000000001"
        await SagaInsight(Unread(), lambda _: None).list(SagaFilter(), after=after)


class Unread:
    """A database that must not be asked."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")
