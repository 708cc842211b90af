"""Migrations: numbered `.sql` files with a phase. `pre` runs before new code is deployed, `post` after."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Literal

import msgspec

from postlude.errors import SchemaTooNew
from postlude.storage.statements import qualify

Phase = Literal["pre", "post"]
_FILE = re.compile(r"(\d{4})_(pre|post)_([a-z0-9_]+)\.sql")


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema."""

    number: int
    phase: Phase
    name: str
    sql: str


def load(package: str, *, schema: str | None = None) -> Sequence[Migration]:
    """The migrations of a dialect, in order."""
    found = []
    for file in resources.files(package).joinpath("migrations").iterdir():
        match = _FILE.fullmatch(file.name)
        if match:
            phase: Phase = "pre" if match[2] == "pre" else "post"
            found.append(Migration(int(match[1]), phase, match[3], qualify(file.read_text("utf-8"), schema)))
    return sorted(found, key=lambda migration: migration.number)


def pending(known: Sequence[Migration], applied: Mapping[int, str], phase: Phase | None = None) -> list[Migration]:
    """What is still to be applied, given numbers and phases. An unknown `pre` step only added something, so that old
    code works on beside new; an unknown `post` step took something away, and this code is refused."""
    newest = known[-1].number if known else 0
    gone = [number for number, applied_in in applied.items() if number > newest and applied_in != "pre"]
    if gone:
        raise SchemaTooNew(f"the schema is at version {max(gone)}, this Postlude knows {newest}")
    return [step for step in known if step.number not in applied and (phase is None or step.phase == phase)]
