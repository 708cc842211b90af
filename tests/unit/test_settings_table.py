"""Every setting, walked by a table: its default, from the file, from the environment, and a value that is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from postlude import Settings, SettingsError
from postlude.settings.keys import keys_of, value_at

NAMES = {"NAME": "audit", "TYPE": "order.placed", "OPTION": "acks"}
"""What stands for the user's own names."""


class Row(NamedTuple):
    key: str
    default: Any
    file: tuple[str, Any]
    """As TOML, and as it is read."""
    environment: tuple[str, Any]
    bad: str | None
    """As TOML."""
    says: str = ""
    besides: Mapping[str, Any] = {}
    """Arguments without which the value makes no sense."""


URL = "a URL such as"
DURATION = 'a duration in seconds, or with a unit (ms, s, m, h, d, w) such as "15s"'
HOURS = "a duration in whole hours, or with a unit"
COUNT = "a whole number, at least 1 and at most"
NUMBER = "a number, at least"
CHOICE = "true or false"
DEAR = {"audit": {"url": "memory://"}}

TABLE = [
    Row("database", None, ('"sqlite:///a.db"', "sqlite:///a.db"), ("postgres://h/d", "postgres://h/d"), '"a.db"', URL),
    Row("databases.NAME", None, ('"sqlite:///a.db"', "sqlite:///a.db"), ("sqlite:///b", "sqlite:///b"), '"a.db"', URL),
    Row("broker", None, ('"memory://"', "memory://"), ("kafka://h", "kafka://h"), '"kafka"', URL),
    Row("brokers.NAME.url", None, ('"memory://"', "memory://"), ("nats://h", "nats://h"), "5", URL),
    Row(
        "brokers.NAME.mode",
        "binary",
        ('"structured"', "structured"),
        ("structured", "structured"),
        '"loose"',
        'one of "binary", "structured"',
        {"brokers": DEAR},
    ),
    Row("brokers.NAME.options.OPTION", None, ("[1, 2]", [1, 2]), ("all", "all"), None, "", {"brokers": DEAR}),
    Row("source", "postlude", ('"shop"', "shop"), ("till", "till"), '" "', "text, and not empty"),
    Row("schema", "public", ('"shop"', "shop"), ("till", "till"), "5", "text, and not empty"),
    Row("lanes", None, ("8", 8), ("1024", 1024), "1025", f"{COUNT} 1024"),
    Row("relay.batch_size", 500, ("100", 100), ("7", 7), '"many"', COUNT),
    Row("relay.poll_min_ms", 5, ('"0.1s"', 100), ("10", 10), "0", "milliseconds"),
    Row("relay.poll_max_ms", 250, ("300", 300), ("1s", 1000), '"soon"', "milliseconds"),
    Row("lane.lease", 15, ('"20s"', 20), ("2.5", 2.5), '"15 parsecs"', DURATION),
    Row("lane.stall", 60, ("90", 90), ("2m", 120), "-1", DURATION),
    Row("handler.timeout", 300, ('"10m"', 600), ("20", 20), "true", DURATION),
    Row("handler.concurrency", 10, ("3", 3), ("4", 4), "1.5", COUNT),
    Row("handler.threads", 10, ("3", 3), ("4", 4), "0", COUNT),
    Row("handler.sqlite_limit", 1, ('"500ms"', 0.5), ("2", 2), "nan", DURATION),
    Row("order.on_dead", "skip", ('"block"', "block"), ("block", "block"), '"explode"', 'one of "skip", "block"'),
    Row("optimistic.enabled", False, ("true", True), ("true", True), '"perhaps"', CHOICE),
    Row("optimistic.timeout", 2, ('"1s"', 1), ("3", 3), "inf", DURATION),
    Row("payload.max_bytes", 1_048_576, ('"512kB"', 512_000), ("2MiB", 2_097_152), '"1 furlong"', "a size in bytes"),
    Row("pool.min", 1, ("0", 0), ("2", 2), "-1", "a whole number, at least 0"),
    Row("pool.max", 10, ("20", 20), ("5", 5), "0", COUNT),
    Row("pool.command_timeout", 60, ('"5m"', 300), ("20", 20), "0", DURATION),
    Row("worker.shutdown_timeout", 30, ('"1m"', 60), ("5", 5), '"1y"', DURATION),
    Row("retry.max_attempts", 10, ("3", 3), ("4", 4), "0", COUNT),
    Row("retry.base_delay_seconds", 2, ('"1m"', 60), ("0", 0), "-1", DURATION),
    Row("retry.backoff_multiplier", 2, ("1.5", 1.5), ("3", 3), "0.5", f"{NUMBER} 1"),
    Row("retry.max_backoff_seconds", 3600, ('"1d"', 86_400), ("60", 60), '"1 d 2 h"', DURATION),
    Row("retry.jitter_factor", 0.25, ("0", 0), ("0.5", 0.5), "2", f"{NUMBER} 0 and at most 1"),
    Row("retry.types.TYPE.max_attempts", None, ("3", 3), ("4", 4), "0", COUNT),
    Row("retry.types.TYPE.base_delay_seconds", None, ('"1m"', 60), ("0", 0), "-1", DURATION),
    Row("retry.types.TYPE.backoff_multiplier", None, ("1.5", 1.5), ("3", 3), "0.5", f"{NUMBER} 1"),
    Row("retry.types.TYPE.max_backoff_seconds", None, ('"1d"', 86_400), ("60", 60), '"x"', DURATION),
    Row("retry.types.TYPE.jitter_factor", None, ("0", 0), ("0.5", 0.5), "-0.1", f"{NUMBER} 0 and at most 1"),
    Row("calls.retry.max_attempts", 8, ("3", 3), ("4", 4), "0", COUNT),
    Row("calls.retry.base_delay_seconds", 30, ('"1m"', 60), ("0", 0), "-1", DURATION),
    Row("calls.retry.backoff_multiplier", 2, ("1.5", 1.5), ("3", 3), "0.5", f"{NUMBER} 1"),
    Row("calls.retry.max_backoff_seconds", 3600, ('"1d"', 86_400), ("60", 60), "[]", DURATION),
    Row("calls.retry.jitter_factor", 0, ("1", 1), ("0.5", 0.5), "2", f"{NUMBER} 0 and at most 1"),
    Row("erasure.deadline_days", 30, ('"2w"', 14), ("7", 7), "0", "a duration in whole days"),
    Row(
        "erasure.pending",
        "publish_first",
        ('"discard"', "discard"),
        ("discard", "discard"),
        '"keep"',
        'one of "publish_first", "discard"',
    ),
    Row("retention.events_hours", 720, ('"7d"', 168), ("0", 0), '"90m"', HOURS),
    Row("retention.receipts_hours", None, ('"7d"', 168), ("0", 0), "-1", HOURS),
    Row("retention.dead_hours", 0, ('"1w"', 168), ("48", 48), "1.5", HOURS),
    Row("retention.interval", 3600, ('"10m"', 600), ("60", 60), "0", DURATION),
    Row("retention.partitions_ahead_days", 14, ('"1w"', 7), ("30", 30), "0", "a duration in whole days"),
    Row("audit.file", None, ('"/var/audit.jsonl"', "/var/audit.jsonl"), ("copy.jsonl", "copy.jsonl"), "5", "text"),
    Row("inbox.retention_hours", 720, ('"60d"', 1440), ("0", 0), '"x"', HOURS),
    Row("inbox.replay_window_hours", 720, ('"7d"', 168), ("0", 0), "-1", HOURS),
    Row("consumer.max_open", 10_000, ("100", 100), ("7", 7), "0", COUNT),
    Row("consumer.batch_size", 500, ("100", 100), ("7", 7), "0", COUNT),
    Row("consumer.start", "earliest", ('"latest"', "latest"), ("latest", "latest"), '"now"', 'one of "earliest", "latest"'),
    Row("consumer.unknown", "ignore", ('"dead"', "dead"), ("dead", "dead"), '"drop"', 'one of "ignore", "dead"'),
    Row("consumers.NAME.group", None, ('"eu"', "eu"), ("us", "us"), "5", "text"),
    Row("consumers.NAME.max_open", None, ("100", 100), ("7", 7), "0", COUNT),
    Row("consumers.NAME.batch_size", None, ("100", 100), ("7", 7), "0", COUNT),
    Row("consumers.NAME.start", None, ('"latest"', "latest"), ("latest", "latest"), '"now"', 'one of "earliest", "latest"'),
    Row("consumers.NAME.unknown", None, ('"dead"', "dead"), ("dead", "dead"), '"drop"', 'one of "ignore", "dead"'),
    Row("errors.keep", None, ('"message"', "message"), ("location", "location"), '"all"', 'one of "location", "message"'),
    Row("privacy.mask", True, ("false", False), ("0", False), '"no"', CHOICE),
    Row("privacy.keys_file", None, ('"/run/keys"', "/run/keys"), ("keys", "keys"), "5", "text"),
    Row("http.address", None, ('":8000"', ":8000"), ("[::1]:80", "[::1]:80"), '"8000"', "an address such as"),
    Row("http.token", None, ('"t0ken"', "t0ken"), ("other", "other"), "12345", "text, and not empty, not '***'"),
    Row("log.level", "info", ('"debug"', "debug"), ("error", "error"), '"loud"', 'one of "debug"'),
    Row("log.format", "plain", ('"json"', "json"), ("json", "json"), '"xml"', 'one of "plain", "json"'),
]  # fmt: skip
ANY_TEXT = {"schema", "http.token", "consumers.NAME.group", "privacy.keys_file", "audit.file"}
"""In the environment everything is text, so that nothing is wrong for these."""
EVERY = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.key)


def path_of(row: Row) -> tuple[str, ...]:
    return tuple(NAMES.get(part, part) for part in row.key.split("."))


def toml(row: Row, value: str) -> str:
    key = ".".join(f'"{part}"' for part in path_of(row))
    return f"[postlude]\n{key} = {value}\n"


def variable(row: Row) -> str:
    return "POSTLUDE_" + "__".join(part.replace(".", "_") for part in path_of(row)).upper()


def test_the_table_is_complete() -> None:
    assert [row.key for row in TABLE] == [key.name for key in keys_of(Settings).values()]


@EVERY
def test_default(row: Row, tmp_path: Path) -> None:
    settings = Settings.load({}, tmp_path, **row.besides)
    assert value_at(settings, path_of(row)) == row.default
    assert settings.origin(path_of(row)).kind == "default"


@EVERY
def test_from_the_file(row: Row, tmp_path: Path) -> None:
    (tmp_path / "postlude.toml").write_text(toml(row, row.file[0]))
    settings = Settings.load({}, tmp_path, **row.besides)
    found = value_at(settings, path_of(row))
    assert (found, type(found) is bool) == (row.file[1], type(row.file[1]) is bool)
    assert found != row.default
    assert str(settings.origin(path_of(row))) == "postlude.toml"


@EVERY
def test_from_the_environment_which_beats_the_file(row: Row, tmp_path: Path) -> None:
    (tmp_path / "postlude.toml").write_text(toml(row, row.file[0]))
    settings = Settings.load({variable(row): row.environment[0]}, tmp_path, **row.besides)
    assert value_at(settings, path_of(row)) == row.environment[1]
    assert str(settings.origin(path_of(row))) == variable(row)


@EVERY
def test_a_bad_value_is_refused_with_its_key_and_where_it_stands(row: Row, tmp_path: Path) -> None:
    if row.bad is None:
        assert row.key == "brokers.NAME.options.OPTION", "options are the adapter's; anything else can be wrong"
        return
    (tmp_path / "postlude.toml").write_text(toml(row, row.bad))
    with pytest.raises(SettingsError) as refused:
        Settings.load({}, tmp_path, **row.besides)
    message, hint = refused.value.args[0], refused.value.hint
    assert path_of(row)[-1] in message
    assert row.says in message
    assert "from postlude.toml" in message
    assert hint
    text = row.bad.strip('"')
    if text.strip() and row.key not in ANY_TEXT:
        with pytest.raises(SettingsError) as refused:
            Settings.load({variable(row): text}, tmp_path.parent, **row.besides)
        assert variable(row) in refused.value.args[0]
