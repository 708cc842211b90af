"""A saga as a Mermaid diagram: the definition, or one instance with what happened."""

from __future__ import annotations

from itertools import pairwise

from postlude.core.saga.definition import Definition, Kind, Step, Way
from postlude.core.saga.instance import Instance, Phase, SagaStatus, StepState

COLOURS = {
    "good": "fill:#d5f5e3,stroke:#1e8449",
    "busy": "fill:#d6eaf8,stroke:#2471a3",
    "back": "fill:#fdebd0,stroke:#ca6f1e",
    "bad": "fill:#fadbd8,stroke:#b03a2e",
}
CLASSES = {
    Phase.running: "busy",
    Phase.undoing: "busy",
    Phase.done: "good",
    Phase.failed: "bad",
    Phase.unknown: "bad",
    Phase.gave_up: "bad",
    Phase.undo_failed: "bad",
    Phase.undo_gave_up: "bad",
    Phase.dropped: "back",
    Phase.undone: "back",
}
ENDS = {SagaStatus.completed: "good", SagaStatus.compensated: "back", SagaStatus.stuck: "bad"}


def of_definition(definition: Definition) -> str:
    """What the saga may do: forward drawn through, the way back dotted."""
    return "\n".join(_lines(definition, [_label(step) for step in definition.steps]))


def of_instance(definition: Definition, instance: Instance) -> str:
    """What it did: every step with its phase, coloured, and how it ended."""
    labels = [_label(step, state) for step, state in zip(definition.steps, instance.steps, strict=True)]
    lines = _lines(definition, labels)
    lines += [f"    classDef {name} {style}" for name, style in COLOURS.items()]
    lines += [
        f"    class s{number} {CLASSES[state.phase]}"
        for number, state in enumerate(instance.steps)
        if state.phase in CLASSES
    ]
    error = "" if instance.error is None else f"<br/>{_escaped(instance.error)}"
    lines.append(f'    status{{{{"{instance.status}{error}"}}}}')
    if instance.status in ENDS:
        lines.append(f"    class status {ENDS[instance.status]}")
    return "\n".join(lines)


def _lines(definition: Definition, labels: list[str]) -> list[str]:
    lines = ["flowchart LR", '    start(["start"])']
    for number, stage in enumerate(definition.stages):
        block = definition.steps[stage[0]].block
        inside = [f"    {_node(index, definition.steps[index], labels[index])}" for index in stage]
        if block is None:
            lines += inside
        else:
            lines += [f'    subgraph b{number}["{_escaped(block)}"]', *(f"    {line}" for line in inside), "    end"]
    lines.append('    completed(["completed"])')
    return [*lines, *_forward(definition), *_back(definition)]


def _forward(definition: Definition) -> list[str]:
    stages = [["start"], *([f"s{index}" for index in stage] for stage in definition.stages), ["completed"]]
    return [f"    {' & '.join(before)} --> {' & '.join(after)}" for before, after in pairwise(stages)]


def _back(definition: Definition) -> list[str]:
    """From each undo to the one before it; to `compensated` at last."""
    undoable = [index for index, step in enumerate(definition.steps) if step.undo is not None]
    if all(step.kind is Kind.retriable for step in definition.steps):
        return []
    lines = ['    compensated(["compensated"])']
    lines += [f"    s{later} -. undo .-> s{earlier}" for earlier, later in pairwise(undoable)]
    lines.append(f"    s{undoable[0]} -. undo .-> compensated" if undoable else "    start -. failure .-> compensated")
    return lines


def _node(index: int, step: Step, label: str) -> str:
    if step.kind is Kind.pivot:
        return f's{index}{{"{label}"}}'
    if step.way is Way.wait:
        return f's{index}[/"{label}"/]'
    return f's{index}[["{label}"]]' if step.way is Way.command else f's{index}["{label}"]'


def _label(step: Step, state: StepState | None = None) -> str:
    parts = [step.name, step.kind if step.kind is not Kind.compensatable else None]
    parts.append(None if step.way is Way.handler else step.way)
    if state is not None and state.phase is not Phase.ahead:
        again = f" (attempt {state.attempt})" if state.attempt > 1 else ""
        parts += [f"{state.phase}{again}", state.code]
    return "<br/>".join(_escaped(part) for part in parts if part)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
