"""The keys of data subjects, on a caller's handle and without one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from postlude.core.statement import Call, Row, Script, Statement
from postlude.ports.audit import AuditEntry
from postlude.ports.privacy import SubjectKey
from postlude.storage.audit_values import audit_values
from postlude.storage.sqlite import rows
from postlude.storage.sqlite.database import Database
from postlude.storage.sqlite.session import Session


class SqliteSubjectScripts:
    def __init__(self, statements: Mapping[str, Statement], now: Callable[[], float]) -> None:
        self._statements = statements
        self._now = now

    def keys(self, subjects: Sequence[str]) -> Script[dict[str, SubjectKey]]:
        return _by_subject((yield self._call("subject_keys", {"subjects": rows.json(list(subjects))})))

    def add(self, keys: Sequence[SubjectKey]) -> Script[dict[str, SubjectKey]]:
        for one in keys:
            yield self._call("add_subject_keys", {"subject": one.subject, "key_id": one.key_id, "key": one.key})
        return (yield from self.keys([one.subject for one in keys]))

    def shred(self, subject: str, entry: AuditEntry) -> Script[bool]:
        found = yield self._call("shred_subject", {"subject": subject})
        if found:
            yield self._call("audit", audit_values(entry))
        return bool(found)

    def _call(self, name: str, values: dict[str, Any]) -> Call:
        return Call(self._statements[name], {"now": self._now(), **values})


class SqliteSubjects:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def keys(self, subjects: Sequence[str]) -> dict[str, SubjectKey]:
        wanted = rows.json(list(subjects))
        return _by_subject(await self._database.read(lambda session: session.fetch("subject_keys", subjects=wanted)))

    async def wrapped_otherwise(self, key_id: str, *, after: str, limit: int) -> Sequence[SubjectKey]:
        values = {"key_id": key_id, "after": after, "limit": limit}
        found = await self._database.read(lambda session: session.fetch("subject_keys_of_others", **values))
        return list(_by_subject(found).values())

    async def rewrap(self, keys: Sequence[tuple[SubjectKey, SubjectKey]], entry: AuditEntry) -> int:
        return await self._database.write(lambda session: _rewrap(session, keys, entry))


def _rewrap(session: Session, keys: Sequence[tuple[SubjectKey, SubjectKey]], entry: AuditEntry) -> int:
    changed = 0
    for old, new in keys:
        values = {"subject": new.subject, "key_id": new.key_id, "key": new.key, "was": old.key}
        changed += len(session.fetch("rewrap_subject_keys", **values))
    if changed:
        told = msgspec.structs.replace(entry, detail={**entry.detail, "keys": changed})
        session.fetch("audit", **audit_values(told))
    return changed


def _by_subject(found: Iterable[Row]) -> dict[str, SubjectKey]:
    return {row[0]: SubjectKey(row[0], row[1], row[2], bool(row[3])) for row in found}
