"""One saga, looked at with or without its code, and what is said of it."""

from __future__ import annotations

from typing import NoReturn
from uuid import UUID

import msgspec
from msgspec import structs

from postlude.app import Postlude
from postlude.cli import render
from postlude.core.masking import masked
from postlude.core.saga.definition import Definition
from postlude.core.saga.instance import Instance
from postlude.core.saga.mermaid import of_instance
from postlude.core.saga.plan import fit, misfit
from postlude.errors import ConfigurationError, SagaRefused
from postlude.insight.sagas import Known, SagaInsight, stands
from postlude.saga.registry import Registry
from postlude.saga.view import SagaView, view_of

HISTORY = 1000
NEEDS_CODE = "Give --app MODULE:ATTR, the app that has the saga."


class Shown(msgspec.Struct, frozen=True):
    """A saga as it is shown; without code only by the phases of its steps."""

    view: SagaView
    has_code: bool
    graph: str | None = None

    def masked(self) -> Shown:
        """Without what its state says."""
        return structs.replace(self, view=structs.replace(self.view, state=masked(self.view.state)))


def registry_of(app: Postlude) -> Registry:
    """The sagas that the app's code has."""
    return app.sagas._registry  # noqa: SLF001 - the edge may look where callers need not


def known_to(app: Postlude) -> Known:
    """What the app's code knows of a saga."""

    def known(name: str) -> Definition | None:
        made = registry_of(app).named(name)
        return None if made is None else made.definition

    return known


def insight_of(app: Postlude) -> SagaInsight:
    return SagaInsight(app.store.sagas, known_to(app))


def refuse_without_code(what: str) -> NoReturn:
    raise ConfigurationError(f"{what} needs the code of the saga", hint=NEEDS_CODE)


async def look_at(app: Postlude, saga_id: UUID, *, has_code: bool, graph: bool) -> Shown:
    instance = await insight_of(app).get(saga_id)
    if graph and not has_code:
        refuse_without_code("a diagram")
    view = await view_in(app, instance, has_code=has_code)
    return Shown(view, has_code, _drawn(known_to(app)(instance.name), instance) if graph else None)


async def view_in(app: Postlude, instance: Instance, *, has_code: bool) -> SagaView:
    history = await app.store.sagas.history(instance.id, limit=HISTORY)
    view = view_of(registry_of(app).named(instance.name), instance, history)
    if has_code:
        return view
    found = stands(instance)
    return structs.replace(view, step=found.step, waits_for=found.waits_for, remaining=found.remaining)


def print_shown(shown: Shown, *, graph: bool, json: bool) -> None:
    if json:
        render.json({**structs.asdict(shown.view), **({"graph": shown.graph} if graph else {})})
    elif graph:
        render.say(shown.graph or "")
    else:
        _print(shown)


def _print(shown: Shown) -> None:
    view = shown.view
    run = "" if view.generation == 1 else f", run {view.generation}"
    render.say(f"{view.id}  {view.name} {view.process_id!r}{run}: {view.status}")
    for line in standing(view):
        render.say(f"  {line}")
    rows = [(one.at, one.what.replace("_", " "), one.step, one.attempt or None, one.detail) for one in view.history]
    render.table(("at", "what", "step", "attempt", "detail"), rows, optional=("attempt", "at"))
    if not shown.has_code and not view.has_ended:
        render.note("With --app MODULE:ATTR it is told in words what it waits for, and orders can be given.")


def standing(view: SagaView) -> list[str]:
    """Where it stands, a line each."""
    lines = [f"begun {render.moment(view.created_at)}, last change {render.moment(view.updated_at)}"]
    if view.error is not None:
        lines.append(f"error: {view.error}")
    if view.has_ended:
        return lines
    if view.step is not None:
        lines.append(f"at {view.step}" + (f", begun {view.attempts} times" if view.attempts > 1 else ""))
    lines += [f"waits for {one}" for one in view.waits_for]
    lines.append(f"remaining: {', '.join(view.remaining) or 'nothing'}")
    return lines


def _drawn(definition: Definition | None, instance: Instance) -> str:
    reason = "the code has no saga of this name" if definition is None else misfit(definition, instance)
    if definition is None or reason is not None:
        raise SagaRefused(
            f"saga {instance.name} {instance.process_id!r} cannot be drawn: {reason}",
            hint="Take the code that began it; without --graph its history is shown all the same.",
        )
    return of_instance(definition, fit(definition, instance))
