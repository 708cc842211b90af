"""A copy of the chain in a file: one JSON object a line, on the disk before anybody counts on it."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from postlude.audit.lines import line_of, record_of
from postlude.core.audit_chain import AuditRecord
from postlude.errors import AuditBroken

BLOCK = 65_536
BEGINNING = b'{"position":'
"""Of every line: a file that begins otherwise is not ours, and nothing of it may be cut off."""


class FileAuditSink:
    """Each position is in the file once. A line that a crash tore is cut off before the next is written."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        # The threads of the event loop may all hang in code of the user's; the copy must not wait for them.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="postlude-audit")

    async def append(self, records: Sequence[AuditRecord]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._append, records)

    async def position(self) -> int:
        """Of the last record in the file. The file knows better than anybody what is in it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._position)

    def _position(self) -> int:
        if not self.path.exists():
            return 0
        with self.path.open("rb") as file:
            last, _ = _last(file)
        return (last.position or 0) if last else 0

    def _append(self, records: Sequence[AuditRecord]) -> None:
        is_new = not self.path.exists()
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # of two workers of which one does not know yet that it is buried
            last, end = _last(file)
            wanted = _beyond(last, records)
            file.truncate(end)
            file.seek(end)
            file.write(b"".join(line_of(record) + b"\n" for record in wanted))
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            _sync_directory(self.path.parent)


def _beyond(last: AuditRecord | None, records: Sequence[AuditRecord]) -> list[AuditRecord]:
    """What the file does not have. What it has must be the same, as far as it can be seen."""
    position = (last.position or 0) if last else 0
    for record in records:
        if last is not None and record.position == position and record.hash != last.hash:
            raise AuditBroken(f"position {position} is another record in the copy than in the database")
    return [record for record in records if (record.position or 0) > position]


def _last(file: BinaryIO) -> tuple[AuditRecord | None, int]:
    """The last whole record, and where it ends. Read from the end, for the file may be large."""
    end = file.seek(0, os.SEEK_END)
    start, tail = end, b""
    while start > 0:
        step = min(BLOCK, start)
        start -= step
        file.seek(start)
        tail = file.read(step) + tail
        whole = tail[: tail.rfind(b"\n") + 1]
        lines = whole.splitlines()
        # The first line of what was read may begin before it.
        known = lines if start == 0 else lines[1:]
        if known and (record := record_of(known[-1])) is not None:
            return record, start + len(whole)
        if known:
            raise AuditBroken("the copy does not end with an audit record", hint="Move it away, or name another file.")
    if tail and not tail.startswith(BEGINNING[: len(tail)]):
        raise AuditBroken("the file of the copy is no copy", hint="Move it away, or name another one in audit.file.")
    return None, 0


def _sync_directory(path: Path) -> None:
    """So that the name of a new file outlives a crash too."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
