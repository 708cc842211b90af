"""What makes no sense is refused, all of it at once, each with its name, its value and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from postlude.errors import BadUrl, SettingsError
from postlude.settings.keys import Key, Path, key_of, pattern_of, value_at, written
from postlude.settings.kinds import read, shown, wants
from postlude.settings.naming import unknown
from postlude.settings.sources import Given, Origin
from postlude.settings.tables import BackoffSettings, TypeRetry

BEATS = 5.0
"""Signs of life of a worker's event loop in the time of a lease; never less than one a second."""


class Problem(msgspec.Struct, frozen=True):
    sentence: str
    hint: str = ""
    is_url: bool = False


class Checked(msgspec.Struct, frozen=True):
    """What can be used, where it comes from, and what cannot."""

    values: dict[Path, Any]
    origins: dict[Path, Origin]
    problems: list[Problem]
    refused: set[Path]


def check(found: Iterable[Given], settings: type[msgspec.Struct]) -> Checked:
    """Every value by itself; what comes later wins."""
    said = {_whole(given.path): given for given in found}
    checked = Checked({}, {}, [], set())
    for path, given in said.items():
        key = key_of(path, settings)
        if key is None:
            _no_value(given, settings, checked.problems)
            continue
        try:
            checked.values[path] = read(given.value, key.wanted, key.kind)
        except ValueError:  # the sentence says more than its message
            checked.problems.append(_refusal(key, written(path), given))
            checked.refused.add(path)
        checked.origins[path] = given.origin
    return checked


def _refusal(key: Key, name: str, given: Given) -> Problem:
    seen = shown(given.value, key.kind)
    if isinstance(seen, bool | int | float):
        seen = str(seen).lower()
    else:
        seen = repr(seen) if isinstance(seen, str) else f"a {type(seen).__name__}"
    is_url = key.kind.form in ("database", "broker")
    return Problem(f"{name} must be {wants(key.wanted, key.kind)}, not {seen} ({given.origin.said})", is_url=is_url)


def check_together(
    settings: Any, origin: Callable[[Path], Origin], refused: AbstractSet[Path] = frozenset()
) -> list[Problem]:
    """What only two values together can get wrong; those that were refused already are left out."""
    pairs: list[tuple[Path, Any, Path, Any]] = [
        _pair(settings, ("relay", "poll_min_ms"), ("relay", "poll_max_ms")),
        _pair(settings, ("pool", "min"), ("pool", "max")),
        *_backoff(("retry",), settings.retry, settings.retry.types),
        *_backoff(("calls", "retry"), settings.calls.retry, {}),
    ]
    if settings.inbox.retention_hours:  # 0: for ever
        pairs.append(_pair(settings, ("inbox", "replay_window_hours"), ("inbox", "retention_hours")))
    problems = [
        Problem(f"{_value(low, less, origin)} is more than {_value(high, more, origin)}")
        for low, less, high, more in pairs
        if less > more and refused.isdisjoint({low, high, ("retry", low[-1]), ("retry", high[-1])})
    ]
    beat = min(1.0, settings.lane.lease / BEATS)
    if settings.lane.stall < 2 * beat and refused.isdisjoint({("lane", "stall"), ("lane", "lease")}):
        stall = _value(("lane", "stall"), settings.lane.stall, origin)
        problems.append(
            Problem(f"{stall} is less than two signs of life of a worker, which gives one every {beat:g} s")
        )
    return problems + [
        Problem(f"brokers.{written((name,))} has settings and no url", "Give it a url.", is_url=True)
        for name, one in settings.brokers.items()
        if one.url is None and not (name == "default" and settings.broker)
        if ("brokers", name, "url") not in refused
    ]


def refuse(problems: list[Problem]) -> None:
    """One error for all of them."""
    if not problems:
        return
    refused = BadUrl if all(problem.is_url for problem in problems) else SettingsError
    if len(problems) == 1:
        raise refused(problems[0].sentence, hint=problems[0].hint or None)
    lines = (f"{one.sentence}. {one.hint}".rstrip(" .?") + ("?" if one.hint.endswith("?") else ".") for one in problems)
    raise refused("\n  - ".join((f"{len(problems)} settings are wrong:", *lines)))


def _no_value(given: Given, settings: type[msgspec.Struct], problems: list[Problem]) -> None:
    if pattern_of(given.path, settings) is None:
        problems.append(Problem(*unknown(given, settings)))
    elif given.value != {}:
        sentence = f"{written(given.path)} is a table of settings and has no value of its own ({given.origin.said})"
        problems.append(Problem(sentence))


def _whole(path: Path) -> Path:
    """`brokers.NAME = URL` is short for its `url`."""
    return (*path, "url") if len(path) == 2 and path[0] == "brokers" else path


def _pair(settings: Any, low: Path, high: Path) -> tuple[Path, Any, Path, Any]:
    return low, value_at(settings, low), high, value_at(settings, high)


def _backoff(
    path: Path, common: BackoffSettings, types: Mapping[str, TypeRetry]
) -> Iterable[tuple[Path, Any, Path, Any]]:
    low, high = "base_delay_seconds", "max_backoff_seconds"
    yield (*path, low), common.base_delay_seconds, (*path, high), common.max_backoff_seconds
    for name, own in types.items():
        policy, inside = common.policy(own), (*path, "types", name)
        yield (*inside, low), policy.base_delay, (*inside, high), policy.max_delay


def _value(path: Path, value: Any, origin: Callable[[Path], Origin]) -> str:
    return f"{written(path)} = {value:g} ({origin(path).said})"
