"""What came of verifying."""

from __future__ import annotations

import msgspec

from postlude.core.audit_verify import AuditProblem


class AuditReport(msgspec.Struct, frozen=True, kw_only=True):
    """`ok`: every record is as it was linked, in its place, and none is missing."""

    ok: bool
    records: int
    links: int
    position: int
    """Of the last link."""
    hash: str
    """Of the last link: note it elsewhere, and nobody can rewrite what came before."""
    linked: int | None
    """Records that were linked first. None: this user may not, or the head is broken."""
    copied: int | None = None
    """Records of the copy. None: there was none to compare with."""
    found: int = 0
    """How many problems there are; the first thousand are named."""
    problems: tuple[AuditProblem, ...] = ()
