"""Where settings come from, names that do not exist, values that do not go together, and what is never shown."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from postlude import BadUrl, Postlude, Settings, SettingsError
from postlude.connections import open_broker, open_store
from postlude.settings.keys import keys_of
from postlude.settings.naming import ELSEWHERE
from postlude.settings.tables import LaneSettings, RelaySettings
from postlude.testing.clock import ManualClock


def load(directory: Path, environ: dict[str, str] | None = None, **arguments: Any) -> Settings:
    return Settings.load(environ or {}, directory, **arguments)


def refused(directory: Path, environ: dict[str, str] | None = None, **arguments: Any) -> SettingsError:
    with pytest.raises(SettingsError) as error:
        load(directory, environ, **arguments)
    return error.value


# ------------------------------------------------------------ sources


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
    paths = [("schema",), ("source",), ("relay", "batch_size"), ("relay", "poll_max_ms"), ("lanes",)]
    found = [str(settings.origin(path)) for path in paths]
    assert found == ["postlude.toml", "POSTLUDE_SOURCE", "argument", "postlude.toml", "default"]


def test_pyproject_has_a_table_too_and_the_own_file_comes_first(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.postlude]\nschema = 'project'\n[tool.other]\nx = 1\n")
    assert load(tmp_path).schema == "project"
    assert str(load(tmp_path).origin(("schema",))) == "pyproject.toml"
    (tmp_path / "postlude.toml").write_text("[postlude]\nschema = 'own'\n")
    assert load(tmp_path).schema == "own"


def test_an_empty_variable_and_other_variables_say_nothing(tmp_path: Path) -> None:
    environ = {"POSTLUDE_DATABASE": "", "OTHER": "x", "POSTLUDE_TEST_POSTGRES": "not ours", "POSTLUDE_BENCH_X": "y"}
    assert load(tmp_path, environ) == Settings()


def test_an_argument_that_is_none_says_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, {"POSTLUDE_LANES": "8"}, lanes=None, relay={"batch_size": None}, log={}).lanes == 8


def test_a_table_may_be_given_as_a_struct(tmp_path: Path) -> None:
    settings = load(tmp_path, {"POSTLUDE_RELAY__POLL_MAX_MS": "99"}, relay=RelaySettings(batch_size=3))
    assert (settings.relay.batch_size, settings.relay.poll_max_ms) == (3, 99)


def test_origins_are_no_part_of_the_values(tmp_path: Path) -> None:
    settings = load(tmp_path, {"POSTLUDE_LANES": "8"})
    assert settings == Settings(lanes=8)
    assert "origins" not in msgspec.structs.asdict(settings)
    assert copy.deepcopy(settings) == settings
    assert str(Settings(lanes=8).origin(("lanes",))) == "argument"
    with pytest.raises(AttributeError):
        settings.schema = "other"  # type: ignore[misc]  # that it must not


def test_a_value_that_equals_the_default_still_has_an_origin(tmp_path: Path) -> None:
    settings = load(tmp_path, {"POSTLUDE_RELAY__BATCH_SIZE": "500"}).having(schema="shop")
    assert str(settings.origin(("relay", "batch_size"))) == "POSTLUDE_RELAY__BATCH_SIZE"


def test_what_an_app_is_given_is_part_of_its_settings(tmp_path: Path) -> None:
    given = load(tmp_path, {"POSTLUDE_DATABASE": "sqlite:///a.db", "POSTLUDE_LANES": "8"})
    settings = Postlude("sqlite:///b.db", brokers={"audit": "memory://"}, settings=given).settings
    assert (settings.database, settings.lanes) == ("sqlite:///b.db", 8)
    assert settings.broker_urls() == {"audit": "memory://"}
    origins = [str(settings.origin(path)) for path in [("database",), ("brokers", "audit", "url"), ("lanes",)]]
    assert origins == ["argument", "argument", "POSTLUDE_LANES"]


def test_settings_made_by_hand_are_checked_by_the_app() -> None:
    with pytest.raises(SettingsError, match=r"lane\.lease must be .* not -1"):
        Postlude("sqlite:///a.db", settings=Settings(lane=LaneSettings(lease=-1)))
    with pytest.raises(SettingsError, match="relay"):
        Settings(relay=5).validate()  # type: ignore[arg-type]  # that is the mistake


# ------------------------------------------------------------ names of the user's


def test_brokers_are_urls_or_tables(tmp_path: Path) -> None:
    (tmp_path / "postlude.toml").write_text(
        "[postlude.brokers]\nplain = 'memory://'\n[postlude.brokers.audit]\nurl = 'memory://'\n"
        "[postlude.brokers.audit.options]\nacks = 'all'\ntls = { verify = true }\n"
    )
    settings = load(tmp_path, {"POSTLUDE_BROKERS__PLAIN": "kafka://h", "POSTLUDE_BROKERS__AUDIT__OPTIONS__ACKS": "1"})
    assert settings.broker_urls() == {"plain": "kafka://h", "audit": "memory://"}
    assert settings.brokers["audit"].options == {"acks": "1", "tls": {"verify": True}}


def test_the_default_broker_may_have_options_too(tmp_path: Path) -> None:
    settings = load(tmp_path, broker="memory://", brokers={"default": {"options": {"acks": "all"}}})
    assert settings.broker_urls() == {"default": "memory://"}
    assert "no url" in str(refused(tmp_path, brokers={"other": {"options": {"acks": "all"}}}))


def test_a_type_s_retry_differs_only_in_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "postlude.toml").write_text(
        '[postlude.retry]\nmax_attempts = 7\n[postlude.retry.types."order.placed"]\nbase_delay_seconds = 9\n'
    )
    policy = load(tmp_path).retry.policies()["order.placed"]
    assert (policy.max_attempts, policy.base_delay, policy.multiplier) == (7, 9, 2)


@pytest.mark.parametrize("in_file", [True, False])
def test_a_type_is_spelled_with_underscores_in_the_environment(tmp_path: Path, in_file: bool) -> None:
    if in_file:
        (tmp_path / "postlude.toml").write_text('[postlude.retry.types."order.placed"]\nbase_delay_seconds = 9\n')
    settings = load(tmp_path, {"POSTLUDE_RETRY__TYPES__ORDER_PLACED__MAX_ATTEMPTS": "3"})
    policies = settings.retry.policies()
    assert policies["order.placed"].max_attempts == 3
    assert policies["order.placed"].base_delay == (9 if in_file else 2)
    assert "order.cancelled" not in policies
    assert list(policies) == ["order.placed" if in_file else "order_placed"]
    assert len(policies) == 1


def test_a_name_written_out_is_not_confused_with_one_that_is_spelled_like_it(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        {"POSTLUDE_RETRY__TYPES__ORDER_PLACED__MAX_ATTEMPTS": "3"},
        retry={"types": {"order.placed": {"max_attempts": 5}}},
    )
    policies = settings.retry.policies()
    assert (policies["order.placed"].max_attempts, policies["order-placed"].max_attempts) == (5, 3)


# ------------------------------------------------------------ names that do not exist


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"relay": {"batchsize": 1}}, "Did you mean relay.batch_size?"),
        ({"databse": "sqlite:///x.db"}, "Did you mean database?"),
        (
            {"relais": {"batch_size": 1}},
            "batch_size belongs in relay or consumer: relay.batch_size or consumer.batch_size.",
        ),
        ({"retry": {"types": {"a.b": {"max_attempt": 1}}}}, 'Did you mean retry.types."a.b".max_attempts?'),
        ({"calls": {"retries": {"max_attempts": 1}}}, "Did you mean calls.retry.max_attempts?"),
        ({"batch_size": 1}, "batch_size belongs in relay or consumer: relay.batch_size or consumer.batch_size."),
        ({"lease": 1}, "lease belongs in lane: lane.lease."),
        ({"handler": {"lease": 1}}, "lease belongs in lane: lane.lease."),
        ({"timeout": 1}, "timeout belongs in handler or optimistic: handler.timeout or optimistic.timeout."),
        ({"brokers": {"audit": {"uri": "memory://"}}}, "Did you mean brokers.audit.url?"),
        ({"relay": {"batch_size": {"a": 1}}}, "Set relay.batch_size itself."),
        ({"zzz": 1}, "`postlude settings` lists all there are."),
        ({"zzz": {}}, "`postlude settings` lists all there are."),
    ],
)
def test_a_name_that_does_not_exist_names_the_one_that_was_meant(
    tmp_path: Path, arguments: dict[str, Any], hint: str
) -> None:
    error = refused(tmp_path, **arguments)
    assert error.code == "settings.invalid"
    assert error.hint == hint


@pytest.mark.parametrize(
    "name",
    ["POSTLUDE_RELAY__BATCHSIZE", "POSTLUDE_RELAY_BATCH_SIZE", "POSTLUDE_BATCH_SIZE", "POSTLUDE_MESSAGES_PER_TICK"],
)
def test_a_variable_names_the_variable(tmp_path: Path, name: str) -> None:
    error = refused(tmp_path, {name: "5"})
    assert error.args[0] == f"there is no setting {name}"
    assert "POSTLUDE_RELAY__BATCH_SIZE (relay.batch_size)" in error.hint


@pytest.mark.parametrize("word", ELSEWHERE)
@pytest.mark.parametrize("table", [None, "relay", "retry"])
def test_a_word_of_another_system_names_ours(tmp_path: Path, word: str, table: str | None) -> None:
    hint = refused(tmp_path, **({word: 1} if table is None else {table: {word: 1}})).hint
    assert hint.startswith(f"{word} is called ")
    assert all(key in hint for key in ELSEWHERE[word])


def test_the_words_of_other_systems_lead_to_settings_that_exist() -> None:
    known = {key.name for key in keys_of(Settings).values()}
    assert {key for keys in ELSEWHERE.values() for key in keys} <= known
    assert known.isdisjoint(ELSEWHERE)


# ------------------------------------------------------------ values that make no sense


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"relay": {"poll_min_ms": 300}}, "relay.poll_min_ms = 300 (given as an argument) is more than"),
        ({"relay": {"poll_max_ms": 1}}, "is more than relay.poll_max_ms = 1 (given as an argument)"),
        ({"pool": {"min": 20}}, "pool.min = 20 (given as an argument) is more than pool.max = 10 (the default)"),
        ({"retry": {"base_delay_seconds": "2h"}}, "retry.base_delay_seconds = 7200"),
        ({"retry": {"types": {"a.b": {"max_backoff_seconds": 1}}}}, 'retry.types."a.b".max_backoff_seconds = 1'),
        ({"calls": {"retry": {"max_backoff_seconds": 1}}}, "calls.retry.max_backoff_seconds = 1"),
        ({"inbox": {"retention_hours": 24}}, "inbox.replay_window_hours = 720 (the default) is more than"),
        ({"lane": {"stall": 1}}, "lane.stall = 1 (given as an argument) is less than two signs of life"),
        ({"relay": 5}, "relay is a table of settings and has no value of its own"),
        ({"databases": "sqlite:///x.db"}, "databases is a table of settings"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_hint(tmp_path: Path, arguments: dict[str, Any], sentence: str) -> None:
    error = refused(tmp_path, **arguments)
    assert sentence in error.args[0]
    assert error.hint


def test_a_short_lease_may_have_a_short_stall_and_for_ever_is_long_enough(tmp_path: Path) -> None:
    load(tmp_path, lane={"lease": 0.5, "stall": 0.2}, inbox={"retention_hours": 0})


def test_a_window_that_is_longer_than_the_inbox_remembers_is_refused_with_its_origins(tmp_path: Path) -> None:
    (tmp_path / "postlude.toml").write_text("[postlude.inbox]\nretention_hours = '7d'\n")
    error = refused(tmp_path, {"POSTLUDE_INBOX__REPLAY_WINDOW_HOURS": "8d"}, pool={"min": 20})
    assert "2 settings are wrong" in error.args[0]
    assert (
        "inbox.replay_window_hours = 192 (from POSTLUDE_INBOX__REPLAY_WINDOW_HOURS) is more than "
        "inbox.retention_hours = 168 (from postlude.toml)" in error.args[0]
    )


@pytest.mark.parametrize(("window", "retention"), [(168, 168), (24, 168), (0, 168), (9000, 0), (0, 0)])
def test_a_window_within_what_the_inbox_remembers_is_fine(tmp_path: Path, window: int, retention: int) -> None:
    loaded = load(tmp_path, inbox={"replay_window_hours": window, "retention_hours": retention})
    assert (loaded.inbox.replay_window_hours, loaded.inbox.retention_hours) == (window, retention)


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "postlude.toml").write_text("[postlude]\nmessages_per_tick = 3\n[postlude.lane]\nlease = 'soon'\n")
    environ = {"POSTLUDE_POOL__MIN": "99", "POSTLUDE_LANES": "0"}
    error = refused(tmp_path, environ, relay={"batch_size": 0, "poll_min_ms": 900})
    first, *lines = error.args[0].splitlines()
    assert first == "6 settings are wrong:"
    assert [next(word for word in line.split() if "_" in word or "lane" in word or "pool" in word) for line in lines] == [
        "messages_per_tick", "lane.lease", "lanes", "relay.batch_size", "relay.poll_min_ms", "pool.min"
    ]  # fmt: skip
    assert "messages_per_tick is called relay.batch_size here." in error.args[0]


def test_a_value_that_was_refused_is_not_compared_with_others(tmp_path: Path) -> None:
    assert "settings are wrong" not in str(refused(tmp_path, pool={"min": 20, "max": -1}))
    assert "settings are wrong" not in str(refused(tmp_path, lane={"lease": "soon", "stall": 0.1}))


@pytest.mark.parametrize(
    "text",
    [
        "postlude = 5\n",
        "[postlude\n",
        "[postlude]\nschema = \n",
        "[postlude]\nrelay = 'x'\n",
        "[relay]\nbatch_size = 5\n",
        "database = 'sqlite:///x.db'\n[postlude]\n",
    ],
)
def test_a_file_that_is_wrong_is_a_settings_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "postlude.toml").write_text(text)
    error = refused(tmp_path)
    assert error.hint
    assert "postlude.toml" in str(error)


def test_a_file_that_is_no_text_is_a_settings_error(tmp_path: Path) -> None:
    (tmp_path / "postlude.toml").write_bytes(b"\xff\xfe")
    assert "postlude.toml is not valid TOML" in str(refused(tmp_path))


def test_a_group_cannot_be_a_value_in_the_environment(tmp_path: Path) -> None:
    error = refused(tmp_path, {"POSTLUDE_RELAY": "fast", "POSTLUDE_RELAY__BATCH_SIZE": "5"})
    assert "(from POSTLUDE_RELAY)" in str(error)


# ------------------------------------------------------------ secrets and URLs


def test_no_repr_shows_a_secret(tmp_path: Path) -> None:
    url = "postgresql://me:s3cret@host/shop?sslpassword=s3cret"
    settings = load(
        tmp_path,
        database=url,
        databases={"other": url},
        broker="kafka://me:s3cret@host",
        brokers={
            "audit": {"url": "nats://me:s3cret@host", "options": {"sasl_password": "s3cret", "x": {"token": "s3cret"}}}
        },
        http={"token": "s3cret"},
    )
    app = Postlude(settings=settings)
    assert "s3cret" not in f"{settings!r} {settings} {list(settings.__rich_repr__())!r} {settings.http!r} {app!r}"
    assert settings.http.token == "s3cret"
    assert "host" in repr(settings)


def test_a_secret_in_the_wrong_place_is_not_repeated(tmp_path: Path) -> None:
    url = "postgresql://me:s3cret@host/shop"
    error = refused(
        tmp_path, {"POSTLUDE_LANES": url}, database="me:s3cret@host", http={"token": 7777}, schema=url, relay=url
    )
    assert "s3cret" not in f"{error!r} {error}"
    assert "7777" not in str(error)


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
    with pytest.raises(BadUrl) as error:
        open_store(url, Settings(), ManualClock())
    assert error.value.code == "settings.bad_url"
    assert error.value.hint
    assert "secret" not in str(error.value)


def test_urls_alone_being_wrong_is_an_error_of_its_own(tmp_path: Path) -> None:
    assert isinstance(refused(tmp_path, database="a.db", broker="b"), BadUrl)
    assert not isinstance(refused(tmp_path, database="a.db", lanes=0), BadUrl)


@pytest.mark.parametrize("url", ["", "memory", "carrier-pigeon://loft"])
def test_a_bad_broker_url_is_refused(url: str) -> None:
    with pytest.raises(BadUrl) as error:
        open_broker(url)
    assert error.value.hint


@pytest.mark.parametrize(
    "url", ["postgresql://h/d", "postgres://h/d", "postgresql+asyncpg://h/d", "postgresql+psycopg2://h/d"]
)
def test_urls_of_other_drivers_name_the_same_database(url: str) -> None:
    assert open_store(url, Settings(), ManualClock()).dialect == "postgres"
