"""The keys of data subjects, on a caller's handle and without one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from postlude.core.statement import Call, Script, Statement
from postlude.ports.audit import AuditEntry
from postlude.ports.privacy import SubjectKey
from postlude.storage.audit_values import audit_values
from postlude.storage.postgres.connection import Database


class PostgresSubjectScripts:
    def __init__(self, statements: Mapping[str, Statement]) -> None:
        self._statements = statements

    def keys(self, subjects: Sequence[str]) -> Script[dict[str, SubjectKey]]:
        return _by_subject((yield Call(self._statements["subject_keys"], {"subjects": list(subjects)})))

    def add(self, keys: Sequence[SubjectKey]) -> Script[dict[str, SubjectKey]]:
        yield Call(self._statements["add_subject_keys"], _arrays(keys))
        return (yield from self.keys([one.subject for one in keys]))

    def shred(self, subject: str, entry: AuditEntry) -> Script[bool]:
        found = yield Call(self._statements["shred_subject"], {"subject": subject})
        if found:
            yield Call(self._statements["audit"], audit_values(entry))
        return bool(found)


class PostgresSubjects:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def keys(self, subjects: Sequence[str]) -> dict[str, SubjectKey]:
        return _by_subject(await self._database.fetch("subject_keys", subjects=list(subjects)))

    async def wrapped_otherwise(self, key_id: str, *, after: str, limit: int) -> Sequence[SubjectKey]:
        found = await self._database.fetch("subject_keys_of_others", key_id=key_id, after=after, limit=limit)
        return list(_by_subject(found).values())

    async def rewrap(self, keys: Sequence[tuple[SubjectKey, SubjectKey]], entry: AuditEntry) -> int:
        values = _arrays([new for _, new in keys]) | {"was": [old.key for old, _ in keys]} | audit_values(entry)
        return int((await self._database.fetch("rewrap_subject_keys", **values))[0][0])


def _arrays(keys: Sequence[SubjectKey]) -> dict[str, Any]:
    return {
        "subjects": [one.subject for one in keys],
        "key_ids": [one.key_id for one in keys],
        "keys": [one.key for one in keys],
    }


def _by_subject(rows: Iterable[Any]) -> dict[str, SubjectKey]:
    return {row[0]: SubjectKey(row[0], row[1], None if row[2] is None else bytes(row[2]), bool(row[3])) for row in rows}
