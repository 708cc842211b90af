"""Fixtures that every tier shares: databases by need, a server to kill, and an honest account of what ran."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, settings

from tests import matrix
from tests.databases import (
    Databases,
    PostgresDatabases,
    PostgresTemplates,
    Server,
    SqliteDatabases,
    configured_servers,
    install_schema,
)
from tools import kafka, nats, rabbitmq, redis
from tools.binaries import postgres
from tools.debian import Program
from tools.pgbouncer import PgBouncer
from tools.pgbouncer import available as pooler
from tools.servers import PostgresServer

pytest.register_assert_rewrite("postlude.testing.contracts")
pytest_plugins = ["tests.scheduling", "tests.swept"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts us in the background leaves this to every process we start, and Ctrl-C could not be tested.
    signal.signal(signal.SIGINT, signal.default_int_handler)

SERVERS = {server.name: server for server in configured_servers()}
ALLOWED_MISSING = Path(__file__).with_name("allowed_missing.txt")

ON_SQLITE = [pytest.param("sqlite", marks=pytest.mark.sqlite)]
ON_POSTGRES = [pytest.param(name, marks=pytest.mark.postgres) for name in SERVERS]

# A machine with two busy cores misses any deadline now and then, and draws examples as slowly as a bad strategy.
settings.register_profile("postlude", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("postlude")


@pytest.fixture(params=[*ON_SQLITE, *ON_POSTGRES])
def database(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> Databases:
    """Each kind of database in turn: `database.fresh()` makes one more, `database.name` says which kind it is."""
    return databases_on(request.param)


@pytest.fixture(params=ON_SQLITE)
def sqlite_database(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> Databases:
    return databases_on(request.param)


@pytest.fixture(params=ON_POSTGRES)
def postgres_database(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> Databases:
    return databases_on(request.param)


@pytest.fixture(params=ON_POSTGRES[:1])
def any_postgres_database(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> Databases:
    return databases_on(request.param)


@pytest.fixture
def database_url(database: Databases) -> str:
    """A database of its own with Postlude's schema, on SQLite and on every PostgreSQL."""
    return database.fresh()


@pytest.fixture
def empty_database_url(database: Databases) -> str:
    """The same with nothing in it."""
    return database.fresh(schema=False)


@pytest.fixture
def sqlite_url(sqlite_database: Databases) -> str:
    """With the schema, on SQLite only."""
    return sqlite_database.fresh()


@pytest.fixture
def postgres_url(postgres_database: Databases) -> str:
    """With the schema, on every PostgreSQL."""
    return postgres_database.fresh()


@pytest.fixture
def any_postgres_url(any_postgres_database: Databases) -> str:
    """With the schema, on one PostgreSQL: for what does not depend on the version."""
    return any_postgres_database.fresh()


@pytest.fixture
def private_postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A whole server of the test's own (16), to be killed, stopped and restarted; empty."""
    try:
        binaries = postgres(16)
    except LookupError as error:
        _refuse("postgres-16", str(error))
    with PostgresServer(binaries) as server:
        _record(request, f"private {server.name} {server.version}")
        yield server


@pytest.fixture
def pgbouncer(request: pytest.FixtureRequest, any_postgres_database: Databases) -> Iterator[PgBouncer]:
    """A PgBouncer of the test's own in transaction mode, before the server of `any_postgres_url`."""
    assert isinstance(any_postgres_database, PostgresDatabases)
    try:
        found = pooler()
    except LookupError as error:
        _refuse("pgbouncer", str(error))
    with PgBouncer(found, any_postgres_database.server.dsn) as bouncer:
        _record(request, f"pgbouncer {bouncer.version}")
        yield bouncer


@pytest.fixture
def pgbouncer_url(any_postgres_url: str, pgbouncer: PgBouncer) -> str:
    """The database of `any_postgres_url`, through PgBouncer."""
    return pgbouncer.url(urlsplit(any_postgres_url).path.removeprefix("/"))


@pytest.fixture
def rabbitmq_url(request: pytest.FixtureRequest, shared_rabbitmq: str) -> str:
    """The RabbitMQ of the whole run: a test uses names of its own in it."""
    place = urlsplit(shared_rabbitmq)
    _record(request, f"rabbitmq {rabbitmq.version_at(place.port or 5672, place.hostname or '127.0.0.1')}")
    return shared_rabbitmq


@pytest.fixture(scope="session")
def shared_rabbitmq() -> Iterator[str]:
    if url := os.environ.get(rabbitmq.OWN) or os.environ.get(rabbitmq.SHARED):
        rabbitmq.wait_for(url)
        yield url
        return
    with rabbitmq.RabbitmqServer(_rabbitmq()) as server:
        yield server.url


@pytest.fixture
def private_rabbitmq(request: pytest.FixtureRequest, killable_rabbitmq: rabbitmq.RabbitmqServer) -> object:
    """A node of the class's own, to be killed, frozen and restarted."""
    _record(request, f"private rabbitmq {killable_rabbitmq.version}")
    return killable_rabbitmq


@pytest.fixture(scope="class")
def killable_rabbitmq() -> Iterator[rabbitmq.RabbitmqServer]:
    with rabbitmq.RabbitmqServer(_rabbitmq()) as server:
        yield server


def _rabbitmq() -> Program:
    try:
        return rabbitmq.available()
    except LookupError as error:
        _refuse("rabbitmq", str(error))


@pytest.fixture
def redis_server(request: pytest.FixtureRequest, shared_redis: redis.RedisServer | redis.OwnRedis) -> object:
    """The Redis of this process. A private one may be killed and frozen; whoever does so leaves it well."""
    _record(request, f"redis {shared_redis.version}")
    return shared_redis


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[redis.RedisServer | redis.OwnRedis]:
    if url := os.environ.get(redis.OWN):
        yield redis.OwnRedis(url)
        return
    try:
        found = redis.available()
    except LookupError as error:
        _refuse("redis", str(error))
    with redis.RedisServer(found) as server:
        yield server


PRIVATE_BROKERS: Mapping[str, Callable[[], Any]] = {
    "kafka": lambda: kafka.KafkaServer(kafka.available()),
    "rabbitmq": lambda: rabbitmq.RabbitmqServer(rabbitmq.available()),
    "redis": lambda: redis.RedisServer(redis.available()),
    "nats": lambda: nats.NatsServer(nats.available()),
}


@pytest.fixture
def private_broker(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server of the test's own, of the kind that its parameter names, to be killed and started again."""
    try:
        server = PRIVATE_BROKERS[request.param]()
    except LookupError as error:
        _refuse(request.param, str(error))
    with server:
        _record(request, f"private {getattr(server, 'name', request.param)} {getattr(server, 'version', '')}".rstrip())
        yield server


@pytest.fixture
def databases_on(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_template: PostgresTemplates
) -> Iterator[Callable[[str], Databases]]:
    """Databases by the name of their server; the other fixtures stand on this one."""
    opened: list[PostgresDatabases] = []

    def on(name: str) -> Databases:
        if name == "sqlite":
            _record(request, f"sqlite {sqlite3.sqlite_version}")
            return SqliteDatabases(tmp_path, request.getfixturevalue("sqlite_template"))
        server = _required(name)
        _record(request, f"{name} {server.version}")
        opened.append(PostgresDatabases(server, postgres_template))
        return opened[-1]

    yield on
    for databases in opened:
        databases.drop_all()


@pytest.fixture(scope="session")
def servers() -> Mapping[str, Server]:
    return SERVERS


@pytest.fixture(scope="session")
def postgres_template() -> Iterator[PostgresTemplates]:
    """By server, a database with the schema that others are copied from: far cheaper than an upgrade for each test."""
    templates = PostgresTemplates(SERVERS)
    yield templates
    templates.drop_all()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "schema.db"
    install_schema(f"sqlite:///{path}")
    return path


def _required(name: str) -> Server:
    server = SERVERS[name]
    if not server.dsn:
        _refuse(name, server.missing)
    return server


def _refuse(name: str, reason: str) -> NoReturn:
    """Skip for a person; fail in CI, where green must mean that it ran, unless that server may be missing."""
    lines = ALLOWED_MISSING.read_text().splitlines()
    allowed = {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}
    if os.environ.get("CI", "").lower() == "true" and name not in allowed:
        pytest.fail(f"{name}: {reason} (CI may lack only what tests/{ALLOWED_MISSING.name} names)", pytrace=False)
    pytest.skip(f"{name}: {reason}")


def _record(request: pytest.FixtureRequest, server: str) -> None:
    """Reports carry properties from xdist's workers to the summary."""
    request.node.user_properties.append(("server", server))


def pytest_sessionfinish() -> None:
    for server in SERVERS.values():
        server.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which servers were really used, and count every skip with its reason."""
    reports = [report for group in terminalreporter.stats.values() for report in group if hasattr(report, "nodeid")]
    used = Counter(
        server
        for server, _ in {
            (value, report.nodeid)
            for report in reports
            for key, value in getattr(report, "user_properties", ())
            if key == "server"
        }
    )
    skips = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", []))
    _summarise_adapters(terminalreporter)
    _summarise_brokers(terminalreporter)
    terminalreporter.section("servers and skips")
    for server, count in sorted(used.items()):
        terminalreporter.line(f"{count:5} tests on {server}")
    for reason, count in skips.most_common():
        terminalreporter.line(f"{count:5} SKIPPED: {reason}", yellow=True)
    if not skips:
        terminalreporter.line("    0 skipped")


def _summarise_adapters(terminalreporter: pytest.TerminalReporter) -> None:
    """The matrix of handles, of what has passed in this run."""
    passed = [
        tuple(value)
        for report in terminalreporter.stats.get("passed", [])
        for key, value in getattr(report, "user_properties", ())
        if key == matrix.PROPERTY
    ]
    if passed:
        terminalreporter.section("adapters")
        for line in matrix.lines(passed):
            terminalreporter.line(line)
        if left := matrix.missing(passed, matrix.declared()):
            terminalreporter.line(f"    {len(left)} cells of the documentation were not shown by this run", yellow=True)


def _summarise_brokers(terminalreporter: pytest.TerminalReporter) -> None:
    """The scenarios of the broker contract that have passed in this run."""
    from tests import scenarios  # not before the suite's assertions are registered

    if passed := scenarios.passed(report.nodeid for report in terminalreporter.stats.get("passed", [])):
        terminalreporter.section("brokers")
        for line in scenarios.lines(passed):
            terminalreporter.line(line)


def _reason(report: pytest.TestReport) -> str:
    return report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else str(report.longrepr)
