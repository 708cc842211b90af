"""A copy of the chain against the chain: whoever can rewrite a whole database cannot rewrite what was copied before."""

from __future__ import annotations

from postlude.core.audit_chain import AuditRecord, Link, link_hash, row_hash
from postlude.core.audit_verify import Findings


class CopyCheck:
    """Takes the records of a copy in the order of the file, each with the link of the same position or None."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._position = 0
        self._hash: bytes | None = None
        self.records = 0

    def take(self, copied: AuditRecord, link: Link | None) -> None:
        position = copied.position or 0
        if position == self._position and copied.hash == (self._hash or b"").hex():
            return  # at least once
        self.records += 1
        row = row_hash(copied)
        self._check_itself(copied, position, row)
        self._position, self._hash = position, bytes.fromhex(copied.hash or "")
        if link is None:
            said = f"record {copied.id} (position {position}) is in the copy and not in the database's chain"
            self._found.add("cut_off", said, position, copied.id)
        elif link.hash != self._hash or link.row_hash != row:
            said = f"position {position} is record {copied.id} in the copy and not the same in the database's chain"
            self._found.add("copy", said, position, copied.id)

    def end(self, *, is_chain_empty: bool) -> None:
        if self.records == 0 and not is_chain_empty:
            self._found.add("copy", "the copy has no record, and shows nothing of the chain")

    def unreadable(self, number: int) -> None:
        self._found.add("copy", f"line {number} of the copy is no audit record")

    def _check_itself(self, copied: AuditRecord, position: int, row: bytes) -> None:
        if self._hash is None and position != 1:
            said = f"the copy begins at position {position}, and shows nothing of what came before"
            self._found.add("copy", said, position, copied.id)
            return
        if self._hash is not None and position != self._position + 1:
            said = f"the copy has position {position} after position {self._position}"
            self._found.add("copy", said, position, copied.id)
        elif link_hash(self._hash or b"", row).hex() != copied.hash:
            said = f"record {copied.id} (position {position}) was changed in the copy"
            self._found.add("copy", said, position, copied.id)
