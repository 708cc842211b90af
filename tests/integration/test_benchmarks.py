"""The benchmarks run, prove their work and speak the agreed JSON. What they measure is not a matter for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from benchmarks.broker import comparisons
from benchmarks.handles.drivers import HANDLES
from benchmarks.handles.handle import Handle
from benchmarks.measuring.costs import Costs
from benchmarks.measuring.database import connected, fresh_database
from benchmarks.measuring.engine import engine
from benchmarks.scenarios.joining import joining
from benchmarks.scenarios.setup import Params, Setup
from tools import kafka

SCRIPTS = Path(__file__).parents[2] / "benchmarks"
SMALL = ("--events", "300", "--repeats", "2", "--batch", "50")
UNITS = {
    "relay": "events/s", "relay raw": "events/s", "append": "tx/s", "append raw": "tx/s", "read@15k": "ms",
    "read@30": "ms", "blocked": "events/s", "unblocked": "events/s",
}  # fmt: skip
AIMS = {
    "relay/raw": (">=", 0.25),
    "append/raw": (">=", 0.8),
    "read@15k/read@30": ("<=", 1.2),
    "blocked/unblocked": (">=", 0.8),
}

ON_POSTGRES = (
    "asyncpg", "psycopg", "psycopg-async", "sqlalchemy-async", "sqlalchemy", "sqlalchemy-psycopg2", "sqlalchemy-core",
    "django",
)  # fmt: skip
ASYNCPG = HANDLES[0]
BROKERS = {"kafka": 0.6, "rabbitmq": 0.8, "redis": 0.8, "nats": 0.6}
ON_SQLITE = ("sqlalchemy-sqlite", "sqlite3", "aiosqlite")


def run(
    url: str | None, *arguments: str, bench: str = "relay", patience: float = 170, **servers: str
) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("POSTLUDE_BENCH_")}
    env |= {f"POSTLUDE_BENCH_{name.upper()}": server for name, server in servers.items()}
    if url is not None:
        env["POSTLUDE_BENCH_POSTGRES"] = url
    command = [sys.executable, str(SCRIPTS / f"{bench}.py"), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=patience)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_relay_reports_every_series_ratio_cost_and_aim(any_postgres_url):
    done = run(any_postgres_url, "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["params"] == {"events": 300, "bytes": 500, "batch": 50, "repeats": 2}
    assert {name: series["unit"] for name, series in report["series"].items()} == UNITS
    assert {aim["name"]: (aim["op"], aim["bar"]) for aim in report["aims"]} == AIMS
    check_shape(report, "relay")
    assert set(report["costs"]) == {
        "statements_per_event", "commits_per_event", "wal_bytes_per_event", "cpu_us_per_event", "connections",
    }  # fmt: skip
    assert all(value > 0 for value in report["costs"].values())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_append_reports_every_handle(any_postgres_url):
    done = run(any_postgres_url, "--json", "--events", "100", "--repeats", "2", bench="append", patience=290)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    names = {f"append[{handle}]" for handle in (*ON_POSTGRES, *ON_SQLITE)}
    assert {name: series["unit"] for name, series in report["series"].items()} == {
        side: "tx/s" for name in names for side in (name, f"{name} raw")
    }
    assert {aim["name"]: (aim["op"], aim["bar"]) for aim in report["aims"]} == {
        f"{name}/raw": (">=", 0.7 if "sqlalchemy" in name or "django" in name else 0.8) for name in names
    }
    assert report["params"]["events"] == 100
    check_shape(report, "append")
    assert set(report["costs"]) == {
        "commits_per_event", "wal_bytes_per_event", "cpu_us_per_event", "connections",
    }  # fmt: skip
    assert 1 <= report["costs"]["commits_per_event"] < 2


def test_append_measures_some_handles(any_postgres_url):
    arguments = ("--only", "sqlite3,append[psycopg]/raw", "--events", "100", "--repeats", "1")
    done = run(any_postgres_url, *arguments, bench="append")
    assert done.returncode == 0, done.stderr
    ratios = [line.split()[0] for line in done.stdout.splitlines() if "/raw" in line]
    assert ratios == ["append[psycopg]/raw", "append[sqlite3]/raw"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_saga_reports_both_ratios_and_the_costs_of_a_saga(any_postgres_url):
    done = run(any_postgres_url, "--json", "--events", "100", "--repeats", "2", bench="saga")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {name: series["unit"] for name, series in report["series"].items()} == dict.fromkeys(
        ("saga", "handwritten", "saga beside dbos", "dbos"), "sagas/s"
    )
    assert {aim["name"]: (aim["op"], aim["bar"]) for aim in report["aims"]} == {
        "saga/dbos": (">=", 3),
        "saga/handwritten": (">=", 0.5),
    }
    check_shape(report, "saga")
    assert set(report["costs"]) == {
        "statements_per_saga", "commits_per_saga", "wal_bytes_per_saga", "cpu_us_per_saga", "connections",
        "client_cpu_us_per_saga",
    }  # fmt: skip
    assert report["costs"]["commits_per_saga"] >= 4, "one to start it and one for each step"


def test_broker_has_every_broker_and_aims_for_publishing():
    found = {comparison.name: comparison.bar for _, comparison in comparisons(20_000).values()}
    publishing = {f"{name}/client": aim for name, aim in BROKERS.items()}
    assert found == publishing | {f"{name}-consume/client": None for name in BROKERS}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_broker_measures_publishing_and_consuming_on_rabbitmq(any_postgres_url, rabbitmq_url):
    check_broker(any_postgres_url, "rabbitmq", rabbitmq=rabbitmq_url)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_broker_measures_publishing_and_consuming_on_redis(any_postgres_url, redis_server):
    check_broker(any_postgres_url, "redis", redis=redis_server.url)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_broker_measures_publishing_and_consuming_on_a_server_of_its_own(any_postgres_url):
    check_broker(any_postgres_url, "nats")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_broker_measures_publishing_and_consuming_on_kafka_or_says_why_not(any_postgres_url):
    try:
        kafka.available()
    except LookupError:  # its stand-in in tests is nothing to measure
        done = run(any_postgres_url, "--only", "kafka", *SMALL, bench="broker")
        assert done.returncode == 1
        assert "bench: no kafka" in done.stderr
    else:
        check_broker(any_postgres_url, "kafka")


@pytest.mark.parametrize("lazy", ["ours", "raw"])
async def test_a_side_that_does_not_write_has_no_time(any_postgres_url, lazy):
    async def nothing(_event):
        pass

    @asynccontextmanager
    async def opened(url, app):
        assert ASYNCPG.waits is not None
        async with ASYNCPG.waits(url, app) as transactions:
            yield transactions._replace(**{lazy: nothing})

    handle = Handle(name="lazy", waits=opened)
    params = Params(events=100, bytes=500, batch=50, repeats=1)
    async with fresh_database(any_postgres_url) as url, connected(url) as connection:
        async with engine(url, batch=50) as app:
            await app.db.upgrade()
        setup = Setup(url=url, connection=connection, costs=Costs(url, connection), params=params)
        with pytest.raises(RuntimeError, match="lazy left"):
            [pair async for pair in joining(handle)(setup)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_scenario_gives_a_table_and_strict_tells_whether_its_aim_is_met(any_postgres_url):
    done = run(any_postgres_url, "--only", "append/raw", "--strict", *SMALL)
    assert "append raw" in done.stdout, done.stderr
    assert "relay/raw" not in done.stdout
    assert done.returncode == (1 if "MISSED" in done.stdout else 0)


async def test_nothing_is_left_on_the_server(private_postgres):
    done = run(private_postgres.dsn, "--only", "append", *SMALL)
    assert done.returncode == 0, done.stderr
    connection = await asyncpg.connect(private_postgres.dsn)
    try:
        left = await connection.fetch("SELECT datname FROM pg_database")
    finally:
        await connection.close()
    assert {row[0] for row in left} == {"postgres", "template0", "template1"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--only", "nothing"), "there is no 'nothing'"),
        (("--only", "append,nothing"), "there is no 'nothing'"),
        (("--bytes", "5"), "at least"),
        (("--repeats", "0"), "at least"),
    ],
)
def test_wrong_options_are_a_usage_error(arguments, complaint):
    done = run("postgresql://nobody@127.0.0.1:1/none", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr


def test_without_a_server_it_says_how_to_get_one():
    done = run(None, "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "dev bench relay" in done.stderr


def check_broker(url, name, **servers):
    done = run(url, "--json", "--only", f"{name},{name}-consume", *SMALL, bench="broker", **servers)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert {series: one["unit"] for series, one in report["series"].items()} == dict.fromkeys(
        [name, f"{name} client", f"{name}-consume", f"{name}-consume client"], "events/s"
    )
    assert [(aim["name"], aim["op"], aim["bar"]) for aim in report["aims"]] == [(f"{name}/client", ">=", BROKERS[name])]
    check_shape(report, "broker")
    costs = (
        "statements_per_event", "commits_per_event", "wal_bytes_per_event", "cpu_us_per_event", "connections",
        "client_cpu_us_per_event",
    )  # fmt: skip
    assert set(report["costs"]) == {f"{prefix}_{cost}" for prefix in (name, f"{name}_consume") for cost in costs}


def check_shape(report, bench):
    """What the agreed JSON looks like, whichever benchmark it is of, and that its numbers belong together."""
    assert list(report) == [
        "bench", "version", "commit", "time", "machine", "params", "series", "ratios", "costs", "aims",
    ]  # fmt: skip
    assert report["bench"] == bench
    assert report["machine"]["database"].startswith("PostgreSQL ")
    assert report["machine"]["settings"]["fsync"] in {"on", "off"}
    for series in report["series"].values():
        low, high = sorted(series["values"])
        assert 0 < low <= series["median"] <= high
    for name, ratio in report["ratios"].items():
        ours, theirs = (report["series"][side]["values"] for side in _sides(name))
        assert ratio["per_repeat"] == pytest.approx([a / b for a, b in zip(ours, theirs, strict=True)], rel=0.01)
    told = {name for name in report["ratios"] if name.endswith("-consume/client")}  # without an aim
    assert {aim["name"] for aim in report["aims"]} == set(report["ratios"]) - told
    for aim in report["aims"]:
        assert aim["value"] == report["ratios"][aim["name"]]["median"]
        assert aim["met"] is (aim["value"] >= aim["bar"] if aim["op"] == ">=" else aim["value"] <= aim["bar"])
    assert all(value > 0 for value in report["costs"].values())


def _sides(ratio: str) -> tuple[str, str]:
    ours, _, theirs = ratio.partition("/")
    if theirs == "dbos":
        return f"{ours} beside dbos", theirs
    return ours, f"{ours} {theirs}" if theirs in {"raw", "client"} else theirs
