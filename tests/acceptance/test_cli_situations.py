"""Every verb in every situation: exit codes, one JSON document on stdout, and an error that says what to type next."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
import typer

from postlude.cli.main import cli
from tests.acceptance.cli_shop import ONE_OF_EACH, POISON, Answer, InProcess, place
from tests.databases import Databases
from tests.sealing import listed

NOWHERE = "postgresql://me:s3cret@127.0.0.1:1/shop"
NO_ONE = str(uuid4())
WHY = ("--reason", "tests")

FINE, NOTHING, WRONG, AWAY = range(4)
"""Exit codes: all is well, nothing was found or done, the command line is wrong, a server cannot be reached."""

# Verb: what works on a shop with a dead letter {dead} and a sent event, what finds nothing, what is wrong.
VERBS: dict[str, dict[int, list[tuple[str, ...]]]] = {
    "doctor": {FINE: [()], WRONG: [("--nonsense",)]},
    "db upgrade": {FINE: [()], WRONG: [("--phase", "later")]},
    "db status": {FINE: [()], WRONG: [("extra",)]},
    "db verify": {FINE: [()], WRONG: [("extra",)]},
    "outbox stats": {FINE: [()], WRONG: [("extra",)]},
    "outbox list": {
        FINE: [(), ("--status", "dead"), ("--status", "sent", "--destination", "default"), ("--key", "o-1"),
               ("--type", "order.placed", "--since", "2h"), ("--type", "other"), ("--until", "2020-01-01T00:00Z"),
               ("--since", "3d", "--until", "1s"), ("--since", "2020-01-01T00:00:00+02:00"), ("--limit", "1")],
        WRONG: [("--status", "odd"), ("--since", "soon"), ("--limit", "0"), ("--since", "1h", "--until", "2h")],
    },
    "outbox show": {FINE: [("{dead}",)], NOTHING: [(NO_ONE,)], WRONG: [("o-1",), ()]},
    "outbox requeue": {
        FINE: [("{dead}", *WHY), ("--status", "dead", *WHY), ("--key", "o-1", *WHY, "--dry-run")],
        NOTHING: [(NO_ONE, *WHY), ("--type", "other", *WHY), ("--until", "1h", *WHY), ("--status", "sent", *WHY)],
        WRONG: [("--all",), WHY, ("{dead}", "--key", "a", *WHY), ("--status", "odd", *WHY)],
    },
    "outbox discard": {
        FINE: [("{dead}", *WHY), ("--destination", "handler:reserve", *WHY), ("--all", *WHY)],
        NOTHING: [(NO_ONE, *WHY), ("--destination", "nowhere", *WHY)],
        WRONG: [("--all",), WHY],
    },
    "outbox bury": {
        FINE: [("{open}", *WHY), ("--status", "pending", *WHY)],
        NOTHING: [(NO_ONE, *WHY), ("--status", "dead", *WHY), ("{open}", "--destination", "nowhere", *WHY)],
        WRONG: [("--all",), WHY],
    },
    "inbox stats": {FINE: [()], WRONG: [("extra",)]},
    "inbox list": {
        FINE: [(), ("--consumer", "billing", "--topic", "x"), ("--since", "3d", "--until", "1s"), ("--limit", "1")],
        WRONG: [("--since", "soon"), ("--limit", "0"), ("--since", "1h", "--until", "2h")],
    },
    "events show": {FINE: [("{dead}",)], NOTHING: [(NO_ONE,)], WRONG: [("o-1",)]},
    "events replay": {
        FINE: [("{dead}", "--to", "default", *WHY), ("--key", "o-1", "--to", "default", *WHY),
               ("--all", "--to", "default", "--dry-run", *WHY)],
        NOTHING: [(NO_ONE, "--to", "default", *WHY), ("--all", "--to", "nowhere", *WHY),
                  ("--type", "other", "--to", "default", *WHY)],
        WRONG: [("--all", *WHY), ("--to", "default", *WHY), ("--all", "--to", "default")],
    },
    "events export": {
        FINE: [(), ("--type", "other"), ("--status", "dead"), ("--destination", "default", "--key", "o-1"),
               ("--since", "1h", "--until", "1s")],
        WRONG: [("--status", "odd"), ("--since", "soon")],
    },
    "saga list": {
        FINE: [(), ("--name", "place", "--status", "stuck", "--process", "o-1"), ("--since", "2h", "--until", "1s")],
        WRONG: [("--status", "odd"), ("--since", "soon"), ("--after", "x"), ("--limit", "0")],
    },
    "saga show": {NOTHING: [(NO_ONE,)], WRONG: [("o-1",), ()]},
    "saga retry": {NOTHING: [(NO_ONE, *WHY), (NO_ONE, "--step", "charge", *WHY)], WRONG: [(NO_ONE,), WHY]},
    "saga skip": {NOTHING: [(NO_ONE, "--value", "7", *WHY)], WRONG: [(NO_ONE, "--value", "{{", *WHY), (NO_ONE,)]},
    "saga compensate": {NOTHING: [(NO_ONE, *WHY)], WRONG: [(NO_ONE,), ("o-1", *WHY)]},
    "saga cancel": {NOTHING: [(NO_ONE, *WHY)], WRONG: [(NO_ONE,)]},
    "erasure stats": {FINE: [()], WRONG: [("extra",)]},
    "erasure list": {FINE: [(), ("--limit", "1"), ("--after", NO_ONE)], WRONG: [("--after", "x"), ("--limit", "0")]},
    "erasure show": {NOTHING: [("o-1",), ("o-1", "--reveal", *WHY)], WRONG: [(), (" ",), ("o-1", "--reveal")]},
    "erasure abandoned": {FINE: [(), ("--reveal", *WHY)], WRONG: [("--reveal",), ("--limit", "0"), ("extra",)]},
    "erasure scheduled": {FINE: [(), ("--reveal", *WHY)], WRONG: [("--reveal",), ("--limit", "0"), ("extra",)]},
    "erasure overdue": {FINE: [(), ("--limit", "1")], WRONG: [("--limit", "0"), ("extra",)]},
    "erasure requeue": {NOTHING: [(NO_ONE, *WHY), ("{dead}", *WHY)], WRONG: [(NO_ONE,), WHY, ("o-1", *WHY)]},
    "destination list": {FINE: [()], WRONG: [("extra",)]},
    "destination pause": {FINE: [("default", *WHY)], NOTHING: [("nowhere", *WHY)], WRONG: [("default",)]},
    "destination resume": {NOTHING: [("default", *WHY), ("nowhere", *WHY)], WRONG: [("default",)]},
    "operation list": {FINE: [(), ("--status", "running")], WRONG: [("--status", "odd")]},
    "operation show": {NOTHING: [(NO_ONE,)], WRONG: [("o-1",)]},
    "operation resume": {NOTHING: [(NO_ONE,)], WRONG: [()]},
    "operation cancel": {NOTHING: [(NO_ONE, *WHY)], WRONG: [(NO_ONE,)]},
    "maintenance list": {FINE: [()], WRONG: [("extra",)]},
    "maintenance run": {FINE: [("partitions",), ("retention",), ("duty:retention",), ("chain",)], NOTHING: [("nonsense",)], WRONG: [()]},
    "privacy redact": {
        FINE: [("4711", "--pending", "discard", *WHY), ("4711", "--pending", "publish-first", *WHY)],
        WRONG: [("4711", *WHY), ("4711", "--pending", "later", *WHY), ("4711", "--pending", "discard"), WHY],
    },
    "audit list": {
        FINE: [(), ("--target", "default"), ("--actor", "ann", "--action", "requeue", "--since", "2h")],
        WRONG: [("--after", "x"), ("--until", "soon")],
    },
    "audit verify": {FINE: [()], WRONG: [("extra",), ("--copy", "no/such/file")]},
    "audit export": {FINE: [()], WRONG: [("extra",)]},
    "privacy rotate": {FINE: [(), WHY], WRONG: [("extra",), ("--reason", " ")]},
    "privacy shred": {FINE: [("ann", *WHY), ("bob", *WHY)], WRONG: [("ann",), ("ann", "--reason", " "), WHY]},
}  # fmt: skip
ELSEWHERE = {
    "postlude run",
    "postlude demo",
    "postlude settings",
    "postlude version",
    "postlude docs lifecycle",
    "postlude db sql",
    "postlude erasure lint",
    "postlude saga graph",
    "postlude saga plan",
}
"""They need no database, or have tests of their own."""


@pytest.fixture(params=ONE_OF_EACH)
def shop(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> dict[str, str]:
    url = databases_on(request.param).fresh()
    _, dead = place(url, "lamp", POISON)
    (still_open,) = place(url, "lamp", relay=False)
    return {"url": url, "dead": str(dead), "open": str(still_open)}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> InProcess:
    monkeypatch.setenv("POSTLUDE_KEYS", listed("k1"))
    return InProcess(capsys)


def test_every_verb_is_walked() -> None:
    group: Any = typer.main.get_command(cli)
    known = {
        f"postlude {name}" if not hasattr(command, "commands") else f"postlude {name} {verb}"
        for name, command in group.commands.items()
        for verb in getattr(command, "commands", [""])
    }
    assert known - ELSEWHERE == {f"postlude {verb}" for verb in VERBS}


@pytest.mark.parametrize("code", [WRONG, NOTHING, FINE], ids=["wrong", "nothing", "fine"])
def test_what_each_verb_answers(run: InProcess, shop: dict[str, str], code: int) -> None:
    """What would change deliveries is asked as a dry run here: real changes have tests of their own."""
    for verb, situations in VERBS.items():
        for given in situations.get(code, []):
            arguments = [word.format(**shop) for word in (*verb.split(), *given)]
            if code == FINE and verb.startswith(("outbox requeue", "outbox discard", "outbox bury", "events replay")):
                arguments = [*arguments, "--dry-run"]
            told = f"postlude {' '.join(arguments)}"
            answer = run(*arguments, "--json", "--database", shop["url"])
            assert answer.code == code, (told, answer)
            check_document(answer, told, has_failed=code == WRONG)
            if code != WRONG and given is not situations[code][0]:
                continue  # what people see is looked at once for each verb
            people = run(*arguments, "--database", shop["url"])
            assert "Traceback" not in people.err, told
            assert "\x1b" not in people.out + people.err, told
            if code == WRONG:
                assert (people.code, people.out) == (WRONG, ""), told
                assert "postlude" in people.err, told


def check_document(answer: Answer, told: str, *, has_failed: bool) -> None:
    assert len(answer.out.splitlines()) == 1, told
    document = json.loads(answer.out)
    assert isinstance(document, dict), told
    if has_failed:
        error = document["error"]
        assert error["message"], told
        assert error["hint"] or error["next"], told


@pytest.mark.parametrize("verb", VERBS)
def test_a_server_that_is_away_is_exit_3_and_no_password_is_told(run: InProcess, verb: str) -> None:
    situations = VERBS[verb]
    given = next(iter(situations.get(FINE) or situations[NOTHING]))
    words = [word.format(dead=NO_ONE, open=NO_ONE) for word in (*verb.split(), *given)]
    answer = run(*words, "--json", "--database", NOWHERE)
    assert answer.code == AWAY, answer
    assert answer.json["error"]["code"] == "database.unavailable"
    assert answer.json["error"]["next"] == "postlude doctor", "the password is not repeated"
    assert "s3cret" not in answer.out + answer.err


@pytest.mark.parametrize(
    "verb", [verb for verb in VERBS if verb not in {"db upgrade", "db status", "db verify", "doctor"}]
)
def test_a_missing_schema_names_its_cure(run: InProcess, verb: str, tmp_path) -> None:
    path = tmp_path / "empty.db"
    sqlite3.connect(path).execute("VACUUM").connection.close()
    situations = VERBS[verb]
    given = next(iter(situations.get(FINE) or situations[NOTHING]))
    words = [word.format(dead=NO_ONE, open=NO_ONE) for word in (*verb.split(), *given)]
    url = f"sqlite:///{path}"
    answer = run(*words, "--json", "--database", url)
    assert (answer.code, answer.json["error"]["code"]) == (NOTHING, "schema.missing")
    assert answer.json["error"]["next"] == f"postlude db upgrade --database {url}"
    assert run(*words, "--database", url).err.rstrip().endswith(f"postlude db upgrade --database {url}")


def test_a_time_without_a_zone_is_utc_and_that_is_said(run: InProcess, shop: dict[str, str]) -> None:
    naive = run("outbox", "list", "--since", "2020-01-01T00:00", "--database", shop["url"], "--json")
    assert "--since 2020-01-01T00:00 has no time zone: taken as UTC" in naive.err
    assert len(naive.json["items"]) == 4
    zoned = run("outbox", "list", "--since", "2020-01-01T00:00+01:00", "--until", "1s", "--database", shop["url"])
    assert "time zone" not in zoned.err
