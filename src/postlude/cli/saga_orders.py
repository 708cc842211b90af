"""An operator's orders to a saga."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from postlude.app import Postlude
from postlude.cli import render
from postlude.cli.acting import actor_name
from postlude.cli.loading import open_app, using_schema
from postlude.cli.saga_show import insight_of, refuse_without_code, standing
from postlude.core.masking import masked
from postlude.errors import ConfigurationError, SagaRefused
from postlude.saga.view import SagaView


class Action(msgspec.Struct, frozen=True):
    summary: str
    said: str


ACTIONS = {
    "retry": Action(
        "Begin again what failed; with --step also what runs and is not heard of.", "It was told to try again."
    ),
    "skip": Action("Take a step for done with --value, or its undo for done.", "The step was taken for done."),
    "compensate": Action(
        "Turn back: before the pivot, and wherever it is stuck on its way forward.", "It was told to turn back."
    ),
    "cancel": Action("Turn back; refused from the pivot on.", "It was told to turn back."),
}


def value_of(text: str | None) -> Any:
    """The JSON of --value."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        hint = """Write --value '{"shelf": "A1"}', --value '"A1"' or --value 7."""
        raise ConfigurationError("--value is not JSON", hint=hint) from error


def obey(action: str, saga_id: UUID, app: str | None, database: str | None, *, json: bool, **said: Any) -> None:
    """Give the order and say what follows. Exit 1: it was refused."""
    said["actor"] = actor_name(said["actor"])

    async def work(opened: Postlude) -> SagaView:
        await insight_of(opened).get(saga_id)
        if app is None:
            refuse_without_code("an order")
        try:
            view: SagaView = await getattr(opened.sagas, action)(saga_id, **said)
        except SagaRefused as error:
            if error.hint != SagaRefused.default_hint:
                raise
            raise SagaRefused(str(error.args[0]), hint=f"postlude saga show {saga_id}") from error
        await opened.store.hint()
        is_masked = opened.settings.privacy.mask
        return msgspec.structs.replace(view, state=masked(view.state)) if is_masked else view

    view = using_schema(open_app(app, database), work)
    if json:
        render.json({"action": action, "saga": view})
        return
    render.say(f"{ACTIONS[action].said} {view.name} {view.process_id!r} is {view.status} now.")
    for line in standing(view)[1:]:
        render.say(f"  {line}")
