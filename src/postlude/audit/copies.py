"""Reads a copy beside the chain, page by page, and has the two compared."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from postlude.audit.lines import record_of
from postlude.core.audit_chain import AuditRecord, Link
from postlude.core.audit_copy import CopyCheck
from postlude.core.audit_verify import Findings
from postlude.errors import ConfigurationError

LINES = 1000


class Copy:
    """As long as it was when it was opened: what is copied meanwhile is none of this verification."""

    def __init__(self, path: str | Path, found: Findings) -> None:
        self.check = CopyCheck(found)
        self._path = Path(path)
        self._number = 0
        self._waiting: list[AuditRecord] = []
        self._file: BinaryIO | None = None
        self._left = 0

    async def __aenter__(self) -> Self:
        try:
            self._file = await asyncio.to_thread(self._path.open, "rb")
        except OSError as error:
            raise ConfigurationError(
                f"the copy {self._path} cannot be read: {error.strerror}", hint="Name the file of a file sink."
            ) from error
        self._left = self._path.stat().st_size
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    async def compare(self, links: Sequence[Link]) -> None:
        """With the next links of the chain; they are in order."""
        if not links:
            return
        known = {link.position: link for link in links}
        last = links[-1].position
        while await self._fill():
            while self._waiting and (self._waiting[0].position or 0) <= last:
                copied = self._waiting.pop(0)
                self.check.take(copied, known.get(copied.position or 0))
            if self._waiting:
                return

    async def end(self, *, is_chain_empty: bool) -> None:
        """What the copy has beyond the end of the chain, and whether it has anything."""
        while await self._fill():
            for copied in self._waiting:
                self.check.take(copied, None)
            self._waiting = []
        self.check.end(is_chain_empty=is_chain_empty)

    async def _fill(self) -> bool:
        while not self._waiting and self._left > 0:
            self._waiting = await asyncio.to_thread(self._read)
        return bool(self._waiting)

    def _read(self) -> list[AuditRecord]:
        found: list[AuditRecord] = []
        while self._file is not None and len(found) < LINES and self._left > 0:
            line = self._file.readline(self._left)
            self._left -= len(line)
            self._number += 1
            if not line.endswith(b"\n"):
                self._left = 0  # torn, and written again by the sink
            elif (record := record_of(line)) is None:
                self.check.unreadable(self._number)
            else:
                found.append(record)
        return found
