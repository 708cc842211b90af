"""What a type checker must refuse, and what it must let pass. `# refused` marks the lines with an error."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT

PROGRAM = """
from datetime import timedelta
from typing import Any

from postlude import Err, Event, EventHandler, Ok, event
from postlude.saga.plain import Saga, step
from postlude.saga.step import SagaStep
from postlude.saga.typed import SagaDef


@event
class Placed(Event):
    order_id: str


@event
class Reserved(Event):
    order_id: str


@event
class Short(Event):
    order_id: str


class State:
    order_id: str


class Reserve(EventHandler[Placed, Reserved, Short]):
    async def handle(self, event: Placed) -> Ok[Reserved] | Err[Short]:
        if event.order_id:
            return Err(Placed(order_id=""))  # refused
        return Ok(Short(order_id=""))  # refused


class Wrong(EventHandler[Placed, Reserved, Short]):
    async def handle(self, event: Placed) -> Ok[Placed] | Err[Short]:  # refused
        return Ok(event)


good = SagaStep("a", handler=Reserve, success=Reserved, failure=Short, compensation=None)
wait = SagaStep("b", wait=Placed, failure=Short, compensation=None, deadline=timedelta(1), block="x")
sent = SagaStep("c", command=Placed, topic="t", success=Reserved, compensation=Short, compensated=Placed, kind="pivot")

SagaStep("a", handler=Reserve, success=Placed, failure=Short, compensation=None)  # refused
SagaStep("a", handler=Reserve, success=Reserved, failure=Placed, compensation=None)  # refused
SagaStep("a", handler=Placed, success=Placed, compensation=None)  # refused
SagaStep("a", command=Placed, success=Reserved, compensation=None)  # refused
SagaStep("a", wait=Placed, compensation=None, kind="odd")  # refused
SagaStep("a", compensation=None)  # refused


class Shop(SagaDef[Placed, str]):
    name = "shop"
    correlation_field = "order_id"
    steps = (good, wait, sent)

    def extract_id(self, event: Placed) -> str:
        return event.order_id

    async def on_completed(self, id: str) -> Reserved:
        return Reserved(order_id=id)


class Odd(SagaDef[Placed, str]):
    steps = ("a", "b")  # refused

    def extract_id(self, event: Placed) -> int:  # refused
        return 1

    def serialize_id(self, id: int) -> str:  # refused
        return str(id)

    async def on_failed(self, id: int, error: str) -> Short:  # refused
        return Short(order_id="")


async def do(state: State, ctx: Any) -> Ok[int] | Err[str]:
    return Ok(1)


async def undo(state: State, ctx: Any) -> None: ...


async def other(state: Placed, ctx: Any) -> Ok[int]:
    return Ok(1)


async def bare(state: State, ctx: Any) -> int:
    return 1


async def coded(state: State, ctx: Any) -> Ok[int] | Err[int]:
    return Err(1)


def slow(state: State, ctx: Any) -> Ok[int]:
    return Ok(1)


saga: Saga[State] = Saga("s", state=State).step(do, undo=undo).parallel(step(do, undo=None)).pivot(do).step(do)
saga.step(other, undo=None)  # refused
saga.step(bare, undo=None)  # refused
saga.step(coded, undo=None)  # refused
saga.step(slow, undo=None)  # refused
saga.step(do, undo=bare)  # refused
saga.pivot(bare)  # refused
saga.parallel(do)  # refused
saga.step(do, undo=None, colour="red")  # refused
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("checker", ["mypy", "basedpyright"])
def test_a_type_checker_refuses_what_does_not_fit(tmp_path: Path, checker: str) -> None:
    (tmp_path / "declared.py").write_text(PROGRAM)
    found, said = _checked_by_mypy(tmp_path) if checker == "mypy" else _checked_by_pyright(tmp_path)
    marked = {number for number, line in enumerate(PROGRAM.splitlines(), start=1) if "# refused" in line}
    assert found == marked, said


def _checked_by_mypy(place: Path) -> tuple[set[int], str]:
    said = _run("mypy", "--config-file", str(ROOT / "pyproject.toml"), str(place / "declared.py"), cwd=ROOT)
    return {int(number) for number in re.findall(r"declared\.py:(\d+): error: ", said)}, said


def _checked_by_pyright(place: Path) -> tuple[set[int], str]:
    config = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT / "src")]}
    (place / "pyrightconfig.json").write_text(json.dumps(config))
    said = _run("basedpyright", "--pythonpath", sys.executable, "--outputjson", "declared.py", cwd=place)
    errors = [one for one in json.loads(said)["generalDiagnostics"] if one["severity"] == "error"]
    return {one["range"]["start"]["line"] + 1 for one in errors}, said


def _run(checker: str, *arguments: str, cwd: Path) -> str:
    command = [str(Path(sys.executable).with_name(checker)), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False).stdout
