"""What `doctor` makes of the sagas it found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from postlude.app import Postlude
from postlude.cli.checks import Finding
from postlude.cli.saga_show import insight_of, known_to
from postlude.core.saga.instance import Instance
from postlude.core.saga.plan import fit, misfit
from postlude.insight.sagas import Known, PlanLine, names_of
from postlude.runtime.duties.stalls import stall

QUIET = 300.0
"""Seconds without a change and with nothing on its way."""
NAMED = 3


class SagaFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of sagas, on a database that can be reached and has a schema."""

    counts: Mapping[str, Mapping[str, int]]
    plans: Sequence[PlanLine] = ()
    stalled: Sequence[tuple[Instance, str]] = ()


async def sagas_in(app: Postlude) -> SagaFacts:
    """What the app does not know, other apps may: only what it does know can stand against its code."""
    insight, known = insight_of(app), known_to(app)
    counts = await insight.counts()
    if not counts:
        return SagaFacts(counts=counts)
    plans = [line for line in await insight.plan() if known(line.name) is not None]
    quiet = [(one, why) for one in await insight.quiet(QUIET) if (why := _why(known, one)) is not None]
    return SagaFacts(counts=counts, plans=plans, stalled=quiet)


def check_sagas(facts: SagaFacts) -> Iterator[Finding]:
    """Nothing to say where there never was one."""
    if not facts.counts:
        return
    troubles = [*_stuck(facts), *_misfits(facts), *_stalled(facts)]
    yield from troubles
    if not troubles:
        live = sum(found.get("running", 0) + found.get("compensating", 0) for found in facts.counts.values())
        yield Finding("sagas", "ok", f"{live:,} under way, none is stuck")


def _stuck(facts: SagaFacts) -> Iterator[Finding]:
    stuck = {name: found["stuck"] for name, found in facts.counts.items() if found.get("stuck")}
    if stuck:
        what = ", ".join(f"{name} ({count:,})" for name, count in stuck.items())
        hint = "See `postlude saga list --status stuck`; `postlude saga show ID` says what each one needs."
        yield Finding("sagas", "warn", f"an operator is needed for {what}", hint)


def _misfits(facts: SagaFacts) -> Iterator[Finding]:
    ends = [line for line in facts.plans if not line.continues]
    if ends:
        what = f"this code cannot continue {names_of(ends)}: {ends[0].why}"
        yield Finding("sagas", "warn", what, "`postlude saga plan` lists them; workers of this code leave them alone.")


def _stalled(facts: SagaFacts) -> Iterator[Finding]:
    for instance, why in facts.stalled[:NAMED]:
        yield Finding("sagas", "warn", f"{instance.name} {instance.process_id!r} stands still: {why}", _help(instance))
    if len(facts.stalled) > NAMED:
        more = len(facts.stalled) - NAMED
        yield Finding("sagas", "warn", f"{more:,} more stand still", "See `postlude saga list --status running`.")


def _help(instance: Instance) -> str:
    return f"postlude saga retry {instance.id} --step STEP --reason ..., or `postlude saga show` first."


def _why(known: Known, instance: Instance) -> str | None:
    """None: it waits for somebody else as it should, or that cannot be told."""
    definition = known(instance.name)
    if definition is None or misfit(definition, instance) is not None:
        return None
    return stall(definition, fit(definition, instance))
