"""Bad input and bad days: an error of the drawn tree with its code and a hint, and nothing half-written."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

import postlude
from postlude import Event, Postlude, PostludeError, Settings, event
from tests.engine import Noted, connect, make_app, query, routed_app

ID = UUID("01890000-0000-7000-8000-000000000001")


class Plain(Event):
    n: int


@event(type="test.nowhere")
class Nowhere(Event):
    n: int


@event(type="test.strange", record_only=True)
class Strange(Event):
    value: Any


Act = Callable[[Postlude, Any], Awaitable[Any]]
REFUSED: list[tuple[str, str, Act]] = [
    ("UnknownEvent", "event.unknown", lambda app, tx: app.outbox.append(tx, Plain(n=1))),
    ("UnknownEvent", "event.unknown", lambda app, tx: app.outbox.append(tx, "text")),
    ("Unroutable", "append.unroutable", lambda app, tx: app.outbox.append(tx, Nowhere(n=1))),
    ("PayloadTooLarge", "append.payload_too_large", lambda app, tx: app.outbox.append(tx, Noted(key="k" * 400, n=1))),
    ("NotEncodable", "append.not_encodable", lambda app, tx: app.outbox.append(tx, Strange(value=object()))),
    (
        "NotEncodable",
        "append.not_encodable",
        lambda app, tx: app.outbox.append(tx, Noted(key="k", n=1), headers={"ce_id": "mine"}),
    ),
    (
        "NotEncodable",
        "append.not_encodable",
        lambda app, tx: app.outbox.append(tx, Noted(key="k", n=1), headers={"x": "two\nlines"}),
    ),
    ("InvalidKey", "append.invalid_key", lambda app, tx: app.outbox.append(tx, Noted(key="", n=1))),
    ("InvalidKey", "append.invalid_key", lambda app, tx: app.outbox.append(tx, Noted(key="k", n=1), priority="high")),
    ("InvalidId", "append.invalid_id", lambda app, tx: app.outbox.append(tx, Noted(key="k", n=1), id="no-uuid")),
    (
        "InvalidId",
        "append.invalid_id",
        lambda app, tx: app.outbox.append(tx, Noted(key="k", n=1), id=UUID(int=_ahead())),
    ),
    (
        "NaiveDatetime",
        "append.naive_datetime",
        lambda app, tx: app.outbox.append(tx, Noted(key="k", n=1), available_at=datetime(2030, 1, 1)),  # noqa: DTZ001
    ),
    (
        "ConfigurationError",
        "configuration.refused",
        lambda app, tx: app.outbox.append(tx, Noted(key="k", n=1), max_attempts=0),
    ),
    (
        "ConfigurationError",
        "configuration.refused",
        lambda app, tx: app.outbox.append(object(), Noted(key="k", n=1)),
    ),
    (
        "IdConflict",
        "append.id_conflict",
        lambda app, tx: app.outbox.append_many(
            tx, [postlude.Message(Noted(key="k", n=1), id=ID), postlude.Message(Noted(key="k", n=2), id=ID)]
        ),
    ),
]


def _ahead() -> int:
    """A v7 id of the day after tomorrow."""
    moment = int((datetime.now(UTC) + timedelta(days=2)).timestamp() * 1000)
    return moment << 80 | 0x7 << 76 | 0x2 << 62


async def rows(url: str) -> int:
    tables = ("postlude_event", "postlude_delivery")
    found = [await query(url, f"SELECT count(*) FROM {table}") for table in tables]
    return sum(int(answer[0][0]) for answer in found)


@pytest.mark.parametrize(
    ("name", "code", "act"), REFUSED, ids=[f"{name}-{i}" for i, (name, _, _) in enumerate(REFUSED)]
)
async def test_an_append_that_is_refused_writes_nothing(database_url: str, name: str, code: str, act: Act) -> None:
    app = routed_app(database_url, payload={"max_bytes": 300})
    with pytest.raises(getattr(postlude, name)) as refused:
        async with app.transaction() as tx:
            await act(app, tx)
    assert refused.value.code == code
    assert refused.value.hint
    assert refused.value.hint in str(refused.value)
    assert await rows(database_url) == 0
    await app.close()


async def test_the_rest_of_a_refused_transaction_can_go_on(database_url: str) -> None:
    """A refusal is decided before anything is sent: the caller's transaction is not spoiled by it."""
    app = routed_app(database_url)
    async with app.transaction() as tx:
        with pytest.raises(postlude.Unroutable):
            await app.outbox.append_many(tx, [Noted(key="k", n=1), Nowhere(n=1)])
        await app.outbox.append(tx, Noted(key="k", n=2))
    assert await rows(database_url) == 2
    await app.close()


async def test_other_content_under_a_known_id_is_a_conflict(database_url: str) -> None:
    app = routed_app(database_url)
    async with app.transaction() as tx:
        await app.outbox.append(tx, Noted(key="k", n=1), id=ID)
    async with app.transaction() as tx:
        assert await app.outbox.append(tx, Noted(key="k", n=1), id=ID) == ID
    with pytest.raises(postlude.IdConflict, match=str(ID)) as conflict:
        async with app.transaction() as tx:
            await app.outbox.append(tx, Noted(key="k", n=2), id=ID)
    assert conflict.value.code == "append.id_conflict"
    assert await rows(database_url) == 2
    await app.close()


async def test_autocommit_and_closed_handles_are_refused(database_url: str) -> None:
    app = routed_app(database_url)
    handle = await connect(database_url)
    with pytest.raises(postlude.NotInTransaction) as refused:
        await app.outbox.append(handle, Noted(key="k", n=1))
    assert refused.value.code == "append.not_in_transaction"
    closed = handle.close()
    if inspect.isawaitable(closed):
        await closed
    with pytest.raises(postlude.ConnectionClosed) as gone:
        await app.outbox.append(handle, Noted(key="k", n=1))
    assert gone.value.code == "database.closed"
    assert await rows(database_url) == 0
    await app.close()


async def test_a_handle_of_another_database_is_refused(sqlite_url: str, any_postgres_url: str) -> None:
    app = routed_app(sqlite_url)
    handle = await connect(any_postgres_url)
    async with handle.transaction():
        with pytest.raises(postlude.ConfigurationError, match="postgres handle"):
            await app.outbox.append(handle, Noted(key="k", n=1))
    await handle.close()
    await app.close()


async def test_a_missing_schema_is_named(database) -> None:
    url = database.fresh(schema=False)
    app = routed_app(url)
    handle = await connect(url)
    begun = handle.execute("BEGIN")
    if inspect.isawaitable(begun):
        await begun
    with pytest.raises(postlude.SchemaMissing, match="postlude db upgrade") as missing:
        await app.outbox.append(handle, Noted(key="k", n=1))
    assert missing.value.code == "schema.missing"
    closed = handle.close()
    if inspect.isawaitable(closed):
        await closed
    await app.close()


async def test_postgres_never_upgrades_itself(postgres_database) -> None:
    app = routed_app(postgres_database.fresh(schema=False))
    with pytest.raises(postlude.SchemaMissing):
        await app.drain()
    await app.close()


async def test_a_schema_that_newer_code_cleaned_up_is_refused(database_url: str) -> None:
    handle = await connect(database_url)
    for answer in (
        handle.execute(
            "INSERT INTO postlude_migration (number, phase, name, applied_at) VALUES (9999, 'post', 'x', '2030-01-01')"
        ),
        handle.close(),
    ):
        if inspect.isawaitable(answer):
            await answer
    app = make_app(database_url)
    with pytest.raises(postlude.SchemaTooNew) as refused:
        await app.start()
    assert refused.value.code == "schema.too_new"
    await app.close()


async def test_other_lanes_than_installed_are_refused(database_url: str) -> None:
    app = routed_app(database_url, lanes=7)
    for act in (app.start, app.db.upgrade):
        with pytest.raises(postlude.LanesDiffer) as refused:
            await act()
        assert refused.value.code == "schema.lanes_differ"
    handle = await connect(database_url)
    begun = handle.execute("BEGIN")
    if inspect.isawaitable(begun):
        await begun
    with pytest.raises(postlude.LanesDiffer):
        await app.outbox.append(handle, Noted(key="k", n=1))
    closed = handle.close()
    if inspect.isawaitable(closed):
        await closed
    assert await rows(database_url) == 0
    await app.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql://u:secret@host/db", "mysql://u@host/db"),
        ("shop.db", "shop.db"),
        ("sqlite://host/shop.db", "sqlite"),
        ("postgresql://u:secret@host:port/db", "postgresql://u@host:port/db"),
    ],
)
def test_a_bad_url_is_named_without_its_password(url: str, shown: str) -> None:
    with pytest.raises(postlude.BadUrl) as refused:
        _ = Postlude(url).store
    assert refused.value.code == "settings.bad_url"
    assert refused.value.hint
    assert shown in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_bad_broker_url_is_named() -> None:
    with pytest.raises(postlude.BadUrl):
        Postlude("sqlite:///x.db", broker="carrier-pigeon://roof").broker()


def test_a_setting_that_does_not_exist_names_the_nearest() -> None:
    with pytest.raises(postlude.SettingsError) as refused:
        Settings.load(environ={"POSTLUDE_RELAY__BATCHSIZE": "5"})
    assert refused.value.code == "settings.invalid"
    assert "relay.batch_size" in refused.value.hint


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_a_server_that_is_not_there(driver: str) -> None:
    app = make_app(f"postgresql+{driver}://postgres@127.0.0.1:1/none")
    with pytest.raises(postlude.DatabaseUnavailable) as refused:
        await app.start()
    assert refused.value.code == "database.unavailable"
    assert refused.value.hint
    await app.close()


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg", "postgresql+psycopg"])
def test_missing_drivers_are_named_with_their_extras(scheme: str) -> None:
    program = (
        "import sys; sys.modules['asyncpg'] = sys.modules['psycopg_pool'] = None\n"
        "from postlude import Postlude, MissingExtra\n"
        f"try:\n    Postlude('{scheme}://localhost/shop').store\n"
        "except MissingExtra as error:\n    print(error.code, '|', error.hint)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "settings.missing_extra | pip install 'postlude[postgres]' or 'postlude[psycopg]'"


def test_declarations_that_cannot_work_are_refused() -> None:
    app = Postlude("sqlite:///x.db", settings=Settings.load(environ={}))
    with pytest.raises(postlude.ConfigurationError, match="no broker"):
        app.route(Noted)
    with pytest.raises(postlude.UnknownEvent):
        app.on(Plain)
    with pytest.raises(postlude.ConfigurationError, match="no field"):
        event(key="missing")(Plain)
    with pytest.raises(postlude.ConfigurationError, match="no method handle"):
        app.register(object())

    @app.on(Noted, name="twice")
    async def first(noted: Noted) -> None: ...

    with pytest.raises(postlude.ConfigurationError, match="two handlers"):
        app.on(Noted, name="twice")(first)
    with pytest.raises(postlude.ConfigurationError, match="parameters"):

        @app.on(Noted)
        async def too_many(one: Noted, two: Any, three: Any) -> None: ...


def test_every_error_has_a_code_of_its_own() -> None:
    def tree(cls: type[PostludeError]) -> list[type[PostludeError]]:
        return [cls, *(found for child in cls.__subclasses__() for found in tree(child))]

    errors = [error for error in tree(PostludeError) if error.__module__ == "postlude.errors"]
    codes = [error.code for error in errors]
    assert len(codes) == len(set(codes))
    not_raised = {"EventMissing", "Misfit"}  # they are told as faults of a delivery, never raised to a caller
    for error in errors:
        assert error is PostludeError or hasattr(postlude, error.__name__) or error.__name__ in not_raised
