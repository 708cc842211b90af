"""No command shows a password, whatever goes wrong: host, port, user, URL, settings, a bug in the user's module."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer

from postlude.cli.main import cli, execute

MARK = "s3cret"
ID = "0190a0a0-0000-7000-8000-000000000001"
ARGUMENTS = {"event_id": [ID], "name": ["default"], "ids": [ID], "event_ids": [ID]}
OPTIONS = {"pending": "discard"}
FAILING = {
    "a port where nobody listens": f"postgresql://me:{MARK}@127.0.0.1:1/shop",
    "a port that is no number": f"postgresql://me:{MARK}@127.0.0.1:port/shop",
    "an unescaped password": f"postgresql://me:1/{MARK}@127.0.0.1/shop",
    "a password in the query": f"postgresql://127.0.0.1:1/shop?password={MARK}&sslpassword={MARK}",
    "another database": f"mysql://me:{MARK}@127.0.0.1/shop",
    "a file with a password": f"sqlite://me:{MARK}@host/shop.db",
    "no URL at all": f"me:{MARK}@host",
}


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from _commands(child, (*path, name))
    else:
        yield path, command


def _line(path: tuple[str, ...], command: Any) -> list[str]:
    """The command with something for whatever it cannot do without."""
    line = [*path]
    for parameter in command.params:
        if parameter.param_type_name == "argument" and parameter.name != "reference":
            line += ARGUMENTS.get(parameter.name, [ID])
        elif parameter.required:
            line += [parameter.opts[0], OPTIONS.get(parameter.name, "mira")]
    return line


COMMANDS = {" ".join(path): _line(path, command) for path, command in _commands(typer.main.get_command(cli))}
ON_A_DATABASE = [
    name
    for path, command in _commands(typer.main.get_command(cli))
    if any("--database" in parameter.opts for parameter in command.params)
    for name in [" ".join(path)]
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POSTLUDE_DATABASE", raising=False)
    return tmp_path


def test_the_commands_that_take_a_database_are_all_here() -> None:
    assert len(ON_A_DATABASE) > 12
    assert {"doctor", "demo", "db upgrade", "outbox list", "events show"} <= set(ON_A_DATABASE)


@pytest.mark.parametrize("url", FAILING.values(), ids=FAILING)
@pytest.mark.parametrize("name", ON_A_DATABASE)
def test_a_command_that_fails_shows_no_password(name: str, url: str, here: Path, capfd) -> None:
    for options in ([], ["--json"]):
        code = execute([*COMMANDS[name], "--database", url, *options])
        said = capfd.readouterr()
        assert code in {2, 3} or name == "db sql"
        assert MARK not in said.out + said.err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_misunderstood_does_not_repeat_a_password(name: str, here: Path, capfd) -> None:
    for options in ([], ["--json"]):
        assert execute([*COMMANDS[name], f"postgresql://me:{MARK}@host/x", *options]) == 2
        said = capfd.readouterr()
        assert "postgresql://me@host/x" in said.out + said.err or "valid UUID" in said.out + said.err
        assert MARK not in said.out + said.err


@pytest.mark.parametrize("name", ["doctor", "settings", "outbox stats", "demo", "db sql"])
def test_settings_that_are_wrong_do_not_repeat_a_password(
    name: str, here: Path, capfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTLUDE_LANES", f"postgresql://me:{MARK}@host/x")
    monkeypatch.setenv("POSTLUDE_DATABASE", f"me:{MARK}@host")
    monkeypatch.setenv("POSTLUDE_HTTP__TOKENS", MARK)
    if name != "demo":  # which has settings of its own
        assert execute(COMMANDS[name]) == 2
    said = capfd.readouterr()
    assert MARK not in said.out + said.err


@pytest.mark.postgres
@pytest.mark.parametrize("name", ["doctor", "db status", "outbox stats"])
def test_a_user_that_the_server_refuses_is_named_without_the_password(
    name: str, any_postgres_url: str, here: Path, capfd
) -> None:
    server = urlsplit(any_postgres_url)
    url = f"postgresql://nobody_at_all:{MARK}@{server.hostname}:{server.port}{server.path}"
    assert execute([*COMMANDS[name], "--database", url]) == 3
    said = capfd.readouterr()
    assert "nobody_at_all" in said.err
    assert MARK not in said.out + said.err


MODULES = {
    "a server that is not there": f"app = Postlude('postgresql://me:{MARK}@127.0.0.1:1/shop')",
    "a host that is not there": f"app = Postlude('postgresql://me:{MARK}@no-such-host.invalid/shop')",
    "a bad port": f"app = Postlude('postgresql://me:{MARK}@127.0.0.1:x/shop')",
    "a bad broker": f"app = Postlude('sqlite:///x.db', broker='pigeon://me:{MARK}@loft'); app.broker()",
    "a bug": f"raise RuntimeError('no postgresql://me:{MARK}@host/shop')",
}


UNREACHABLE = {"a server that is not there", "a host that is not there"}


@pytest.mark.parametrize("trouble", MODULES)
@pytest.mark.parametrize("options", [[], ["--once"], ["--workers", "2"]], ids=["run", "once", "workers"])
def test_run_shows_no_password(trouble: str, options: list[str], here: Path) -> None:
    if trouble in UNREACHABLE and "--workers" in options:
        # Children come back for as long as the server is away, so that it would not end: look at what one child says.
        options = ["--parent", str(os.getpid())]
    (here / "till.py").write_text(f"from postlude import Postlude\n{MODULES[trouble]}\n")
    environ = {**os.environ, "POSTLUDE_LOG__LEVEL": "debug"}
    command = [sys.executable, "-m", "postlude.cli.main", "run", "till:app", *options]
    ran = subprocess.run(command, cwd=here, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == (3 if trouble in UNREACHABLE else 2)
    assert ran.stderr
    assert MARK not in ran.stdout + ran.stderr
