"""What is wrong with an audit chain, by name: read link by link, with little kept in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal
from uuid import UUID

import msgspec

from postlude.core.audit_chain import AuditRecord, Link, link_hash, parse_head, row_hash

Kind = Literal["changed", "missing", "reordered", "link", "link_missing", "head", "unlinked", "copy", "cut_off"]
KEPT = 1000
"""Problems that are named; further ones are counted."""


class AuditProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, where, and of which record; `said` is a sentence without content of the record."""

    kind: Kind
    said: str
    position: int | None = None
    record: UUID | None = None


class Findings:
    """The problems so far, bounded."""

    def __init__(self) -> None:
        self.problems: list[AuditProblem] = []
        self.count = 0

    def add(self, kind: Kind, said: str, position: int | None = None, record: UUID | None = None) -> None:
        self.count += 1
        if len(self.problems) < KEPT:
            self.problems.append(AuditProblem(kind=kind, said=said, position=position, record=record))

    def rename(self, positions: Iterable[int], kind: Kind, said: str) -> None:
        """Say of changed records at these places what is known better by now."""
        places = set(positions)
        self.problems = [
            AuditProblem(
                kind=kind, said=said.format(one.record, one.position), position=one.position, record=one.record
            )
            if one.kind == "changed" and one.position in places
            else one
            for one in self.problems
        ]


class Verifier:
    """Takes the links of a chain in order of position, each with its record or None; then its end."""

    def __init__(self) -> None:
        self.found = Findings()
        self.position = 0
        self.hash = b""
        self.links = 0
        self.records = 0
        self._strange: list[tuple[int, bytes, bytes]] = []

    def take(self, link: Link, record: AuditRecord | None) -> None:
        self.links += 1
        if link.position <= 0:
            # Whose record counts as linked, and is in no chain and in no copy.
            said = f"the link of record {link.audit_id} stands at position {link.position}, before the chain begins"
            self.found.add("link", said, link.position, link.audit_id)
            return
        self._check_place(link)
        self.position, self.hash = link.position, link.hash
        if record is None:
            said = f"record {link.audit_id} (position {link.position}) is missing"
            self.found.add("missing", said, link.position, link.audit_id)
            return
        self.records += 1
        row = row_hash(record)
        if record.id != link.audit_id or row != link.row_hash:
            said = f"record {link.audit_id} (position {link.position}) was changed after it was linked"
            self.found.add("changed", said, link.position, link.audit_id)
            if len(self._strange) < KEPT:
                self._strange.append((link.position, row, link.row_hash))

    def _check_place(self, link: Link) -> None:
        expected = self.position + 1
        if link.position > expected:
            self._miss(expected, link.position - 1)
        elif link.position < expected:
            said = (
                f"the link of record {link.audit_id} stands at position {link.position}, after position {self.position}"
            )
            self.found.add("link", said, link.position, link.audit_id)
        elif link_hash(self.hash, link.row_hash) != link.hash:
            said = (
                f"the link of record {link.audit_id} (position {link.position}) does not follow from the one before:"
                " links were reordered, put in or rewritten"
            )
            self.found.add("link", said, link.position, link.audit_id)

    def _miss(self, first: int, last: int) -> None:
        said = f"the link at position {first} is" if first == last else f"the links at positions {first} to {last} are"
        self.found.add("link_missing", said + " missing", first)

    def end(self, head: str | None) -> None:
        """All links were taken; `head` is what the database says of where the chain ends."""
        known = parse_head(head)
        if known is None:
            self.found.add("head", "the head of the chain is missing or no head at all")
        elif known.position > self.position:
            self._miss(self.position + 1, known.position)
        elif (known.position, known.hash) != (self.position, self.hash):
            said = (
                f"the head stands at position {known.position}, the last link at {self.position}, and they do not fit"
            )
            self.found.add("head", said, known.position)
        self._name_reordered()

    def _name_reordered(self) -> None:
        """A record that stands where another was linked, while its own place holds another one, was moved."""
        rows = {row for _, row, _ in self._strange}
        linked = {row for _, _, row in self._strange}
        moved = {place for place, row, expected in self._strange if row in linked and expected in rows}
        said = "record {} (position {}) stands where another one was linked: records were reordered"
        self.found.rename(moved, "reordered", said)

    def unlinked(self, ids: Iterable[UUID]) -> None:
        """Records without a link that are older than the window before linking."""
        for id in ids:
            self.found.add("unlinked", f"record {id} is not linked", None, id)
