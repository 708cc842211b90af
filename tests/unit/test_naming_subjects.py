"""Whether an event of an app could name a data subject is known from what the app declares."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from postlude import Event, Postlude, event
from postlude.core.event import spec_of


@event(type="test.about", key="customer", subjects=("customer",))
class About(Event):
    customer: str


@event(type="test.other")
class Other(Event):
    number: int


@event(type="test.about")
class Partly(Event):
    """The same, to whom it does not matter whom it is about."""


async def take(_: About) -> None:
    """A handler."""


async def take_partly(_: Partly) -> None:
    """Another."""


def nothing(app: Postlude) -> None:
    app.route(Other)


def routed(app: Postlude) -> None:
    app.route(About)


def handled(app: Postlude) -> None:
    app.on(About, name="take")(take)


def read_twice(app: Postlude) -> None:
    handled(app)
    app.on(Partly, name="take_partly")(take_partly)


def everything(app: Postlude) -> None:
    app.route("*")


def appended(app: Postlude) -> None:
    app.routes.know(spec_of(About))


@pytest.mark.parametrize(
    ("declare", "may"),
    [(nothing, False), (routed, True), (handled, True), (read_twice, True), (everything, True), (appended, True)],
)
def test_what_an_app_declares_says_whether_it_may_name_subjects(declare: Callable[[Postlude], None], may: bool) -> None:
    app = Postlude("sqlite:///unopened.db", broker="memory://")
    declare(app)
    assert app.routes.may_name_subjects is may
