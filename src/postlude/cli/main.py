"""`postlude`: the commands put together, and what becomes of their errors.

Exit codes: 0 fine, 1 found trouble or nothing done, 2 usage, 3 cannot reach a server.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version as version_of

import typer

from postlude.cli import (
    audit,
    db,
    destination,
    docs,
    doctor,
    erasure,
    events,
    inbox,
    maintenance,
    operation,
    outbox,
    privacy,
    render,
    run,
    saga,
    settings,
)
from postlude.cli.demo.play import demo
from postlude.cli.options import AsJson
from postlude.errors import (
    BrokerUnavailable,
    ConfigurationError,
    DatabaseUnavailable,
    InvalidId,
    InvalidKey,
    LanesDiffer,
    MissingExtra,
    NaiveDatetime,
    PostludeError,
    SettingsError,
)
from postlude.secrecy import without_secrets

FINE, TROUBLE, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130
DRIVERS = frozenset({"asyncpg", "psycopg", "sqlite3"})
_USAGE = (SettingsError, ConfigurationError, MissingExtra, LanesDiffer, NaiveDatetime, InvalidKey, InvalidId)
_UNREACHABLE = (DatabaseUnavailable, BrokerUnavailable)
NEXT = {
    "schema.missing": "db upgrade",
    "schema.lanes_differ": "db status",
    "database.unavailable": "doctor",
    "database.busy": "doctor",
    "broker.unavailable": "doctor",
    "insight.not_found": "outbox list",
    "operation.running": "operation list",
    "saga.not_found": "saga list",
    "saga.stale_version": "saga list",
    "duty.taken": "maintenance list",
    "settings.invalid": "settings",
}
EXPLAINED = frozenset({"configuration.refused", "settings.bad_url", "append.naive_datetime", "replay.beyond_window"})
"""What the command's own help explains."""

cli = typer.Typer(
    name="postlude",
    help="What runs after your commit: transactional outbox, inbox and sagas.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
cli.command("run")(run.run)
cli.command("demo")(demo)
cli.command("doctor")(doctor.doctor)
cli.command("settings")(settings.settings)
cli.add_typer(db.group, name="db")
cli.add_typer(outbox.group, name="outbox")
cli.add_typer(events.group, name="events")
cli.add_typer(inbox.group, name="inbox")
cli.add_typer(saga.group, name="saga")
cli.add_typer(erasure.group, name="erasure")
cli.add_typer(destination.group, name="destination")
cli.add_typer(operation.group, name="operation")
cli.add_typer(maintenance.group, name="maintenance")
cli.add_typer(privacy.group, name="privacy")
cli.add_typer(audit.group, name="audit")
cli.add_typer(docs.group, name="docs")


@cli.command()
def version(*, json: AsJson = False) -> None:
    """Which Postlude this is."""
    found = version_of("postlude")
    if json:
        render.json({"version": found})
    else:
        render.say(f"postlude {found}")


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = execute(given)
    sys.stdout.flush()
    sys.exit(code)


def execute(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code."""
    as_json = "--json" in arguments
    try:
        code = cli(list(arguments), prog_name="postlude", standalone_mode=False)
    except PostludeError as error:
        following = next_command(error, arguments)
        render.error(error.code, str(error.args[0]), error.hint, as_json=as_json, next_command=following)
        return exit_code(error)
    except (KeyboardInterrupt, asyncio.CancelledError, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last place where anything can be said about it
        return _unforeseen(error, as_json=as_json)
    return code if isinstance(code, int) else FINE


def exit_code(error: PostludeError) -> int:
    if isinstance(error, _USAGE):
        return USAGE
    return UNREACHABLE if isinstance(error, _UNREACHABLE) else TROUBLE


def next_command(error: PostludeError, arguments: Sequence[str]) -> str | None:
    """What to type next, on the same app or database unless that would repeat a password. A hint may be just that."""
    if error.hint.startswith("postlude "):
        return " ".join([error.hint, *_where(arguments)])
    if error.code in NEXT:
        return " ".join(["postlude", NEXT[error.code], *_where(arguments)])
    if error.code not in EXPLAINED:
        return None
    verbs = list(itertools.takewhile(lambda word: not word.startswith("-"), arguments))[:2]
    return " ".join(["postlude", *(verb for verb in verbs if verb.isalpha()), "--help"])


def _where(arguments: Sequence[str]) -> list[str]:
    given = [word for pair in itertools.pairwise(arguments) if pair[0] in {"--app", "--database"} for word in pair]
    return given if all(without_secrets(word) == word for word in given) else []


def _unforeseen(error: Exception, *, as_json: bool) -> int:
    """Typer's own complaints about the command line, a database's, and bugs; only the latter get a traceback."""
    complaint = getattr(error, "format_message", None)
    if complaint is None and type(error).__module__.partition(".")[0] in DRIVERS:
        hint = "The database refuses; check the URL and the rights of its user."
        render.error("database.refused", f"{type(error).__name__}: {error}", hint, as_json=as_json)
        return TROUBLE
    if complaint is None:
        sys.stderr.write(without_secrets(traceback.format_exc()))
        if as_json:
            render.error("unforeseen", f"{type(error).__name__}: {error}", "Please report this.", as_json=True)
        return TROUBLE
    if isinstance(message := getattr(error, "message", None), str):
        error.message = without_secrets(message)  # type: ignore[attr-defined]  # it repeats what was typed, URLs too
    if as_json:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "postlude"
        render.error("usage", complaint(), f"{command} --help", as_json=True)
    else:
        error.show()  # type: ignore[attr-defined]  # every complaint of Typer can show itself
    return int(getattr(error, "exit_code", USAGE))


if __name__ == "__main__":
    main()
