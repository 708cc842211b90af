"""Vendors that hold personal data, each with its faults: pure decisions and memory, no sockets (tests/vendor_server.py).

A vendor is named by its path, `/KIND/NAME/...`, and is there as soon as it is asked. Kinds:
  rest    GET, PATCH, DELETE of `/rest/NAME/customers/ID`
  store   GET `/store/NAME/versions?prefix=&after=` lists pages of versions; DELETE `/store/NAME/objects/KEY?version=`
  logs    POST `/logs/NAME/subjects/ID/expiry` says until when it is kept; GET `/logs/NAME/subjects/ID`

Every effect is in the journal under its idempotency key. A key that is repeated gets the same answer and has no second
effect, but for `logs`, which answers what is true now.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

Kind = Literal["error", "throttle", "drop", "hang", "lost", "lost_drop", "lost_hang", "refuse", "bad"]
"""`lost*` have their effect first; `refuse` is 401, `bad` 400: no repetition helps."""

WEIGHTS: dict[Kind, int] = {"error": 8, "throttle": 4, "drop": 5, "lost": 5, "lost_drop": 4, "hang": 2, "lost_hang": 2}
ANSWERS: dict[Kind, int] = {"error": 500, "throttle": 429, "lost": 500, "refuse": 401, "bad": 400}
VERSIONS = 3
"""Of objects that a given subject has in a store."""
PAGE = 2
LONGEST = 200


class Plan(msgspec.Struct, frozen=True):
    """What goes wrong, decided by the seed alone: any process can say beforehand what will become of a subject."""

    seed: int = 0
    rate: float = 0.0
    """Of the requests of a subject that fail, as long as `most` is not reached."""
    most: int = 4
    """Faults that a subject can have at one vendor, so that the attempts of a call are enough."""
    refused: float = 0.0
    """Of subjects that every request about is answered with 400."""

    def fate(self, vendor: str, subject: str) -> Literal["erased", "refused"]:
        return "refused" if self._chance("fate", vendor, subject).random() < self.refused else "erased"

    def fault(self, vendor: str, subject: str, number: int) -> Kind | None:
        """Of the request of that number, counted from 0 for each subject at each vendor."""
        if self.fate(vendor, subject) == "refused":
            return "bad"
        faults: list[Kind | None] = []
        for one in range(number + 1):
            chance = self._chance("fault", vendor, subject, one)
            is_spent = len([fault for fault in faults if fault]) >= self.most
            fails = chance.random() < self.rate and not is_spent
            faults.append(chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0] if fails else None)
        return faults[-1]

    def _chance(self, *what: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, *what))))


class Effect(msgspec.Struct, frozen=True):
    """Something a vendor did. `target` is finer than the subject where one call needs several: a version of an object."""

    vendor: str
    operation: Literal["erase", "rectify", "schedule"]
    subject: str
    target: str
    key: str


class Asked(msgspec.Struct):
    """A request, parsed."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def path(self) -> list[str]:
        return [unquote(part) for part in urlsplit(self.target).path.strip("/").split("/")]

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}

    @property
    def key(self) -> str:
        return self.headers.get("idempotency-key", "")

    @property
    def subject(self) -> str:
        """Whom it is about; in a store the objects of a subject begin with its id."""
        if self.path[0] == "store":
            return (self.query.get("prefix") or self.path[-1]).partition("/")[0]
        return self.path[3] if len(self.path) > 3 else ""


class Told(msgspec.Struct, frozen=True):
    """An answer. `fault` says what becomes of it on the way."""

    status: int
    body: Any = None
    fault: Kind | None = None


class Vendors:
    """All vendors of one server."""

    def __init__(self, plan: Plan | None = None, *, retention: float = 30 * 86400.0) -> None:
        self.plan = plan or Plan()
        self.retention = retention
        self._journal: list[Effect] = []
        self._keys: Counter[tuple[str, str, str]] = Counter()
        self._told: Counter[str] = Counter()
        self._kept: dict[str, dict[str, dict[str, Any]]] = {}
        self._broken: dict[str, Kind] = {}
        self._answers: dict[tuple[str, str, str, str], tuple[bytes, Told]] = {}
        self._requests: Counter[tuple[str, str]] = Counter()

    def give(self, kind: str, vendor: str, subjects: Sequence[str], values: Mapping[str, Any]) -> None:
        kept = self._kept.setdefault(vendor, {})
        for subject in subjects:
            if kind == "store":
                kept.update({f"{subject}/photo.jpg?{number}": {} for number in range(VERSIONS)})
            else:
                kept[subject] = dict(values)

    def fail(self, vendor: str, kind: Kind) -> None:
        """Whatever the plan says."""
        self._broken[vendor] = kind

    def heal(self, vendor: str) -> None:
        self._broken.pop(vendor, None)

    def values(self, vendor: str, subject: str) -> Mapping[str, Any] | None:
        return self._kept.get(vendor, {}).get(subject)

    def left(self, vendor: str) -> list[str]:
        """Subjects that are still there, in order."""
        return sorted({name.partition("/")[0] for name in self._kept.get(vendor, {})})

    def expire(self, vendor: str, subject: str) -> None:
        self._kept.get(vendor, {}).pop(subject, None)

    def done(self) -> list[Effect]:
        """The journal."""
        return self._journal

    def keyed(self) -> list[tuple[str, str, str, int]]:
        """Requests that would change something, by vendor, subject and key: two keys of one call show here."""
        return [(*names, count) for names, count in self._keys.items()]

    def answers(self) -> Mapping[str, int]:
        """By vendor and status or fault."""
        return self._told

    def answer(self, asked: Asked) -> Told:
        """What the vendor says, and what it does."""
        kind, vendor = asked.path[:2]
        fault = self._fault(vendor, asked.subject)
        if fault and not fault.startswith("lost"):
            told = Told(ANSWERS.get(fault, 0), {"fault": fault}, fault)
        else:
            told = self._repeated(kind, vendor, asked)
            if fault:
                told = Told(ANSWERS.get(fault, 0), {"fault": fault}, fault)
        self._told[f"{vendor} {told.fault or told.status}"] += 1
        return told

    def _fault(self, vendor: str, subject: str) -> Kind | None:
        if vendor in self._broken:
            return self._broken[vendor]
        number = self._requests[vendor, subject]
        self._requests[vendor, subject] += 1
        return self.plan.fault(vendor, subject, number)

    def _repeated(self, kind: str, vendor: str, asked: Asked) -> Told:
        if asked.method == "GET":
            return self._do(kind, vendor, asked)
        self._keys[vendor, asked.subject, asked.key] += 1
        if not asked.key:
            return self._do(kind, vendor, asked)
        slot = (vendor, asked.key, asked.method, asked.target)
        if slot not in self._answers:
            self._answers[slot] = (asked.body, self._do(kind, vendor, asked))
        elif kind == "logs":
            return self._horizon(vendor, asked, is_repeat=True)
        body, told = self._answers[slot]
        return told if body == asked.body else Told(422, {"error": "another request had this key"})

    def _do(self, kind: str, vendor: str, asked: Asked) -> Told:
        if len(asked.subject) > LONGEST:
            return Told(422, {"error": "no such id can be"})
        if kind == "logs":
            return self._horizon(vendor, asked)
        return self._store(vendor, asked) if kind == "store" else self._rest(vendor, asked)

    def _rest(self, vendor: str, asked: Asked) -> Told:
        match asked.method:
            case "DELETE":
                return self._remove(vendor, asked, asked.subject)
            case "PATCH":
                return self._patch(vendor, asked)
            case _:
                values = self.values(vendor, asked.subject)
                return Told(404) if values is None else Told(200, values)

    def _store(self, vendor: str, asked: Asked) -> Told:
        if asked.method == "DELETE":
            return self._remove(vendor, asked, f"{asked.path[-1]}?{asked.query['version']}")
        return self._versions(vendor, asked.query)

    def _patch(self, vendor: str, asked: Asked) -> Told:
        values = self._kept.get(vendor, {}).get(asked.subject)
        if values is None:
            return Told(404)
        values.update(msgspec.json.decode(asked.body))
        self._note(vendor, "rectify", asked, asked.subject)
        return Told(200, dict(values))

    def _remove(self, vendor: str, asked: Asked, target: str) -> Told:
        if self._kept.get(vendor, {}).pop(target, None) is None:
            return Told(404)
        self._note(vendor, "erase", asked, target)
        return Told(204)

    def _versions(self, vendor: str, query: Mapping[str, str]) -> Told:
        after, prefix = query.get("after", ""), query["prefix"]
        names = sorted(name for name in self._kept.get(vendor, {}) if name.startswith(prefix) and name > after)
        shown = [dict(zip(("key", "version"), name.split("?"), strict=True)) for name in names[:PAGE]]
        return Told(200, {"versions": shown, "next": names[PAGE - 1] if len(names) > PAGE else None})

    def _horizon(self, vendor: str, asked: Asked, *, is_repeat: bool = False) -> Told:
        """As soon as somebody asks to be forgotten nothing is added, and what is there expires in its time."""
        now = datetime.now(UTC)
        values = self._kept.get(vendor, {}).get(asked.subject)
        if values is not None and values.get("expires_at", now + timedelta(1)) <= now:
            self.expire(vendor, asked.subject)
            values = None
        if values is None:
            return Told(404)
        if asked.method == "POST" and not is_repeat:
            self._note(vendor, "schedule", asked, asked.subject)
        horizon = now + timedelta(seconds=self.retention)
        expires_at = values.setdefault("expires_at", horizon) if asked.method == "POST" else None
        return Told(200, {"expires_at": expires_at})

    def _note(self, vendor: str, operation: Literal["erase", "rectify", "schedule"], asked: Asked, target: str) -> None:
        self._journal.append(Effect(vendor, operation, asked.subject, target, asked.key))
