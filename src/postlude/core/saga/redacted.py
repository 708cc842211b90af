"""A run that has ended, without what it knew."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from postlude.core.saga.instance import Instance

PREFIX = "redacted:"


def redacted(instance: Instance, subject_id: str, subject: str, now: datetime) -> Instance:
    """Its steps and how they ended stay; state, results, codes and errors go, and a process id that names the subject.
    The version goes up: a copy from before cannot be written back. Nothing to take away: it is given as it was."""
    steps = tuple(replace(step, result=None, code=None) for step in instance.steps)
    process_id = instance.process_id
    if subject_id in process_id:
        process_id = f"{PREFIX}{subject[:8]}:{instance.id}"
    bare = replace(instance, process_id=process_id, steps=steps, state=None, error=None, held=None, early=())
    return instance if bare == instance else replace(bare, version=instance.version + 1, updated_at=now)
