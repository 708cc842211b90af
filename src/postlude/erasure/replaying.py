"""After a restore: who was erased since the backup is back, and the copy of the audit trail knows who it was."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from postlude.core.pseudonym import TARGET, pseudonym
from postlude.errors import ConfigurationError, NaiveDatetime
from postlude.ports.subject_data import SubjectData

ERASED = "erasure_local_completed"
PAGE = 500
log = logging.getLogger(__name__)

Sessions = Callable[[], AbstractAsyncContextManager[Any] | AbstractContextManager[Any]]
"""Such as `async_sessionmaker.begin` or `sessionmaker.begin`: a session whose block commits."""
Erase = Callable[[Any, str], Awaitable[object]]
"""Erases one subject in a session: here and at its resolvers, audited."""


class Erased(msgspec.Struct, frozen=True):
    """Pseudonyms of the subjects that were erased at or after the time of a backup, and when they last were."""

    since: datetime
    subjects: dict[str, datetime]

    def __str__(self) -> str:
        return f"subjects erased at or after {self.since.isoformat()}: {len(self.subjects)}"


class _Line(msgspec.Struct):
    at: datetime
    action: str
    target: str


_decoder = msgspec.json.Decoder(_Line)


def plan_replay(lines: Iterable[str | bytes], since: datetime) -> Erased:
    """Reads the file of an audit sink, line by line. A line that cannot be read could be an erasure: it is refused,
    unless it is the last one, which may have been cut off together with the transaction it tells of."""
    if since.utcoffset() is None:
        raise NaiveDatetime("the time of the backup has no time zone")
    subjects: dict[str, datetime] = {}
    broken: int | None = None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if broken is not None:
            raise _unreadable(broken)
        try:
            read = _decoder.decode(line)
        except msgspec.MsgspecError:
            broken = number
            continue
        if read.at.utcoffset() is None:
            raise _unreadable(number)
        if read.action == ERASED and read.at >= since and read.target.startswith(TARGET):
            subject = read.target.removeprefix(TARGET)
            subjects[subject] = max(read.at, subjects.get(subject, read.at))
    if broken is not None:
        log.warning("the last line of the audit copy is cut off (line %s); it is left out", broken)
    return Erased(since, subjects)


def erased_since(copy: Path, since: datetime) -> Erased:
    """The same of a file."""
    with copy.open("rb") as lines:
        return plan_replay(lines, since)


class Replaying:
    """Finds them among the subjects that are there, by pseudonym, and erases them again. It may be repeated: who is
    gone is not found, and who stays anonymised is anonymised once more."""

    def __init__(self, data: SubjectData, key: bytes, sessions: Sessions, erase: Erase) -> None:
        self._data = data
        self._key = key
        self._sessions = sessions
        self._erase = erase

    async def count(self, erased: Erased) -> int:
        """How many would be erased again."""
        return sum([1 async for _ in self._found(erased)])

    async def run(self, erased: Erased) -> int:
        """Each subject in a transaction of its own; how many it were."""
        done = 0
        async with aclosing(self._found(erased)) as found:
            async for subject_id in found:
                async with _opened(self._sessions()) as session:
                    await self._erase(session, subject_id)
                done += 1
        log.info("erased %s subjects again", done)
        return done

    async def _found(self, erased: Erased) -> AsyncGenerator[str, None]:
        after: str | None = None
        while True:
            async with _opened(self._sessions()) as session:
                page = await self._data.subject_ids(session, after=after, limit=PAGE)
            for subject_id in page:
                if pseudonym(self._key, subject_id) in erased.subjects:
                    yield subject_id
            if len(page) < PAGE:
                return
            after = page[-1]


@asynccontextmanager
async def _opened(source: Any) -> AsyncIterator[Any]:
    if hasattr(source, "__aenter__"):
        async with source as session:
            yield session
    else:
        with source as session:
            yield session


def _unreadable(number: int) -> ConfigurationError:
    return ConfigurationError(
        f"line {number} of the audit copy cannot be read",
        hint="Give the file that the audit sink has written, whole and unchanged.",
    )
