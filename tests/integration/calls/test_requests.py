"""Requests about a subject: what is refused leaves no trace, what is rolled back never was, and every handle will do."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from postlude import (
    ConfigurationError,
    Correction,
    ErasureCompleted,
    NotEncodable,
    NotInTransaction,
    Park,
    Postlude,
    PostludeError,
    RectificationCompleted,
    ResolverError,
    Status,
    SubjectRef,
)
from tests.callers import KINDS, Kind
from tests.calling import (
    ADA,
    VALUE,
    WHO,
    Rectifying,
    Vendor,
    calling_app,
    detail,
    erase,
    records,
    rectify,
    request,
    require_books,
    secrets,
    trail,
)
from tests.databases import Databases
from tests.engine import query

TABLES = ("event", "delivery", "group", "secret", "subject", "audit")
MARK = "marked-personal-datum"


@pytest.fixture
async def vendor() -> Rectifying:
    return Rectifying()


@pytest.fixture
async def app(url: str, vendor: Rectifying) -> AsyncIterator[Postlude]:
    app = calling_app(url, vendor, Vendor("other"))
    yield app
    await app.close()


async def require_nothing(url: str) -> None:
    for table in TABLES:
        assert await query(url, f"SELECT count(*) FROM postlude_{table}") == [(0,)], table


async def test_what_is_refused_leaves_no_trace(app: Postlude, url: str) -> None:
    good = SubjectRef("vendor", VALUE)
    erasures: list[tuple[Any, Any]] = [
        (ADA, [good, SubjectRef("unknown", MARK)]),
        (ADA, [SubjectRef("postlude", MARK)]),
        (ADA, [SubjectRef("vendor", "")]),
        (ADA, [SubjectRef("vendor", MARK + "\x00")]),
        (ADA, [SubjectRef("vendor", MARK + "\ud800")]),
        (ADA, [SubjectRef("vendor", 5)]),  # type: ignore[arg-type] # on purpose
        (ADA, [("vendor", MARK)]),
        (ADA, [SubjectRef("vendor", MARK, {"x": object()})]),
        (ADA, [SubjectRef("vendor", MARK * 60_000)]),
        (None, [good]),
        (b"ada", [good]),
        (True, [good]),
        ("  ", [good]),
        (MARK * 20, [good]),
        (MARK + "\x00", [good]),
    ]
    rectifications: list[Any] = [
        [],
        [Correction("", MARK)],
        [Correction("name", object())],
        [Correction("name", MARK), Correction("name", MARK)],
        [("name", MARK)],
        [Correction("name", float("inf")), Correction("name", MARK)],
        [Correction("name", MARK * 60_000)],
    ]
    async with app.transaction() as tx:
        for subject, refs in erasures:
            with pytest.raises((ConfigurationError, NotEncodable)) as refused:
                await app.erasure.erase_subject(tx, subject, refs)
            assert MARK not in _told(refused.value)
        for corrections in rectifications:
            with pytest.raises((ConfigurationError, NotEncodable)) as refused:
                await app.erasure.rectify_subject(tx, ADA, corrections, [good])
            assert MARK not in _told(refused.value)
        with pytest.raises(ConfigurationError, match="actor"):
            await app.erasure.erase_subject(tx, ADA, [good], actor=" ")
    await require_nothing(url)


def _told(error: BaseException | None) -> str:
    """With everything that a traceback would show."""
    return "" if error is None else str(error) + repr(error) + _told(error.__cause__) + _told(error.__context__)


async def test_an_unknown_kind_is_refused_before_any_record(app: Postlude, url: str) -> None:
    async with app.transaction() as tx:
        with pytest.raises(ConfigurationError, match="no resolver is named 'unknown'"):
            await app.erasure.erase_subject(tx, ADA, [SubjectRef("unknown", VALUE)])
    await require_nothing(url)


async def test_a_handle_in_no_transaction_is_refused(app: Postlude, url: str) -> None:
    async with app.transaction() as tx:
        handle = tx
    with pytest.raises(PostludeError):
        await app.erasure.erase_subject(handle, ADA, [SubjectRef("vendor", VALUE)])
    await require_nothing(url)


async def test_duplicate_references_are_one_call(app: Postlude, vendor: Rectifying) -> None:
    refs = [SubjectRef("vendor", VALUE), SubjectRef("vendor", VALUE), SubjectRef("vendor", VALUE, {"region": "eu"})]
    async with app.transaction() as tx:
        result = await app.erasure.erase_subject(tx, ADA, refs)
    assert len(result.calls) == 2
    assert result.skipped_resolvers == ("other",)
    assert await app.drain() == 2
    assert sorted(vendor.refs, key=repr) == sorted(refs[1:], key=repr)


async def test_references_and_corrections_may_come_from_an_iterator(app: Postlude, vendor: Rectifying) -> None:
    async with app.transaction() as tx:
        erased: Any = (SubjectRef("vendor", value) for value in ("1", "2"))
        assert len((await app.erasure.erase_subject(tx, "a", erased)).calls) == 2
        corrections: Any = iter([Correction("email", "new")])
        refs: Any = iter([SubjectRef("vendor", "3")])
        assert len((await app.erasure.rectify_subject(tx, "b", corrections, refs)).calls) == 1
    await app.drain()
    assert [list(given) for given in vendor.corrections] == [[Correction("email", "new")]]


async def test_what_is_no_list_or_no_text_is_refused_with_a_hint(app: Postlude, url: str) -> None:
    ref: Any = SubjectRef("vendor", VALUE)
    correction: Any = Correction("email", "new")
    nobody: Any = None
    erase_subject, rectify_subject = app.erasure.erase_subject, app.erasure.rectify_subject
    async with app.transaction() as tx:
        for asked in (
            erase_subject(tx, ADA, ref),
            erase_subject(tx, ADA, nobody),
            rectify_subject(tx, ADA, correction),
            erase_subject(tx, ADA, actor=nobody),
            erase_subject(tx, ADA, reason="a\0b"),
        ):
            with pytest.raises(ConfigurationError, match="hint:"):
                await asked
    await require_nothing(url)


async def test_the_trail_does_not_say_who_asked_about_herself(app: Postlude, url: str) -> None:
    async with app.transaction() as tx:
        await app.erasure.erase_subject(tx, ADA, actor=ADA, reason=f"{ADA}: she asked")
    found = await query(url, "SELECT DISTINCT actor, reason FROM postlude_audit WHERE actor <> 'postlude'")
    assert found == [("[subject]", "[subject]: she asked")]


async def test_the_request_stands_in_the_trail_by_pseudonym(app: Postlude, url: str) -> None:
    async with app.transaction() as tx:
        refs = [SubjectRef("vendor", VALUE), SubjectRef("other", VALUE)]
        await app.erasure.erase_subject(tx, ADA, refs, actor="dpo", reason="ticket 7")
    (asked,) = await records(app, "erasure_requested")
    assert (asked["actor"], asked["reason"], asked["detail"]) == ("dpo", "ticket 7", {"resolvers": "other,vendor"})
    for table in ("event", "delivery", "group", "subject", "audit"):
        for row in await query(url, f"SELECT * FROM postlude_{table}"):
            assert ADA not in repr(row)
            assert VALUE not in repr(row)


async def test_a_local_erasure_completes_too(app: Postlude, url: str) -> None:
    app.route(ErasureCompleted)
    async with app.transaction() as tx:
        result = await app.erasure.erase_subject(tx, ADA)
    assert result.is_complete
    assert await trail(app) == ["erasure_requested", "erasure_local_completed", "erasure_completed"]
    assert (await request(app, result.group_id)).status == "completed"
    assert await app.drain() == 2  # its route, and the broker
    (message,) = app.broker().messages()
    assert msgspec.json.decode(message.payload)["group"] == str(result.group_id)
    assert ADA not in message.payload.decode()


async def test_a_completion_is_told_once_to_who_listens(app: Postlude, vendor: Rectifying) -> None:
    told: list[Any] = []

    @app.on(RectificationCompleted)
    async def note(event: RectificationCompleted) -> None:
        told.append(event)

    await erase(app)
    result = await rectify(app, "vendor")
    await app.drain()
    assert [one.group for one in told] == [result.group_id]
    assert (told[0].subject, told[0].calls, told[0].discarded) == (await app.erasure.pseudonym(ADA), 1, 0)
    assert await query_types(app) == ["postlude.erase", "postlude.rectification.completed", "postlude.rectify"]


async def query_types(app: Postlude) -> list[str]:
    found = (await app.insight.list(status="sent")).items
    return sorted({str(one.type) for one in found})


async def test_a_newer_generation_is_not_held_up_by_an_abandoned_one(
    app: Postlude, vendor: Rectifying, url: str
) -> None:
    vendor.script = [ResolverError("no")]
    first = await erase(app)
    await app.drain()
    second = await erase(app)
    assert (first.generation, second.generation) == (1, 2)
    assert await app.drain() == 1
    assert (await request(app, second.group_id)).status == "completed"
    assert (await request(app, first.group_id)).status == "open"
    assert (await detail(app, "erasure_completed"))["generation"] == 2
    app.clock.advance(31 * 86_400)
    assert await app.erasure.overdue() == [], "a later one of its kind is complete"
    await app.erasure.requeue(first.calls, **WHO)
    assert await app.drain() == 1
    assert (await request(app, first.group_id)).status == "completed"
    await require_books(url)


async def test_another_operation_is_another_matter(app: Postlude, vendor: Rectifying) -> None:
    vendor.script = [ResolverError("no")]
    erased = await erase(app)
    rectified = await rectify(app)
    await app.drain()
    assert (erased.generation, rectified.generation) == (1, 1)
    assert (await request(app, erased.group_id)).status == "open"
    assert (await request(app, rectified.group_id)).status == "completed"


async def test_at_one_resolver_what_was_asked_first_is_done_first(app: Postlude, vendor: Rectifying) -> None:
    vendor.script = [OSError()]
    first, second = await rectify(app), await erase(app)
    await app.drain()
    assert vendor.keys == [str(first.calls[0])]
    app.clock.advance(30)
    await app.drain()
    assert vendor.keys[1:] == [str(first.calls[0]), str(second.calls[0])]


async def test_requests_about_one_subject_at_once_have_generations_of_their_own(app: Postlude) -> None:
    await app.start()
    results = await asyncio.gather(*(erase(app) for _ in range(5)))
    assert sorted(one.generation for one in results) == [1, 2, 3, 4, 5]


# ---------------------------------------------------------------- the caller's transaction


CHOSEN = [
    "asyncpg-connection-asyncpg-postgres",
    "psycopg-Connection-psycopg-postgres",
    "psycopg-AsyncConnection-psycopg-postgres",
    "SQLAlchemy-Session-psycopg-postgres",
    "SQLAlchemy-AsyncSession-asyncpg-postgres",
    "sqlite3-Connection-sqlite3-sqlite",
    "SQLAlchemy-Session-sqlite3-sqlite",
    "SQLAlchemy-AsyncSession-aiosqlite-sqlite",
]


@pytest.mark.parametrize(
    "kind",
    [pytest.param(one, id=one.id, marks=getattr(pytest.mark, one.database)) for one in KINDS if one.id in CHOSEN],
)
async def test_every_handle_will_do(kind: Kind, databases_on: Callable[[str], Databases]) -> None:
    """On an app that was not started: whatever connection comes first tells it what it must know."""
    url = databases_on("sqlite" if kind.database == "sqlite" else "postgres-16").fresh()
    vendor = Rectifying()
    app, callers = calling_app(url, vendor), kind.callers(url)
    try:
        handle = await callers.open()
        refs = [SubjectRef("vendor", VALUE)]
        await callers.begin(handle)
        await app.erasure.erase_subject(handle, ADA, refs)
        await callers.rollback(handle)
        await require_nothing(url)
        await callers.begin(handle)
        with pytest.raises(RuntimeError):
            async with callers.nested(handle):
                await app.erasure.erase_subject(handle, ADA, refs)
                raise RuntimeError
        if kind.adapter().is_async:
            result = await app.erasure.rectify_subject(handle, ADA, [Correction("name", "Ada")], refs)
        else:
            result = app.sync.erasure.rectify_subject(handle, ADA, [Correction("name", "Ada")], refs)
        await callers.commit(handle)
        assert result.generation == 1
        assert await secrets(url) == ["corrections", "subject"]
        assert await trail(app) == ["rectification_requested", "rectification_local_completed"]
        assert await app.drain() == 1
        assert vendor.keys == [str(result.calls[0])]
    finally:
        await callers.end()
        await app.close()


async def test_without_a_loop_only_handles_without_a_loop(app: Postlude, url: str) -> None:
    async with app.transaction() as tx:
        if url.startswith("sqlite"):
            assert app.sync.erasure.erase_subject(tx, ADA, reason="by hand").is_complete
        else:
            with pytest.raises(ConfigurationError, match="belongs to an event loop"):
                app.sync.erasure.erase_subject(tx, ADA)


def test_the_sync_side_is_whole(sqlite_url: str) -> None:
    vendor = Vendor("vendor", ResolverError("no"), Park(until=datetime(2126, 1, 1, tzinfo=UTC)))
    app = calling_app(sqlite_url, vendor)
    erasure = app.sync.erasure
    with app.sync.transaction() as tx:
        result = erasure.erase_subject(tx, ADA, [SubjectRef("vendor", VALUE)])
    app.sync.drain()
    (abandoned,) = erasure.list_abandoned()
    assert [one.id for one in erasure.list()] == [result.group_id]
    assert erasure.show(ADA).subject == erasure.pseudonym(ADA)
    assert erasure.status_counts()["dead"] == 1
    assert erasure.overdue() == []
    assert [one.entry_id for one in erasure.requeue([abandoned.entry_id], **WHO)] == list(result.calls)
    app.sync.drain()
    assert (erasure.list_abandoned(), len(erasure.list_scheduled())) == ([], 1)
    assert vendor.keys == [str(result.calls[0])] * 2


async def test_autocommit_is_refused(sqlite_url: str) -> None:
    app = calling_app(sqlite_url, Vendor())
    connection = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    with pytest.raises(NotInTransaction):
        await app.erasure.erase_subject(connection, ADA)
    connection.close()
    await app.close()


async def test_a_discard_completes_and_says_so(app: Postlude, vendor: Rectifying, url: str) -> None:
    result = await erase(app, "vendor", "other")
    assert await app.actions.discard([result.calls[0]], **WHO) == [result.calls[0]]
    assert await app.drain() == 1
    assert (await detail(app, "erasure_completed"))["discarded"] == 1
    done = await request(app, result.group_id)
    assert (done.status, done.calls, done.discarded, done.open) == ("completed", 2, 1, 0)
    counts = await app.erasure.status_counts()
    assert counts == dict.fromkeys(map(str, Status), 0) | {"sent": 1, "discarded": 1}
    assert await secrets(url) == []
