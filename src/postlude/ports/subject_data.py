"""What erasure asks of the app's own tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from postlude.core.calls import Correction
from postlude.core.data_lint import Finding
from postlude.core.erasure_plan import Plan


class Local(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to the app's own tables: rows by table and kind of change, and columns that stay, with why.

    The kinds are deleted, anonymised, retained, corrected; and detached, rows that let go of a deleted one and may
    belong to other subjects.
    """

    tables: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    retained: tuple[str, ...] = ()
    found: bool = False
    """Was the subject's own row there? Only an erasure looks."""

    def total(self) -> int:
        """Rows that were changed, or stay although they are the subject's."""
        return sum(rows for kinds in self.tables.values() for rows in kinds.values())


class SubjectData(Protocol):
    """Sessions belong to the caller: nothing is committed. The coroutines never wait when the session is a sync one.
    Neither errors nor logs contain ids or values."""

    def plan(self) -> Plan:
        """What every erasure does. Refuses a map that cannot work, with everything that is wrong with it."""

    def lint(self, *metadata: Any) -> list[Finding]:
        """What the map seems to lack."""

    def require_id(self, subject_id: str) -> None:
        """Refuse an id that no subject can have, before anything changes."""

    async def erase(self, session: Any, subject_id: str) -> Local:
        """Lock the subject, then follow the plan. Who is not there has zero counts."""

    async def rectify(self, session: Any, subject_id: str, corrections: Sequence[Correction]) -> Local: ...

    def require_categories(self, corrections: Sequence[Correction]) -> None:
        """Refuse a category that no column has, before anything changes."""

    async def count(self, session: Any, subject_id: str) -> Mapping[str, int]:
        """The subject's rows that are still in tables whose rows are deleted: after an erasure, all zero."""

    async def subject_ids(self, session: Any, *, after: str | None = None, limit: int = 500) -> list[str]:
        """One page of all subjects that are there, in the order of their ids."""
