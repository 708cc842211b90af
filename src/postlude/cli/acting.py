"""What an operator's action is aimed at, and which events it would change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import msgspec

from postlude.core.lifecycle import Status
from postlude.errors import NotFound
from postlude.insight.actions import Actions
from postlude.insight.insight import DeliveryView, Insight
from postlude.ports.store import Filter

PAGE = 1000


class Action(msgspec.Struct, frozen=True):
    """An action in words, and the statuses it applies to."""

    past: str
    statuses: tuple[Status, ...]


ACTIONS = {
    "requeue": Action("requeued", (Status.dead,)),
    "discard": Action("discarded", (Status.pending, Status.failed, Status.scheduled, Status.dead)),
    "bury": Action("buried", (Status.pending, Status.failed, Status.scheduled)),
}


class Choice(msgspec.Struct, frozen=True):
    """An action on events by id (narrowed to a destination), or on what a filter says."""

    action: str
    ids: tuple[UUID, ...] | None
    which: Filter


async def act(actions: Actions, choice: Choice, *, actor: str, reason: str) -> list[UUID]:
    """Do it; gives the events that changed."""
    perform = {"requeue": actions.requeue, "discard": actions.discard, "bury": actions.bury}[choice.action]
    if choice.ids is not None:
        return await perform(choice.ids, actor=actor, reason=reason, destination=choice.which.destination)
    return await perform(choice.which, actor=actor, reason=reason)


async def would_change(insight: Insight, choice: Choice) -> list[UUID]:
    """The events that the action would change if it were done now."""
    found = _of_ids(insight, choice) if choice.ids is not None else _of_filter(insight, choice)
    return list(dict.fromkeys([delivery.event_id async for delivery in found]))


async def _of_ids(insight: Insight, choice: Choice) -> AsyncIterator[DeliveryView]:
    for event_id in choice.ids or ():
        try:
            story = await insight.event(event_id)
        except NotFound:
            continue
        for delivery in story.deliveries:
            if delivery.status in ACTIONS[choice.action].statuses and choice.which.destination in (
                None,
                delivery.destination,
            ):
                yield delivery


async def _of_filter(insight: Insight, choice: Choice) -> AsyncIterator[DeliveryView]:
    which = choice.which
    for status in ACTIONS[choice.action].statuses:
        if which.status not in (None, status):
            continue
        after: str | None = None
        while True:
            page = await insight.list(
                status, which.type, which.key, destination=which.destination,
                since=which.since, until=which.until, limit=PAGE, after=after,
            )  # fmt: skip
            for delivery in page.items:
                yield delivery
            if page.after is None:
                break
            after = page.after
