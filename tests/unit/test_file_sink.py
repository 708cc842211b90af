"""The copy in a file: each position once, whatever happened before."""

# ruff: noqa: ASYNC240 - a test may wait for a small file

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from postlude import AuditBroken, AuditRecord, ConfigurationError, FileAuditSink
from postlude.audit import file_sink
from postlude.audit.callable_sink import sink_of
from postlude.audit.lines import record_of
from postlude.core.audit_chain import Head, linked


def records(count: int) -> list[AuditRecord]:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    made = [
        AuditRecord(id=UUID(int=n), at=began + timedelta(seconds=n), actor="ann", action="requeue", target=f"ü\n{n}")
        for n in range(1, count + 1)
    ]
    return linked(Head(), made)[2]


def read(path: Path) -> list[AuditRecord]:
    found = [record_of(line) for line in path.read_bytes().splitlines()]
    return [one for one in found if one is not None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


async def test_what_is_appended_again_is_there_once(path: Path) -> None:
    every, sink = records(5), FileAuditSink(path)
    assert await sink.position() == 0
    await sink.append(every[:3])
    await sink.append(every[1:])
    await FileAuditSink(str(path)).append(every)
    assert read(path) == every
    assert await sink.position() == 5
    assert path.stat().st_mode & 0o077 == 0, "the copy is for its owner"


@pytest.mark.parametrize("torn", [1, 20, 200])
async def test_a_line_that_a_crash_tore_is_written_again(path: Path, torn: int) -> None:
    every, sink = records(4), FileAuditSink(path)
    await sink.append(every[:3])
    whole = path.read_bytes()
    path.write_bytes(whole[:-torn])
    assert await sink.position() == 2
    await sink.append(every[2:])
    assert read(path) == every
    path.write_bytes(whole[:40])
    assert await sink.position() == 0
    await sink.append(every)
    assert read(path) == every


async def test_the_end_is_found_in_a_file_larger_than_a_block(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_sink, "BLOCK", 64)
    every, sink = records(6), FileAuditSink(path)
    for one in every:
        await sink.append([one])
    assert read(path) == every


async def test_another_chain_is_not_mixed_with_this_one(path: Path) -> None:
    every, sink = records(3), FileAuditSink(path)
    await sink.append(every)
    other = AuditRecord(**{**{name: getattr(every[2], name) for name in every[2].__struct_fields__}, "hash": "00" * 32})
    with pytest.raises(AuditBroken, match="position 3"):
        await sink.append([other])
    assert read(path) == every


@pytest.mark.parametrize("content", [b"my diary", b"my diary\n", b'{"a":1}\n'])
async def test_a_file_that_is_no_copy_is_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(AuditBroken):
        await FileAuditSink(path).append(records(1))
    assert path.read_bytes() == content


async def test_functions_are_sinks_too() -> None:
    taken: list[AuditRecord] = []

    async def take(given: Sequence[AuditRecord]) -> None:
        taken.extend(given)

    every = records(2)
    await sink_of(take).append(every[:1])
    await sink_of(taken.extend).append(every[1:])
    assert taken == every
    with pytest.raises(ConfigurationError, match="int is no audit sink"):
        sink_of(7)  # type: ignore[arg-type]
