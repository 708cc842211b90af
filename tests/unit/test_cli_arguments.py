"""Command lines that are wrong, references to apps that are not there, and the small commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postlude import Postlude
from postlude.cli.loading import load_app, open_app
from postlude.cli.main import execute, exit_code
from postlude.core.lifecycle import mermaid
from postlude.errors import BadUrl, BrokerUnavailable, ConfigurationError, DatabaseUnavailable, NotFound, SchemaMissing


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, where the user stands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSTLUDE_DATABASE", raising=False)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["outbox", "nonsense"],
        ["outbox", "list", "--nonsense"],
        ["outbox", "show"],
        ["outbox", "show", "not-an-id"],
        ["outbox", "list", "--limit", "many"],
        ["destination", "pause", "default"],
        ["demo", "--orders", "0"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_exit_2_for_people_and_programs(arguments: list[str], here, capsys) -> None:
    assert execute(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    assert execute([*arguments, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "usage"
    assert error["hint"].endswith("--help")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], "configuration.refused"),
        (["--database", "mysql://me:s3cret@host/x"], "settings.bad_url"),
        (["--database", "sqlite://me:s3cret@host/x"], "settings.bad_url"),
        (["--database", "postgresql://me:s3cret@host:port/x"], "settings.bad_url"),
        (["--database", "me:s3cret@host"], "settings.bad_url"),
        (["--app", "no_such_module:app"], "configuration.refused"),
        (["--app", "x:y", "--database", "sqlite:///x.db"], "configuration.refused"),
    ],
)
def test_a_wrong_database_or_app_is_exit_2(options: list[str], code: str, here, capsys) -> None:
    assert execute(["outbox", "stats", "--json", *options]) == 2
    said = capsys.readouterr().out
    assert json.loads(said)["error"]["code"] == code
    assert "s3cret" not in said


def test_wrong_settings_are_exit_2(here: Path, capsys) -> None:
    (here / "postlude.toml").write_text("[postlude.relay]\nbatch = 3\n")
    assert execute(["doctor", "--database", "sqlite:///x.db"]) == 2
    assert "relay.batch_size" in capsys.readouterr().err


def test_the_database_may_stand_in_the_file(here: Path) -> None:
    (here / "postlude.toml").write_text('[postlude]\ndatabase = "sqlite:///from_file.db"\n')
    assert execute(["db", "upgrade"]) == 0
    assert (here / "from_file.db").exists()


@pytest.mark.parametrize(
    ("source", "reference", "message"),
    [
        ("x = 1", "{name}:app", "has no 'app'"),
        ("app = 1", "{name}", "is a int, not a Postlude app"),
        ("import no_such_thing", "{name}", "imports no_such_thing, which is not installed"),
        ("1 / 0", "{name}", "ZeroDivisionError"),
        ("app = (", "{name}", "SyntaxError"),
        ("", "{name}.deeper:app", "there is no module"),
        ("", "{name} :app", "is not a reference"),
        ("", ":app", "is not a reference"),
    ],
)
def test_a_reference_that_leads_nowhere_says_where_it_stopped(
    source: str, reference: str, message: str, here: Path, request: pytest.FixtureRequest
) -> None:
    name = f"shop_{abs(hash(request.node.name))}"
    (here / f"{name}.py").write_text(source)
    with pytest.raises(ConfigurationError, match=message) as refused:
        load_app(reference.format(name=name))
    assert refused.value.hint


def test_an_app_is_found_where_the_user_stands(here: Path) -> None:
    (here / "found_shop.py").write_text(
        "from postlude import Postlude\n"
        "class Apps:\n    main = Postlude('sqlite:///a.db')\n"
        "app = Postlude('sqlite:///b.db')\n"
    )
    app = load_app("found_shop")
    assert isinstance(app, Postlude)
    assert load_app("found_shop:app") is app
    assert load_app("found_shop:Apps.main") is not app
    with pytest.raises(ConfigurationError) as refused:
        load_app("found_shop:other")
    assert refused.value.hint == "It has: app."


def test_nothing_but_a_database_makes_an_app(here: Path) -> None:
    assert open_app(None, "sqlite:///x.db").store.dialect == "sqlite"
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BadUrl("x"), 2),
        (ConfigurationError("x"), 2),
        (DatabaseUnavailable("x"), 3),
        (BrokerUnavailable("x"), 3),
        (SchemaMissing("x"), 1),
        (NotFound("x"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_have_exit_codes(error, code: int) -> None:
    assert exit_code(error) == code


def test_version_and_lifecycle(capsys) -> None:
    assert execute(["version", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"version"}
    assert execute(["version"]) == 0
    assert capsys.readouterr().out.startswith("postlude ")
    assert execute(["docs", "lifecycle"]) == 0
    assert capsys.readouterr().out == mermaid() + "\n"
    assert execute(["docs", "lifecycle", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"mermaid": mermaid()}


@pytest.mark.parametrize("command", [[], ["run"], ["outbox", "requeue"], ["events", "export"], ["db", "upgrade"]])
def test_every_command_explains_itself(command: list[str], capsys) -> None:
    assert execute([*command, "--help"]) == 0
    assert "--help" in capsys.readouterr().out


def test_a_bug_is_told_with_its_traceback_and_without_passwords(here, capsys, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("lost postgresql://me:s3cret@host/shop")

    monkeypatch.setattr("postlude.cli.outbox.open_app", broken)
    assert execute(["outbox", "stats", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["error"]["code"] == "unforeseen"
    assert "RuntimeError" in said.err
    assert "s3cret" not in said.out + said.err
