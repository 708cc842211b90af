"""What `doctor` makes of what it found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from postlude.cli import checks
from postlude.cli.checks import Facts, Finding
from postlude.insight.consumers import ConsumerView
from postlude.insight.views import DestinationView
from postlude.ports.operating import Operation
from postlude.ports.ownership import LiveWorker
from postlude.ports.records import Filter
from postlude.ports.upkeep import SchemaStatus, TableUse
from postlude.settings import Settings

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SERVER = {"version": "16", "now": NOW, "max_connections": 100, "partitions_ahead_days": 14, "standby": False}
HEALTHY = Facts(
    dialect="postgres",
    server=SERVER,
    settings=Settings(),
    has_memory_broker=False,
    destinations=[],
    workers=[],
    unserved={},
    asked_at=NOW,
    answered_at=NOW,
)


OPERATION = Operation(id=uuid4(), action="requeue", filter=Filter(), actor="ann", reason="x", total=9, done=3)


def _facts(**changes: Any) -> Facts:
    return msgspec.structs.replace(HEALTHY, **changes)


def _worker(*destinations: str) -> LiveWorker:
    return LiveWorker(uuid4(), "host:1", "0.1.0", NOW, stopping=False, destinations=destinations, lease_until=NOW)


def _destination(**changes: Any) -> DestinationView:
    given = {"name": "default", "kind": "broker", "open": {}, "oldest_due_seconds": 0.0, "blocked_keys": 0,
             "lanes": 64, "lanes_owned": 64, "crashes": 0}  # fmt: skip
    return DestinationView(**{**given, **changes})


def _consumer(**changes: Any) -> ConsumerView:
    given = {"name": "billing", "received": 9, "duplicates": 0, "ignored": 0, "unreadable": 0, "first_at": NOW}
    return ConsumerView(**{**given, "lag": 3, "lag_age_seconds": 2.0, **changes})


def _statuses(facts: Facts) -> dict[str, str]:
    return {one.check: one.status for one in checks.check_all(facts)}


def test_a_healthy_system_has_no_complaint() -> None:
    facts = _facts(workers=[_worker("default")], destinations=[_destination()])
    assert set(_statuses(facts).values()) == {"ok"}
    assert all(not one.hint for one in checks.check_all(facts))


@pytest.mark.parametrize(
    ("changes", "check", "status"),
    [
        ({}, "workers", "warn"),
        ({"server": {**SERVER, "now": NOW + timedelta(seconds=2)}}, "clock", "warn"),
        ({"server": {**SERVER, "now": NOW - timedelta(seconds=2)}}, "clock", "warn"),
        ({"server": {**SERVER, "now": NOW + timedelta(seconds=2)}, "answered_at": NOW + timedelta(seconds=3)}, "clock", "ok"),
        ({"server": {**SERVER, "standby": True}}, "server", "fail"),
        ({"server": {**SERVER, "partitions_ahead_days": 6}}, "partitions", "warn"),
        ({"server": {**SERVER, "partitions_ahead_days": None}}, "partitions", "warn"),
        ({"server": {**SERVER, "max_connections": 20}}, "pool", "ok"),
        ({"server": {**SERVER, "max_connections": 17}}, "pool", "warn"),
        ({"workers": [_worker()] * 9}, "pool", "fail"),
        ({"settings": Settings.load({}, pool={"max": 4})}, "handlers", "warn"),
        ({"settings": Settings.load({}, pool={"max": 5})}, "handlers", "ok"),
        ({"operations": [OPERATION]}, "operations", "warn"),
        ({"has_memory_broker": True}, "settings", "warn"),
        ({"settings": Settings.load({}, lane={"lease": 1})}, "settings", "warn"),
        ({"settings": Settings.load({}, errors={"keep": "message"})}, "settings", "warn"),
        ({"unserved": {"default": 3}}, "unserved", "warn"),
        ({"destinations": [_destination(open={"dead": 2})]}, "dead letters", "warn"),
        ({"destinations": [_destination(paused_at=NOW, paused_by="ann", reason="x")]}, "paused", "warn"),
        ({"destinations": [_destination(oldest_due_seconds=59.0)]}, "oldest due", "ok"),
        ({"destinations": [_destination(oldest_due_seconds=61.0)]}, "oldest due", "warn"),
        ({"destinations": [_destination(oldest_due_seconds=601.0)]}, "oldest due", "fail"),
        ({"workers": [_worker("default")], "destinations": [_destination(lanes_owned=60)]}, "lanes", "warn"),
        ({"destinations": [_destination(lanes_owned=0)]}, "lanes", "ok"),
        ({"workers": [_worker("consumer:billing")], "consumers": [_consumer()]}, "consumers", "ok"),
        ({"workers": [_worker("consumer:billing")], "consumers": [_consumer(lag_age_seconds=61.0)]}, "consumers", "warn"),
        ({"workers": [_worker("consumer:billing")], "consumers": [_consumer(lag_age_seconds=None)]}, "consumers", "warn"),
        ({"workers": [_worker("consumer:shipping")], "consumers": [_consumer()]}, "consumers", "warn"),
    ],
)  # fmt: skip
def test_each_trouble_is_found_and_comes_with_a_hint(changes: dict[str, Any], check: str, status: str) -> None:
    facts = _facts(**changes)
    assert _statuses(facts)[check] == status
    assert all(one.hint for one in checks.check_all(facts) if one.status != "ok")


def test_the_pool_is_reckoned_for_handlers() -> None:
    (found,) = [one for one in checks.check_all(_facts()) if one.check == "handlers"]
    assert found.message.startswith("pool.max 10 - 3 kept free = 7 transactional handlers at once")


def test_the_largest_tables_are_named() -> None:
    tables = [TableUse("postlude_event", 3 * 1024**2, 900, 14), TableUse("postlude_lane", 1024, 64)]
    (found,) = [one for one in checks.check_all(_facts(tables=tables)) if one.check == "disk"]
    assert found.message == "3.0 MiB: event 3.0 MiB, lane 1.0 KiB"


def test_an_interrupted_operation_names_the_next_command() -> None:
    (found,) = [one for one in checks.check_all(_facts(operations=[OPERATION])) if one.check == "operations"]
    assert (found.message, found.hint.endswith(f"postlude operation resume {OPERATION.id}")) == (
        "1 under way: requeue 3 of 9",
        True,
    )


@pytest.mark.parametrize(("jit", "expected"), [("on", "warn"), ("off", "ok")])
def test_a_pooler_limits_connections_by_itself(jit: str, expected: str) -> None:
    server = _facts().server | {"is_pooled": True, "jit": jit, "max_connections": 5}
    found = _statuses(_facts(server=server))
    assert found["pooler"] == expected
    assert "pool" not in found


def test_an_embedded_database_has_neither_partitions_nor_a_pool() -> None:
    server = {"version": "3.40", "now": NOW, "page_size": 4096, "page_count": 10, "journal_mode": "wal"}
    found = _statuses(_facts(dialect="sqlite", server=server))
    assert found["disk"] == "ok"
    assert not {"partitions", "pool", "server"} & found.keys()


@pytest.mark.parametrize(
    ("status", "problems", "expected"),
    [
        (SchemaStatus(0, 1, ("0001",), None, None), [], "fail"),
        (SchemaStatus(1, 3, ("0002_pre_more", "0003_post_less"), 64, "x"), [], "fail"),
        (SchemaStatus(2, 3, ("0003_post_less",), 64, "x"), [], "warn"),
        (SchemaStatus(1, 1, (), None, None), [], "fail"),
        (SchemaStatus(1, 1, (), 64, "x"), ["index is missing"], "fail"),
        (SchemaStatus(1, 1, (), 64, "x"), [], "ok"),
    ],
    ids=["missing", "pending", "to-be-cleaned-up", "by-hand", "wrong", "well"],
)
def test_the_schema_is_judged(status: SchemaStatus, problems: list[str], expected: str) -> None:
    found: Finding = checks.check_schema(status, problems)
    assert found.status == expected
    assert bool(found.hint) == (expected != "ok")
