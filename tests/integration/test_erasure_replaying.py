"""After a restore, whoever was erased since the backup is erased again; nobody else, and once is enough."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from postlude import ConfigurationError, NaiveDatetime
from postlude.core.at_once import at_once
from postlude.core.pseudonym import pseudonym
from postlude.erasure import replaying
from postlude.erasure.replaying import Replaying, plan_replay
from tests.databases import Databases
from tests.shop_data import KINDS_OF_DATABASE, Model, User, dump, engine_on, fill, shop_map

KEY = b"k" * 32
BACKUP = datetime(2026, 3, 1, 12, tzinfo=UTC)


def _line(subject: str, at: datetime, action: str = "erasure_local_completed") -> str:
    record = {
        "position": 1, "hash": "00", "id": "x", "at": at.isoformat(), "actor": "web", "action": action,
        "target": f"subject:{pseudonym(KEY, subject)}", "reason": "", "detail": {"deleted": 3},
    }  # fmt: skip
    return json.dumps(record) + "\n"


AFTER = BACKUP + timedelta(hours=1)
LINES = [
    _line("1", BACKUP - timedelta(microseconds=1)),
    _line("2", BACKUP),
    _line("4", AFTER),
    _line("4", AFTER + timedelta(days=400)),
    _line("3", AFTER, "rectification_local_completed"),
    _line("77", AFTER),
]


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "PAGE", 2)


@pytest.fixture(params=KINDS_OF_DATABASE)
def empty_url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh(schema=False)


def _restored(url: str) -> Any:
    engine = engine_on(url)
    Model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        fill(session, *range(1, 6))
    return engine


def _users(engine: Any) -> list[int]:
    with Session(engine) as session:
        return [row[0] for row in dump(session, User)["users"]]


def test_the_backups_own_moment_counts_and_there_is_no_end() -> None:
    erased = plan_replay(LINES, BACKUP)
    assert erased.subjects == {
        pseudonym(KEY, "2"): BACKUP,
        pseudonym(KEY, "4"): AFTER + timedelta(days=400),
        pseudonym(KEY, "77"): AFTER,
    }
    assert str(erased) == "subjects erased at or after 2026-03-01T12:00:00+00:00: 3"


def test_times_are_compared_as_moments() -> None:
    elsewhere = _line("2", BACKUP).replace("2026-03-01T12:00:00+00:00", "2026-03-01T14:00:00+02:00")
    assert plan_replay([elsewhere], BACKUP).subjects


def test_a_backup_time_without_a_zone_is_refused() -> None:
    with pytest.raises(NaiveDatetime):
        plan_replay([], datetime(2026, 3, 1))  # noqa: DTZ001 - that is the point


def test_a_line_that_cannot_be_read_is_refused_unless_it_was_cut_off_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cut = LINES[1][:40]
    assert plan_replay([*LINES, cut], BACKUP) == plan_replay(LINES, BACKUP)
    assert "line 7" in caplog.text
    with pytest.raises(ConfigurationError, match="line 2 of the audit copy cannot be read"):
        plan_replay([LINES[0], cut, LINES[1]], BACKUP)
    naive = LINES[1].replace("+00:00", "")
    with pytest.raises(ConfigurationError, match="line 1"):
        plan_replay([naive], BACKUP)


async def test_who_is_back_is_erased_again_with_async_sessions(empty_url: str) -> None:
    engine = _restored(empty_url)
    url = empty_url.replace("postgresql:", "postgresql+asyncpg:").replace("sqlite:", "sqlite+aiosqlite:")
    waiting = create_async_engine(url)
    data = shop_map()
    again: list[str] = []

    async def erase(session: Any, subject_id: str) -> None:
        again.append(subject_id)
        await data.erase(session, subject_id)

    replay = Replaying(data, KEY, async_sessionmaker(waiting).begin, erase)
    erased = plan_replay(LINES, BACKUP)
    assert await replay.count(erased) == 2
    assert _users(engine) == [1, 2, 3, 4, 5]
    assert await replay.run(erased) == 2
    assert (again, _users(engine)) == (["2", "4"], [1, 3, 5])
    assert await replay.run(erased) == 0
    await waiting.dispose()
    engine.dispose()


def test_it_runs_without_an_event_loop(empty_url: str) -> None:
    engine = _restored(empty_url)
    data = shop_map()
    replay = Replaying(data, KEY, sessionmaker(engine).begin, data.erase)
    assert at_once(replay.run(plan_replay(LINES, BACKUP))) == 2
    assert _users(engine) == [1, 3, 5]
    engine.dispose()


def test_a_failure_keeps_what_was_done_and_the_next_run_goes_on(empty_url: str) -> None:
    engine = _restored(empty_url)
    data = shop_map()
    sessions = sessionmaker(engine)

    async def fails(session: Any, subject_id: str) -> None:
        await data.erase(session, subject_id)
        if subject_id == "4":
            raise ConnectionError

    @contextmanager
    def begun() -> Iterator[Any]:
        with sessions.begin() as session:
            yield session

    erased = plan_replay(LINES, BACKUP)
    with pytest.raises(ConnectionError):
        at_once(Replaying(data, KEY, begun, fails).run(erased))
    assert _users(engine) == [1, 3, 4, 5]
    assert at_once(Replaying(data, KEY, begun, data.erase).run(erased)) == 1
    assert _users(engine) == [1, 3, 5]
    engine.dispose()
