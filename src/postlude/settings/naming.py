"""Names that do not exist, and the ones that were probably meant."""

from __future__ import annotations

import difflib

import msgspec

from postlude.settings.keys import ANY, Path, keys_of, pattern_of, spelled, tables_of, written
from postlude.settings.sources import PREFIX, Given

ELSEWHERE = {
    "messages_per_tick": ("relay.batch_size",),
    "worker_batch_size": ("relay.batch_size",),
    "tick_interval": ("relay.poll_min_ms", "relay.poll_max_ms"),
    "tick_interval_seconds": ("relay.poll_min_ms", "relay.poll_max_ms"),
    "worker_poll_interval_seconds": ("relay.poll_min_ms", "relay.poll_max_ms"),
    "poll_interval": ("relay.poll_min_ms", "relay.poll_max_ms"),
    "stuck_claim_timeout_seconds": ("lane.lease",),
    "locked_until": ("lane.lease",),
    "published_retention_hours": ("retention.events_hours",),
    "abandoned_retention_hours": ("retention.dead_hours",),
    "cleanup_interval_ticks": ("retention.interval",),
    "initial_backoff_seconds": ("retry.base_delay_seconds",),
    "base_delay": ("retry.base_delay_seconds",),
    "max_backoff": ("retry.max_backoff_seconds",),
    "max_delay": ("retry.max_backoff_seconds",),
    "multiplier": ("retry.backoff_multiplier",),
    "jitter": ("retry.jitter_factor",),
    "enable_optimistic_send": ("optimistic.enabled",),
}
"""What the settings of other systems are called here (docs/words)."""


def unknown(given: Given, settings: type[msgspec.Struct]) -> tuple[str, str]:
    """Sentence and hint for a key that does not exist."""
    stem = _longest_known(given.path, settings)
    if pattern_of(stem, settings) in keys_of(settings):
        more = written(given.path[len(stem) :])
        return f"{written(stem)} is one value and has no {more} ({given.origin.said})", f"Set {written(stem)} itself."
    where = "" if given.origin.kind == "environment" else f" ({given.origin.said})"  # a variable says it by its name
    return f"there is no setting {given.name}{where}", _hint(given, stem, settings)


def _hint(given: Given, stem: Path, settings: type[msgspec.Struct]) -> str:
    name = given.path[-1]
    if name in ELSEWHERE:
        here = " and ".join(_as_written(given, tuple(key.split("."))) for key in ELSEWHERE[name])
        return f"{name} is called {here} here."
    if homes := _homes(given.path, stem, settings):
        tables, keys = (written(path[:-1]) for path in homes), (_as_written(given, path) for path in homes)
        return f"{name} belongs in {' or '.join(tables)}: {' or '.join(keys)}."
    meant = _nearest(given.path, stem, settings)
    return f"Did you mean {_as_written(given, meant)}?" if meant else "`postlude settings` lists all there are."


def _homes(path: Path, stem: Path, settings: type[msgspec.Struct]) -> list[Path]:
    """Where a setting of that very name is, unless its own table has one that looks like it."""
    name = path[-1]
    siblings = [known[-1] for known in keys_of(settings) if stem and known[:-1] == stem]
    if len(path) > 2 or difflib.get_close_matches(name, siblings, 1, 0.75):
        return []
    return [known for known in keys_of(settings) if known[-1] == name and len(known) > 1 and ANY not in known]


def _longest_known(path: Path, settings: type[msgspec.Struct]) -> Path:
    known = (path[:end] for end in range(len(path), 0, -1))
    return next((stem for stem in known if pattern_of(stem, settings) is not None), ())


def _nearest(path: Path, stem: Path, settings: type[msgspec.Struct]) -> Path | None:
    """In the same table first, then anywhere."""
    pattern = pattern_of(stem, settings) or ()
    candidates: dict[str, Path] = {}
    for known in sorted(keys_of(settings).keys() | tables_of(settings) - {()}):
        if known[-1] != ANY:
            candidates.setdefault(spelled(".".join(known)), known)
    inside = {name: known for name, known in candidates.items() if known[: len(pattern)] == pattern and pattern}
    looked_for = spelled(".".join((*pattern, *path[len(stem) :])))
    for names in (inside, candidates):
        if found := difflib.get_close_matches(looked_for, names, 1, 0.6):
            meant = names[found[0]]
            return (*stem, *meant[len(stem) :]) if meant[: len(pattern)] == pattern else meant
    return None


def _as_written(given: Given, path: Path) -> str:
    """In the way the user wrote: a variable for a variable, and what it is in the reference."""
    name = written(tuple("NAME" if part == ANY else part for part in path))
    if given.origin.kind != "environment":
        return name
    return f"{PREFIX}{'__'.join(spelled(part) for part in path).upper()} ({name})"
