"""The benchmarks run, prove their work and speak the agreed JSON. What they measure is not a matter for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

RELAY = Path(__file__).parents[2] / "benchmarks" / "relay.py"
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


def run(url: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != "POSTLUDE_BENCH_POSTGRES"}
    if url is not None:
        env["POSTLUDE_BENCH_POSTGRES"] = url
    command = [sys.executable, str(RELAY), *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=110)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_relay_reports_every_series_ratio_cost_and_aim(any_postgres_url):
    done = run(any_postgres_url, "--json", *SMALL)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert list(report) == [
        "bench", "version", "commit", "time", "machine", "params", "series", "ratios", "costs", "aims",
    ]  # fmt: skip
    assert report["bench"] == "relay"
    assert report["machine"]["database"].startswith("PostgreSQL ")
    assert report["machine"]["settings"]["fsync"] in {"on", "off"}
    assert report["params"] == {"events": 300, "bytes": 500, "batch": 50, "repeats": 2}
    assert {name: series["unit"] for name, series in report["series"].items()} == UNITS
    for series in report["series"].values():
        low, high = sorted(series["values"])
        assert 0 < low <= series["median"] <= high
    for name, ratio in report["ratios"].items():
        ours, theirs = (report["series"][side]["values"] for side in _sides(name))
        assert ratio["per_repeat"] == pytest.approx([a / b for a, b in zip(ours, theirs, strict=True)], rel=0.01)
    assert {aim["name"]: (aim["op"], aim["bar"]) for aim in report["aims"]} == AIMS
    for aim in report["aims"]:
        assert aim["value"] == report["ratios"][aim["name"]]["median"]
        assert aim["met"] is (aim["value"] >= aim["bar"] if aim["op"] == ">=" else aim["value"] <= aim["bar"])
    assert set(report["costs"]) == {
        "statements_per_event", "commits_per_event", "wal_bytes_per_event", "cpu_us_per_event", "connections",
    }  # fmt: skip
    assert all(value > 0 for value in report["costs"].values())


@pytest.mark.slow
@pytest.mark.timeout(120)
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


def _sides(ratio: str) -> tuple[str, str]:
    ours, _, theirs = ratio.partition("/")
    return ours, f"{ours} raw" if theirs == "raw" else theirs
