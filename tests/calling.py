"""What the tests of calls share: vendors that do as they are told and count by idempotency key, and eyes on the books."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from postlude import Call, Correction, Erasure, Postlude, Schedule, SubjectRef
from tests.engine import make_app, query

ON_BOTH = [
    pytest.param("sqlite", marks=pytest.mark.sqlite),
    pytest.param("postgres-16", marks=pytest.mark.postgres),
]
ADA = "ada-4711"
VALUE = "cus_ada"
WHO: dict[str, Any] = {"actor": "ann", "reason": "the vendor is well again"}


class Vendor:
    """Does what its script says, one answer a call: an error is raised, a coroutine function is awaited, anything else
    is returned. Without a script it erases."""

    default: Any = Erasure()

    def __init__(self, name: str = "vendor", *script: Any) -> None:
        self.name = name
        self.script = list(script)
        self.keys: list[str] = []
        self.refs: list[SubjectRef] = []
        self.effects: Counter[str] = Counter()

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Any:
        return await self._answer(ref, idempotency_key)

    async def _answer(self, ref: SubjectRef, key: str) -> Any:
        self.keys.append(key)
        self.refs.append(ref)
        answer = self.script.pop(0) if self.script else self.default
        if isinstance(answer, BaseException):
            raise answer
        if inspect.iscoroutinefunction(answer):
            answer = await answer()
        self.effects[key] = 1  # what was done under this key is not done again
        return answer


class Rectifying(Vendor):
    """Keeps the corrections that it was given."""

    def __init__(self, name: str = "vendor", *script: Any) -> None:
        super().__init__(name, *script)
        self.corrections: list[Sequence[Correction]] = []

    async def rectify_subject(
        self, ref: SubjectRef, corrections: Sequence[Correction], *, idempotency_key: str
    ) -> None:
        self.corrections.append(corrections)
        await self._answer(ref, idempotency_key)


class Retaining:
    """Only lets data expire."""

    def __init__(self, *script: Any, name: str = "vendor") -> None:
        self.name = name
        self.script = list(script)
        self.keys: list[str] = []

    async def schedule_erasure(self, ref: SubjectRef, *, idempotency_key: str) -> Schedule:
        self.keys.append(idempotency_key)
        answer = self.script.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return] # as scripted


class Verifying(Vendor):
    """Says of itself whether the subject is gone."""

    def __init__(self, name: str = "vendor", *script: Any, absent: Any = True) -> None:
        super().__init__(name, *script)
        self.absent = absent
        self.verified = 0

    async def verify_absent(self, ref: SubjectRef) -> bool:
        self.verified += 1
        if isinstance(self.absent, BaseException):
            raise self.absent
        return bool(self.absent)


def calling_app(url: str, *vendors: Any, **settings: Any) -> Postlude:
    app = make_app(url, **settings)
    for vendor in vendors:
        app.resolvers.register(vendor)
    return app


async def erase(app: Postlude, *kinds: str, subject: str = ADA, value: str = VALUE) -> Any:
    """Committed."""
    async with app.transaction() as tx:
        return await app.erasure.erase_subject(tx, subject, [SubjectRef(kind, value) for kind in kinds or ("vendor",)])


async def rectify(app: Postlude, *kinds: str, subject: str = ADA, value: Any = "Ada L.") -> Any:
    async with app.transaction() as tx:
        refs = [SubjectRef(kind, VALUE) for kind in kinds or ("vendor",)]
        return await app.erasure.rectify_subject(tx, subject, [Correction("name", value)], refs)


async def only_call(app: Postlude, subject: str = ADA) -> Call:
    (call,) = (await app.erasure.show(subject)).calls
    return call


async def request(app: Postlude, group: UUID, subject: str = ADA) -> Any:
    (found,) = [one for one in (await app.erasure.show(subject)).requests if one.id == group]
    return found


async def trail(app: Postlude, subject: str = ADA) -> list[str]:
    """What the audit says of a subject, oldest first."""
    return [one["action"] for one in await records(app, subject=subject)]


async def records(app: Postlude, *actions: str, subject: str = ADA) -> list[dict[str, Any]]:
    target = f"subject:{await app.erasure.pseudonym(subject)}"
    found = await app.store.records.audits(target=target, limit=1000)
    return [one for one in reversed(found) if not actions or one["action"] in actions]


async def detail(app: Postlude, action: str, subject: str = ADA) -> dict[str, Any]:
    (one,) = await records(app, action, subject=subject)
    found: dict[str, Any] = one["detail"]
    return found


async def secrets(url: str) -> list[str]:
    """Parts that are kept."""
    return sorted(row[0] for row in await query(url, "SELECT part FROM postlude_secret"))


async def require_books(url: str) -> None:
    """What holds at any moment: a group is open by as many calls as there are, and complete exactly when none is."""
    rows = await query(
        url,
        "SELECT g.open, g.calls, g.completed_at IS NOT NULL, (SELECT count(*) FROM postlude_delivery d"
        " WHERE d.group_id = g.id) FROM postlude_group g",
    )
    for open_calls, calls, is_complete, deliveries in rows:
        assert open_calls == deliveries
        assert 0 <= open_calls <= calls
        assert bool(is_complete) == (open_calls == 0)
    lost = "SELECT count(*) FROM postlude_secret s WHERE NOT EXISTS (SELECT 1 FROM postlude_delivery d WHERE d.event_id = s.event_id)"
    assert await query(url, lost) == [(0,)]
    twice = (
        "SELECT count(*) FROM postlude_group g WHERE (g.completed_at IS NOT NULL) <> (SELECT count(*) = 1 FROM"
        " postlude_audit a WHERE a.action LIKE '%_completed' AND a.action NOT LIKE '%_local_completed' AND"
        f" {_group_of(url)} = {_text_of(url)})"
    )
    assert await query(url, twice) == [(0,)]


def _group_of(url: str) -> str:
    return "replace(a.detail ->> 'group', '-', '')"


def _text_of(url: str) -> str:
    return "lower(hex(g.id))" if url.startswith("sqlite") else "replace(g.id::text, '-', '')"


@asynccontextmanager
async def calling_apps(url: str) -> AsyncIterator[Callable[..., Postlude]]:
    """Makes apps with those vendors and settings; at the end they are closed, and the books must be right."""
    made: list[Postlude] = []

    def make(*vendors: Any, **settings: Any) -> Postlude:
        made.append(calling_app(url, *vendors, **settings))
        return made[-1]

    yield make
    for one in made:
        await one.close()
    await require_books(url)
