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


async def take(_: About) -> None:
    """A handler."""


def nothing(app: Postlude) -> None:
    app.route(Other)


def routed(app: Postlude) -> None:
    app.route(About)


def handled(app: Postlude) -> None:
    app.on(About, name="take")(take)


def everything(app: Postlude) -> None:
    app.route("*")


def appended(app: Postlude) -> None:
    app.routes.know(spec_of(About))


@pytest.mark.parametrize(
    ("declare", "may"), [(nothing, False), (routed, True), (handled, True), (everything, True), (appended, True)]
)
def test_what_an_app_declares_says_whether_it_may_name_subjects(declare: Callable[[Postlude], None], may: bool) -> None:
    app = Postlude("sqlite:///unopened.db", broker="memory://")
    declare(app)
    assert app.routes.may_name_subjects is may
