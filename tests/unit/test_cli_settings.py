"""`postlude settings`: what is in force, and where it comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from postlude import Settings
from postlude.cli.main import execute
from postlude.settings.keys import keys_of

FILE = """
[postlude]
database = "postgresql://me:s3cret@host/shop?sslpassword=s3cret"
[postlude.lane]
lease = "20s"
[postlude.http]
token = "s3cret"
[postlude.brokers.audit]
url = "memory://"
options = { sasl_password = "s3cret", acks = "all" }
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user stands, with a file and one variable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSTLUDE_DATABASE", raising=False)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    monkeypatch.setenv("POSTLUDE_PAYLOAD__MAX_BYTES", "2MiB")
    (tmp_path / "postlude.toml").write_text(FILE)
    return tmp_path


def asked(capsys: Any, *options: str) -> dict[str, Any]:
    assert execute(["settings", "--json", *options]) == 0
    said = capsys.readouterr().out
    assert "s3cret" not in said
    found: dict[str, Any] = json.loads(said)["settings"]
    return found


def test_programs_get_raw_numbers_and_origins(here: Path, capsys) -> None:
    found = asked(capsys)
    assert found["lane.lease"] == {
        "value": 20, "source": "file", "from": "postlude.toml", "changed": True, "used": True
    }  # fmt: skip
    assert found["payload.max_bytes"]["value"] == 2_097_152
    assert found["payload.max_bytes"]["from"] == "POSTLUDE_PAYLOAD__MAX_BYTES"
    assert found["relay.batch_size"] == {
        "value": 500, "source": "default", "from": "default", "changed": False, "used": True
    }  # fmt: skip
    assert found["database"]["value"] == "postgresql://me@host/shop"
    assert found["http.token"]["value"] == "***"
    assert not found["http.token"]["used"]
    assert found["brokers.audit.options.sasl_password"]["value"] == "***"
    assert found["brokers.audit.options.acks"]["value"] == "all"


def test_every_setting_is_listed(here: Path, capsys) -> None:
    plain = {key.name for key in keys_of(Settings).values() if key.name.lower() == key.name}
    assert plain <= asked(capsys).keys()


def test_people_get_readable_values_and_a_mark_where_they_differ(
    here: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert execute(["settings"]) == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert ["*", "lane.lease", "20s", "postlude.toml"] in lines
    assert ["*", "payload.max_bytes", "2MiB", "POSTLUDE_PAYLOAD__MAX_BYTES"] in lines
    assert ["retention.events_hours", "30d", "default"] in lines
    assert "postlude.toml; not used yet" in said
    assert "7 differ from the default" in said
    assert "s3cret" not in said


def test_only_what_differs(here: Path, capsys) -> None:
    assert set(asked(capsys, "--changed")) == {
        "database", "lane.lease", "payload.max_bytes", "http.token", "brokers.audit.url",
        "brokers.audit.options.sasl_password", "brokers.audit.options.acks",
    }  # fmt: skip


def test_an_app_says_what_it_was_given(here: Path, capsys) -> None:
    (here / "till.py").write_text(
        "from postlude import Postlude\napp = Postlude('sqlite:///till.db', broker='memory://')\n"
    )
    found = asked(capsys, "--app", "till:app")
    assert (found["database"]["value"], found["database"]["source"]) == ("sqlite:///till.db", "argument")
    assert found["broker"]["source"] == "argument"
    assert found["lane.lease"]["source"] == "file"
    assert not (here / "till.db").exists()


def test_as_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSTLUDE_DATABASE", raising=False)
    assert execute(["settings", "--changed"]) == 0
    assert "All are as by default." in capsys.readouterr().out


def test_wrong_settings_are_exit_2_and_all_named(here: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTLUDE_LANES", "0")
    monkeypatch.setenv("POSTLUDE_LANE__STALL", "postgresql://me:s3cret@host/x")
    assert execute(["settings"]) == 2
    said = capsys.readouterr().err
    assert "(from POSTLUDE_LANES)" in said
    assert "(from POSTLUDE_LANE__STALL)" in said
    assert "s3cret" not in said
