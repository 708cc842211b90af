"""`postlude saga`: looking at sagas and giving orders, and what `doctor` says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from postlude import Postlude
from postlude.cli import saga_checks
from postlude.cli.saga_checks import SagaFacts, check_sagas
from postlude.insight.sagas import PlanLine
from tests.acceptance import cli_sagas
from tests.acceptance.cli_sagas import HERE, NO_MAIL, PLACE, SHORTER, TOO_DEAR, Order, app_on, begin, on_app
from tests.acceptance.cli_shop import ONE_OF_EACH, Answer, InProcess, postlude
from tests.databases import Databases

WHY = ("--reason", "she looked", "--actor", "ann")
APP = ("--app", f"{HERE}:app")


@pytest.fixture(params=ONE_OF_EACH)
def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh()


@pytest.fixture
def sqlite(databases_on: Callable[[str], Databases]) -> str:
    return databases_on("sqlite").fresh()


class Commands:
    """Runs `postlude saga ...` on one database, with the code that --app names."""

    def __init__(self, run: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        self._run = run
        self._monkeypatch = monkeypatch

    def __call__(self, url: str, *words: str) -> Answer:
        """A command closes its app, so each has a new one."""
        for name, sagas in (("app", (PLACE,)), ("changed", (SHORTER,)), ("empty", ())):
            self._monkeypatch.setattr(cli_sagas, name, app_on(url, *sagas))
        return self._run(*words) if "--app" in words else self._run(*words, "--database", url)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Commands:
    return Commands(InProcess(capsys), monkeypatch)


# ---------------------------------------------------------------- looking


def test_list_filters_and_pages(run: Commands, url: str) -> None:
    begin(url, Order("o-1"), Order("o-2", TOO_DEAR), Order("jammed", TOO_DEAR))
    found = run(url, "saga", "list", "--json").json
    assert [(one["process_id"], one["status"], one["error"]) for one in found["items"]] == [
        ("jammed", "stuck", "charge:TooDear"),
        ("o-2", "compensated", "charge:TooDear"),
        ("o-1", "completed", None),
    ]
    assert found["after"] is None
    assert _ids(run(url, "saga", "list", "--status", "stuck", "--name", "place", "--json")) == ["jammed"]
    assert _ids(run(url, "saga", "list", "--process", "o-1", "--since", "1h", "--json")) == ["o-1"]
    assert _ids(run(url, "saga", "list", "--until", "1h", "--json")) == []
    assert _ids(run(url, "saga", "list", "--name", "other", "--json")) == []
    first = run(url, "saga", "list", "--limit", "2", "--json")
    rest = run(url, "saga", "list", "--limit", "2", "--after", first.json["after"], "--json")
    assert _ids(first) + _ids(rest) == ["jammed", "o-2", "o-1"]
    people = run(url, "saga", "list", "--limit", "2")
    assert "jammed" in people.out
    assert "Go on with: --after" in people.err
    assert run(url, "saga", "list", "--status", "running").out == "No saga fits.\n"


def test_show_tells_where_it_stands(run: Commands, url: str) -> None:
    (saga_id,) = begin(url, Order("o-1"), relay=False)
    people = run(url, "saga", "show", str(saga_id), *APP)
    assert people.code == 0
    assert f"{saga_id}  place 'o-1': running" in people.out
    assert "waits for reserve: its handler (attempt 1)" in people.out
    assert "remaining: reserve, charge, ship, mail" in people.out
    assert "begun" in people.out
    document = run(url, "saga", "show", str(saga_id), "--json", *APP).json
    assert (document["step"], document["attempts"], document["generation"]) == ("reserve", 1, 1)
    assert [line["what"] for line in document["history"]] == ["started", "begun"]


def test_show_needs_no_code_to_tell_the_phases(run: Commands, url: str) -> None:
    (saga_id,) = begin(url, Order("jammed", TOO_DEAR))
    people = run(url, "saga", "show", str(saga_id))
    assert "waits for reserve: undo failed (Jammed)" in people.out
    assert "remaining: reserve\n" in people.out
    assert "error: charge:TooDear" in people.out
    assert "With --app MODULE:ATTR" in people.err
    with_code = run(url, "saga", "show", str(saga_id), *APP)
    assert "an operator: the undo of reserve failed (Jammed)" in with_code.out


def test_show_says_when_the_code_cannot_continue_it(run: Commands, url: str) -> None:
    (saga_id,) = begin(url, Order("o-1"), relay=False)
    people = run(url, "saga", "show", str(saga_id), "--app", f"{HERE}:changed")
    assert "waits for code that can continue it: step reserve was begun and is no longer there" in people.out
    drawn = run(url, "saga", "show", str(saga_id), "--graph", "--app", f"{HERE}:changed")
    assert (drawn.code, drawn.out) == (1, "")
    assert "cannot be drawn: step reserve was begun and is no longer there" in drawn.err


def test_graphs_of_a_definition_and_of_a_run(run: Commands, url: str) -> None:
    (saga_id,) = begin(url, Order("o-2", TOO_DEAR))
    definition = run(url, "saga", "graph", "place", *APP).out
    assert definition.startswith("flowchart LR\n")
    assert 's2{"ship<br/>pivot"}' in definition
    drawn = run(url, "saga", "show", str(saga_id), "--graph", *APP).out
    assert 's1["charge<br/>failed<br/>TooDear"]' in drawn
    assert "class s0 back" in drawn
    assert run(url, "saga", "graph", "place", "--json", *APP).json == {"name": "place", "graph": definition.rstrip()}
    document = run(url, "saga", "show", str(saga_id), "--graph", "--json", *APP).json
    assert document["graph"] == drawn.rstrip()


def test_what_needs_the_code_says_so(run: Commands, sqlite: str) -> None:
    (saga_id,) = begin(sqlite, Order("o-1"), relay=False)
    for words in (("plan",), ("show", str(saga_id), "--graph"), ("retry", str(saga_id), "--reason", "x")):
        answer = run(sqlite, "saga", *words, "--json")
        assert (answer.code, answer.json["error"]["code"]) == (2, "configuration.refused"), words
        assert answer.json["error"]["hint"].startswith("Give --app MODULE:ATTR")
        assert answer.json["error"]["next"] == f"postlude saga {words[0]} --help"
    unknown = run(sqlite, "saga", "graph", "other", "--json", *APP)
    assert (unknown.code, unknown.json["error"]["hint"]) == (2, "It has: place.")


def test_graph_connects_to_nothing(sqlite: str) -> None:
    answer = postlude("saga", "graph", "place", *APP, database="postgresql://127.0.0.1:1/shop")
    assert (answer.code, answer.out.splitlines()[0]) == (0, "flowchart LR")
    without = postlude("saga", "graph", "place")
    assert without.code == 2
    assert "the diagram of a definition needs the code of the saga" in without.err


def test_a_shell_completes_names_and_statuses(sqlite: str) -> None:
    begin(sqlite, Order("o-1"))

    def offered(line: str) -> list[str]:
        env = {"_POSTLUDE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        return postlude(POSTLUDE_DATABASE=sqlite, **env).out.split()

    assert offered("postlude saga list --name pl") == ["place"]
    assert offered("postlude saga list --status comp") == ["compensating", "completed", "compensated"]


# ---------------------------------------------------------------- planning


def test_plan_sets_live_sagas_against_the_code(run: Commands, url: str) -> None:
    assert run(url, "db", "upgrade").code == 0
    assert run(url, "saga", "plan", *APP).out == "No saga is under way.\n"
    begin(url, Order("o-1"))
    begin(url, Order("o-2"), Order("o-3"), relay=False)
    same = run(url, "saga", "plan", "--json", *APP)
    assert (same.code, same.json["continue"], same.json["cannot"]) == (0, 2, 0)
    assert {one["why"] for one in same.json["items"]} == {"same definition"}
    other = run(url, "saga", "plan", "--app", f"{HERE}:changed")
    assert other.code == 1
    assert "step reserve was begun and is no longer there" in other.out
    assert "This code cannot continue 2: place (2)." in other.out
    gone = run(url, "saga", "plan", "--json", "--app", f"{HERE}:empty")
    assert (gone.code, gone.json["cannot"]) == (1, 2)
    assert {one["why"] for one in gone.json["items"]} == {"the code has no saga of this name"}


# ---------------------------------------------------------------- orders


def test_a_stuck_saga_is_skipped_with_a_value_and_ends(run: Commands, url: str) -> None:
    (saga_id,) = begin(url, Order("o-1", NO_MAIL))
    answer = run(url, "saga", "skip", str(saga_id), "--value", '"by phone"', "--json", *WHY, *APP)
    assert (answer.code, answer.json["saga"]["status"]) == (0, "completed")
    assert run(url, "saga", "show", str(saga_id)).out.splitlines()[0].endswith("'o-1': completed")
    (record,) = run(url, "audit", "list", "--target", str(saga_id), "--actor", "ann", "--json").json["items"]
    assert (record["action"], record["reason"]) == ("saga skip", "she looked")
    assert (record["old_status"], record["new_status"]) == ("stuck", "completed")
    assert record["detail"]["value"] is True, "that there was one, and not which"
    assert "by phone" not in str(record)


def test_retry_and_compensate_say_what_follows(run: Commands, url: str) -> None:
    (saga_id,) = begin(url, Order("o-1", NO_MAIL))
    retried = run(url, "saga", "retry", str(saga_id), *WHY, *APP)
    assert retried.code == 0
    assert "It was told to try again. place 'o-1' is running now." in retried.out
    assert "waits for mail: its handler (attempt 2)" in retried.out
    on_app(url, Postlude.drain)
    back = run(url, "saga", "compensate", str(saga_id), "--json", *WHY, *APP).json["saga"]
    assert (back["status"], back["error"]) == ("compensating", "mail:NoAddress")
    on_app(url, Postlude.drain)
    ended = run(url, "saga", "cancel", str(saga_id), "--json", *WHY, *APP)
    assert (ended.code, ended.json["error"]["code"]) == (1, "saga.refused")
    assert ended.json["error"]["message"] == "the saga is compensated already"
    assert ended.json["error"]["next"] == f"postlude saga show {saga_id} --app {HERE}:app"


def test_cancel_turns_a_running_one_back(run: Commands, url: str) -> None:
    (saga_id,) = begin(url, Order("o-1"), relay=False)
    answer = run(url, "saga", "cancel", str(saga_id), *WHY, *APP)
    assert (answer.code, "place 'o-1' is compensating now" in answer.out) == (0, True)
    named = run(url, "saga", "retry", str(saga_id), "--step", "nonsense", *WHY, *APP)
    assert (named.code, "there is no step nonsense: the steps are reserve, charge, ship, mail" in named.err) == (
        1,
        True,
    )


def test_orders_that_are_wrong_are_refused_before_anything_is_done(run: Commands, sqlite: str) -> None:
    (saga_id,) = begin(sqlite, Order("o-1", NO_MAIL))
    for words in (("retry", str(saga_id)), ("skip", str(saga_id), "--value", "{", *WHY), ("cancel", "o-1", *WHY)):
        assert run(sqlite, "saga", *words, "--json", *APP).code == 2, words
    blank = run(sqlite, "saga", "retry", str(saga_id), "--reason", " ", "--json", *APP)
    assert (blank.code, blank.json["error"]["message"]) == (2, "an action needs an actor and a reason")
    missing = run(sqlite, "saga", "retry", str(uuid4()), "--json", *WHY, *APP)
    assert (missing.code, missing.json["error"]["code"]) == (1, "saga.not_found")
    assert missing.json["error"]["next"] == f"postlude saga list --app {HERE}:app"
    assert run(sqlite, "saga", "show", str(saga_id), "--json").json["status"] == "stuck"


# ---------------------------------------------------------------- doctor


def test_doctor_tells_of_stuck_sagas_and_of_code_that_cannot_continue(run: Commands, url: str) -> None:
    assert not _findings(run(url, "db", "upgrade", "--json"), run(url, "doctor", "--json"))
    begin(url, Order("o-1"))
    (fine,) = _findings(run(url, "doctor", "--json", *APP))
    assert (fine["status"], fine["message"]) == ("ok", "0 under way, none is stuck")
    begin(url, Order("o-2", NO_MAIL), Order("o-3"), relay=False)
    begin(url, Order("o-4", NO_MAIL))
    (stuck,) = _findings(run(url, "doctor", "--json"))
    assert (stuck["status"], stuck["message"]) == ("warn", "an operator is needed for place (2)")
    _, misfits = _findings(run(url, "doctor", "--json", "--app", f"{HERE}:changed"))
    assert misfits["message"].startswith("this code cannot continue place (2): step reserve was begun")


def test_doctor_tells_of_sagas_that_stand_still(run: Commands, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is on its way any more: somebody discarded the work."""
    (saga_id,) = begin(url, Order("o-1"), relay=False)
    monkeypatch.setattr(saga_checks, "QUIET", 0.0)
    (fine,) = _findings(run(url, "doctor", "--json", *APP))
    assert (fine["status"], fine["message"]) == ("ok", "1 under way, none is stuck")
    assert run(url, "outbox", "discard", "--destination", "saga:place", *WHY).code == 0
    (found,) = _findings(run(url, "doctor", "--json", *APP))
    assert found["status"] == "warn"
    assert found["message"].startswith("place 'o-1' stands still: the work of reserve is not on its way any more")
    assert f"postlude saga retry {saga_id} --step" in found["hint"]
    (unknown,) = _findings(run(url, "doctor", "--json"))
    assert unknown["status"] == "ok", "without its code nobody can tell whether it waits for somebody"


def test_doctor_names_a_few_of_many_that_stand_still(sqlite: str) -> None:
    (saga_id,) = begin(sqlite, Order("o-1"), relay=False)

    async def read(opened: Postlude) -> Any:
        return await opened.store.sagas.get(saga_id)

    instance = on_app(sqlite, read)
    plan = PlanLine(name="place", id=saga_id, process_id="o-1", status=instance.status, continues=True, why="same")
    found = [*check_sagas(SagaFacts(counts=_running(), plans=[plan], stalled=[(instance, "why")] * 5))]
    assert [one.message for one in found][3:] == ["2 more stand still"]


def _running() -> dict[str, dict[str, int]]:
    return {"place": {"running": 1}}


def _findings(*answers: Answer) -> list[Any]:
    return [one for one in answers[-1].json["checks"] if one["check"] == "sagas"]


def _ids(answer: Answer) -> list[str]:
    return [one["process_id"] for one in answer.json["items"]]
