from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postlude import BadUrl, Settings, SettingsError
from postlude.connections import open_broker, open_store, redacted
from postlude.testing.clock import ManualClock


def load(directory: Path, environ: dict[str, str] | None = None, **arguments: Any) -> Settings:
    return Settings.load(environ or {}, directory, **arguments)


def test_the_defaults_are_those_of_the_reference(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert (settings.database, settings.broker, settings.schema, settings.lanes) == (None, None, "public", None)
    assert (settings.relay.batch_size, settings.relay.poll_min_ms, settings.relay.poll_max_ms) == (500, 5, 250)
    assert (settings.lane.lease, settings.lane.stall, settings.handler.timeout) == (15, 60, 300)
    assert (settings.order.on_dead, settings.payload.max_bytes) == ("skip", 1_048_576)
    assert (settings.pool.min, settings.pool.max, settings.pool.command_timeout) == (1, 10, 60)
    assert (settings.worker.shutdown_timeout, settings.retention.events_hours) == (30, 720)
    assert (settings.retention.dead_hours, settings.retention.interval) == (0, 3600)
    policy = settings.retry.policy()
    assert (policy.max_attempts, policy.base_delay, policy.multiplier) == (10, 2, 2)
    assert (policy.max_delay, policy.jitter) == (3600, 0.25)
    assert (settings.log.level, settings.log.format) == ("info", "plain")


def test_arguments_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    (tmp_path / "postlude.toml").write_text(
        "[postlude]\nschema = 'file'\nsource = 'file'\n[postlude.relay]\nbatch_size = 1\npoll_max_ms = 100\n"
    )
    environ = {"POSTLUDE_SOURCE": "environment", "POSTLUDE_RELAY__BATCH_SIZE": "2"}
    settings = load(tmp_path, environ, relay={"batch_size": 3})
    assert (settings.schema, settings.source) == ("file", "environment")
    assert (settings.relay.batch_size, settings.relay.poll_max_ms) == (3, 100)
    assert load(tmp_path, environ).relay.batch_size == 2
    assert load(tmp_path).relay.batch_size == 1


def test_pyproject_has_a_table_too_and_the_own_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.postlude]\nschema = 'project'\n[tool.other]\nx = 1\n")
    assert load(tmp_path).schema == "project"
    (tmp_path / "postlude.toml").write_text("[postlude]\nschema = 'own'\n")
    assert load(tmp_path).schema == "own"


def test_the_environment_is_text_and_becomes_numbers(tmp_path: Path) -> None:
    environ = {"POSTLUDE_LANES": "8", "POSTLUDE_LANE__LEASE": "2.5", "POSTLUDE_BROKERS__AUDIT": "memory://"}
    settings = load(tmp_path, environ | {"OTHER": "x", "POSTLUDE_TEST_POSTGRES": "not ours"})
    assert (settings.lanes, settings.lane.lease, settings.brokers) == (8, 2.5, {"audit": "memory://"})


def test_a_type_s_retry_differs_only_in_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "postlude.toml").write_text(
        '[postlude.retry]\nmax_attempts = 7\n[postlude.retry.types."order.placed"]\nbase_delay_seconds = 9\n'
    )
    policy = load(tmp_path).retry.policies()["order.placed"]
    assert (policy.max_attempts, policy.base_delay, policy.multiplier) == (7, 9, 2)


@pytest.mark.parametrize(
    "arguments",
    [
        {"relay": {"batch_size": 0}},
        {"relay": {"batch_size": "many"}},
        {"relay": {"batchsize": 1}},
        {"relay": {"poll_min_ms": 300}},
        {"relay": 5},
        {"lanes": 0},
        {"lanes": 2000},
        {"lane": {"lease": -1}},
        {"pool": {"min": 20}},
        {"order": {"on_dead": "explode"}},
        {"retry": {"max_attempts": 0}},
        {"retry": {"jitter_factor": 2}},
        {"retry": {"types": {"order.placed": {"multiplier": 2}}}},
        {"retry": {"types": {"order.placed": {"max_attempts": 0}}}},
        {"payload": {"max_bytes": -5}},
        {"nonsense": 1},
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, **arguments)
    assert refused.value.code == "settings.invalid"
    assert refused.value.hint


def test_the_hint_names_the_setting_that_was_meant(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, relay={"batchsize": 1})
    assert refused.value.hint == "There is no setting relay.batchsize. Did you mean relay.batch_size?"


@pytest.mark.parametrize(
    "text", ["postlude = 5\n", "[postlude\n", "[postlude]\nschema = \n", "[postlude]\nrelay = 'x'\n"]
)
def test_a_file_that_is_wrong_is_a_settings_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "postlude.toml").write_text(text)
    with pytest.raises(SettingsError) as refused:
        load(tmp_path)
    assert refused.value.hint


def test_a_group_cannot_be_a_value_in_the_environment(tmp_path: Path) -> None:
    with pytest.raises(SettingsError):
        load(tmp_path, {"POSTLUDE_RELAY": "fast", "POSTLUDE_RELAY__BATCH_SIZE": "5"})


def test_settings_do_not_change_afterwards(tmp_path: Path) -> None:
    settings = load(tmp_path)
    with pytest.raises(AttributeError):
        settings.schema = "other"  # type: ignore[misc]  # that it must not


@pytest.mark.parametrize(
    "url",
    [
        "",
        "shop.db",
        "sqlite://host/shop.db",
        "sqlite:///:memory:",
        "sqlite:///",
        "mysql://localhost/shop",
        "postgresql://localhost:port/shop",
        "postgresql://user:secret@localhost:0/shop",
        "://x",
    ],
)
def test_a_bad_database_url_is_refused_and_shows_no_password(url: str) -> None:
    with pytest.raises(BadUrl) as refused:
        open_store(url, Settings(), ManualClock())
    assert refused.value.code == "settings.bad_url"
    assert refused.value.hint
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["", "memory", "carrier-pigeon://loft"])
def test_a_bad_broker_url_is_refused(url: str) -> None:
    with pytest.raises(BadUrl) as refused:
        open_broker(url)
    assert refused.value.hint


@pytest.mark.parametrize(
    "url", ["postgresql://h/d", "postgres://h/d", "postgresql+asyncpg://h/d", "postgresql+psycopg2://h/d"]
)
def test_urls_of_other_drivers_name_the_same_database(url: str) -> None:
    assert open_store(url, Settings(), ManualClock()).dialect == "postgres"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pa%3Ass@host:5432/shop?password=x", "postgresql://me@host:5432/shop"),
        ("sqlite:////var/shop.db", "sqlite:////var/shop.db"),
        ("postgresql://me:p@ss@host/shop", "postgresql://me@host/shop"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert redacted(url) == shown
