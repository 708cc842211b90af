"""`postlude erasure`: what operators see of requests and calls, masked unless revealed on record, and requeueing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from postlude import Postlude, SubjectRef
from postlude.cli.erasure_checks import ErasureFacts, check_erasures
from postlude.core.lifecycle import Status
from tests.acceptance.cli_erasure import FLAKY, HERE, REFUSED, erase, execute, on_app, rectify
from tests.acceptance.cli_shop import ONE_OF_EACH, Answer, InProcess, postlude
from tests.databases import Databases

WHY = ("--reason", "the vendor is back", "--actor", "ann")
ADA, BOB, CYD = "customer-ada", "customer-bob", "customer-cyd"
SAME_AGE = "UPDATE postlude_event SET created_at = (SELECT min(created_at) FROM postlude_event)"


@pytest.fixture(params=ONE_OF_EACH)
def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh()


class Commands:
    """Runs `postlude erasure ...` on one database."""

    def __init__(self, run: InProcess, url: str) -> None:
        self._run = run
        self._url = url

    def __call__(self, *words: str) -> Answer:
        return self._run("erasure", *words, "--database", self._url)

    def any(self, *words: str) -> Answer:
        return self._run(*words, "--database", self._url)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], url: str) -> Commands:
    return Commands(InProcess(capsys), url)


# ---------------------------------------------------------------- looking


def test_where_nothing_was_asked_every_list_says_so(run: Commands, url: str) -> None:
    on_app(url, _nothing)
    said = {name: run(name) for name in ("list", "abandoned", "scheduled", "overdue")}
    assert {name: (answer.code, answer.out) for name, answer in said.items()} == {
        "list": (0, "No request of a data subject is known.\n"),
        "abandoned": (0, "No call is abandoned.\n"),
        "scheduled": (0, "No call waits for a vendor.\n"),
        "overdue": (0, "No request is overdue.\n"),
    }
    assert run("list", "--json").json == {"items": [], "after": None}
    assert run("overdue", "--json").json == {"items": []}
    unknown = run("show", ADA)
    assert (unknown.code, unknown.out) == (1, "Nothing was ever asked about this subject.\n")
    assert "postlude erasure list" in unknown.err
    counts = run("stats", "--json").json
    assert counts == {"calls": {str(status): 0 for status in Status}, "overdue": {"requests": 0, "calls": 0}}


def test_list_shows_requests_newest_first_in_pages(run: Commands, url: str) -> None:
    made = erase(url, (ADA, []), (BOB, [_crm(REFUSED)]), (CYD, [_crm("cus_1")]))
    found = run("list", "--json").json
    assert [one["id"] for one in found["items"]] == [str(one.group_id) for one in reversed(made)]
    assert [(one["status"], one["open"], one["calls"]) for one in found["items"]] == [
        ("completed", 0, 1),
        ("open", 1, 1),
        ("completed", 0, 0),
    ]
    first = run("list", "--limit", "2", "--json").json
    rest = run("list", "--limit", "2", "--after", first["after"], "--json").json
    assert first["items"] + rest["items"] == found["items"]
    assert rest["after"] is None
    people = run("list", "--limit", "2")
    assert f"Go on with: --after {first['after']}" in people.err
    assert "0 of 1" in people.out
    assert "customer-" not in people.out


def test_stats_count_calls_by_status(run: Commands, url: str) -> None:
    erase(url, (ADA, [_crm(REFUSED), _crm("cus_1"), _logs(3)]))
    counts = run("stats", "--json").json["calls"]
    assert {name: count for name, count in counts.items() if count} == {"dead": 1, "sent": 1, "scheduled": 1}
    assert "Overdue: 0 requests with 0 open calls." in run("stats").out


def test_abandoned_calls_are_listed_by_age_then_id(run: Commands, url: str) -> None:
    # The first needs every attempt, so that it is the last one to be abandoned.
    made = erase(url, (ADA, [_crm(FLAKY)]), (BOB, [_crm(REFUSED)]), (CYD, [_crm(REFUSED), _crm(f"{REFUSED}_2")]))
    ids = [str(one) for result in made for one in result.calls]
    assert _ids(run("abandoned", "--json"))[:2] == ids[:2]
    execute(url, sqlite=SAME_AGE, postgres=SAME_AGE)
    assert _ids(run("abandoned", "--json")) == sorted(ids)
    assert _ids(run("abandoned", "--limit", "3", "--json")) == sorted(ids)[:3]
    people = run("abandoned", "--limit", "3")
    assert people.code == 0
    assert "There may be more: raise --limit." in people.err
    assert "postlude erasure requeue ID" in people.err


def test_scheduled_calls_are_listed_by_horizon_then_id(run: Commands, url: str) -> None:
    made = erase(url, (ADA, [_logs(9)]), (BOB, [_logs(2)]), (CYD, [_logs(5)]))
    ids = [str(one) for result in made for one in result.calls]
    found = run("scheduled", "--json").json["items"]
    assert [one["entry_id"] for one in found] == [ids[1], ids[2], ids[0]]
    assert all(one["status"] == "scheduled" and one["attempts"] == 0 for one in found)
    assert [one["next_attempt_at"] for one in found] == sorted(one["next_attempt_at"] for one in found)
    execute(
        url,
        sqlite="UPDATE postlude_delivery SET available_at = 4000000000.0",
        postgres="UPDATE postlude_delivery SET available_at = '2090-01-01'",
    )
    execute(url, sqlite=SAME_AGE, postgres=SAME_AGE)
    assert _ids(run("scheduled", "--json")) == sorted(ids)
    assert "until" in run("scheduled").out


def test_overdue_requests_are_trouble_until_they_or_a_later_one_are_complete(run: Commands, url: str) -> None:
    erase(url, (ADA, [_crm(REFUSED)]), (BOB, [_crm("cus_1")]))
    _pass_deadlines(url)
    answer = run("overdue", "--json")
    assert (answer.code, [one["status"] for one in answer.json["items"]]) == (1, ["overdue"])
    assert run("stats", "--json").json["overdue"] == {"requests": 1, "calls": 1}
    people = run("overdue")
    assert people.code == 1
    assert "postlude erasure show SUBJECT" in people.err
    erase(url, (ADA, [_crm("cus_other")]))
    assert (run("overdue").code, run("overdue", "--json").json) == (0, {"items": []})


def test_show_tells_the_story_of_one_subject(run: Commands, url: str) -> None:
    (made,) = erase(url, (ADA, [_crm(REFUSED), _crm("cus_1")]))
    found = run("show", ADA, "--json").json
    assert [one["id"] for one in found["requests"]] == [str(made.group_id)]
    (call,) = found["calls"]
    assert (call["status"], call["resolver"], call["last_error"]) == ("dead", "crm", "ResolverError")
    actions = [one["action"] for one in found["trail"]]
    assert actions[:2] == ["erasure_requested", "erasure_local_completed"]
    assert sorted(actions[2:]) == ["erasure_step_failed", "erasure_step_succeeded"]
    people = run("show", ADA)
    assert people.code == 0
    assert f"subject {found['subject']}" in people.out
    assert "erasure_step_failed" in people.out


def test_a_subject_is_found_by_its_pseudonym_too(run: Commands, url: str) -> None:
    erase(url, (ADA, [_crm(REFUSED)]))
    (request,) = run("list", "--json").json["items"]
    assert run("show", request["subject"], "--json").json == run("show", ADA, "--json").json
    assert run("show", "0" * 32).code == 1


# ---------------------------------------------------------------- whom it is about


@pytest.mark.parametrize("words", [("abandoned",), ("show", ADA)], ids=["abandoned", "show"])
def test_whom_a_call_is_about_is_masked(run: Commands, url: str, words: tuple[str, ...]) -> None:
    erase(url, (ADA, [_crm(REFUSED, {"mail": "ada@example.org"}), _crm(REFUSED[:4])]))
    for answer in (run(*words), run(*words, "--json")):
        assert answer.code == 0
        for secret in (REFUSED, ADA, "ada@example.org"):
            assert secret not in answer.out + answer.err
    document = run(*words, "--json").json
    (call,) = document.get("items") or document["calls"]
    assert call["ref"] == {"kind": "crm", "value": "cu…"}
    assert (call["subject_id"], len(call["subject"])) == (None, 32)
    assert _reveals(run) == []


def test_a_short_reference_shows_nothing_of_itself(run: Commands, url: str) -> None:
    erase(url, (ADA, [SubjectRef("logs", "d-5")]))
    (call,) = run("scheduled", "--json").json["items"]
    assert call["ref"] == {"kind": "logs", "value": "…"}


def test_revealing_is_audited(run: Commands, url: str) -> None:
    extra = {"mail": "ada@example.org"}
    erase(url, (ADA, [_crm(REFUSED, extra), _logs(3)]))
    asked = ("--reveal", "--reason", "ticket 7", "--actor", "ann")
    (call,) = run("abandoned", *asked, "--json").json["items"]
    assert (call["subject_id"], call["ref"]) == (ADA, {"kind": "crm", "value": REFUSED, "extra": extra})
    assert REFUSED in run("abandoned", *asked).out
    assert "days-3" in run("scheduled", *asked).out
    subject = run("show", ADA, "--json").json["subject"]
    shown = run("show", subject, *asked, "--json").json
    assert {one["subject_id"] for one in shown["calls"]} == {ADA}
    assert [record["action"] for record in shown["trail"]].count("reveal") == 1
    assert _reveals(run) == [(f"subject:{subject}", "ann", "ticket 7"), *[("calls", "ann", "ticket 7")] * 3]


@pytest.mark.parametrize("width", ["40", "80", "200"])
def test_what_is_revealed_has_room_on_any_terminal(
    run: Commands, url: str, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    erase(url, (ADA, [_crm(REFUSED)]))
    monkeypatch.setenv("COLUMNS", width)
    for words in (("abandoned",), ("show", ADA)):
        answer = run(*words, "--reveal", *WHY)
        assert REFUSED in answer.out
        assert ADA in answer.out
        assert REFUSED not in run(*words).out


def test_revealing_needs_a_reason(run: Commands, url: str) -> None:
    erase(url, (ADA, [_crm(REFUSED)]))
    for words in (("abandoned",), ("scheduled",), ("show", ADA)):
        answer = run(*words, "--reveal", "--json")
        assert (answer.code, answer.json["error"]["code"]) == (2, "configuration.refused")
        assert "--reason" in answer.json["error"]["message"]
        assert run(*words, "--reveal", "--reason", " ").code == 2
    assert _reveals(run) == []


# ---------------------------------------------------------------- requeueing


def test_a_requeued_call_is_made_and_completes_its_request(run: Commands, url: str) -> None:
    (made,) = erase(url, (ADA, [_crm(REFUSED), _crm(FLAKY)]))
    ids = [str(one) for one in made.calls]
    answer = run("requeue", *ids, *WHY, "--json")
    assert answer.code == 0
    assert (answer.json["action"], answer.json["changed"], answer.json["skipped"]) == ("requeue", 2, [])
    assert sorted(answer.json["entries"]) == sorted(ids)
    on_app(url, _drained, is_broken=False)
    found = run("show", ADA, "--json").json
    assert ([one["status"] for one in found["requests"]], found["calls"]) == (["completed"], [])
    requeued = [one for one in found["trail"] if one["action"] == "erasure_requeued"]
    assert [(one["actor"], one["reason"]) for one in requeued] == [("ann", "the vendor is back")] * 2
    assert {one["detail"]["prior_error"] for one in requeued} == {"ResolverError", "TimeoutError"}
    assert [one["action"] for one in found["trail"]][-1] == "erasure_completed"


def test_requeueing_again_is_no_error_and_changes_nothing(run: Commands, url: str) -> None:
    (made,) = erase(url, (ADA, [_crm(REFUSED), _crm("cus_1")]))
    refused, done = (str(one) for one in made.calls)
    unknown = str(uuid4())
    first = run("requeue", refused, done, unknown, refused, *WHY)
    assert (first.code, first.out) == (0, "1 call requeued.\n")
    assert done in first.err
    assert unknown in first.err
    again = run("requeue", refused, *WHY, "--json")
    assert (again.code, again.json) == (
        1,
        {"action": "requeue", "changed": 0, "entries": [], "skipped": [refused]},
    )
    records = run.any("audit", "list", "--action", "erasure_requeued", "--json").json["items"]
    assert len(records) == 1


def test_a_rectification_is_refused_before_anything_changes(run: Commands, url: str) -> None:
    (erased,) = erase(url, (ADA, [_crm(REFUSED)]))
    rectified = rectify(url, BOB, "bob@example.org")
    ids = [str(one) for one in (*erased.calls, *rectified.calls)]
    answer = run("requeue", *ids, *WHY, "--json")
    assert (answer.code, answer.json["error"]["code"]) == (2, "configuration.refused")
    assert ids[1] in answer.json["error"]["message"]
    assert "rectify_subject again" in answer.json["error"]["hint"]
    assert sorted(_ids(run("abandoned", "--json"))) == sorted(ids)
    assert run.any("audit", "list", "--action", "erasure_requeued", "--json").json["items"] == []


def test_a_requeue_needs_ids_and_a_reason(run: Commands, url: str) -> None:
    (made,) = erase(url, (ADA, [_crm(REFUSED)]))
    (entry_id,) = (str(one) for one in made.calls)
    assert run("requeue", *WHY).code == 2
    assert run("requeue", "not-an-id", *WHY).code == 2
    assert run("requeue", entry_id).code == 2
    assert run("requeue", entry_id, "--reason", " ", "--actor", "ann").code == 2
    assert _ids(run("abandoned", "--json")) == [entry_id]


def test_processes_with_the_app_requeue_and_finish(url: str) -> None:
    (made,) = erase(url, (ADA, [_crm(REFUSED)]))
    app = ("--app", f"{HERE}:app")
    (entry_id,) = (str(one) for one in made.calls)
    listed = postlude("erasure", "abandoned", *app, "--json", database=url)
    assert [one["entry_id"] for one in listed.json["items"]] == [entry_id]
    assert postlude("erasure", "requeue", entry_id, *WHY, *app, database=url).out == "1 call requeued.\n"
    on_app(url, _drained, is_broken=False)
    found = postlude("erasure", "show", ADA, *app, "--json", database=url)
    assert (found.code, found.json["requests"][0]["status"]) == (0, "completed")


# ---------------------------------------------------------------- doctor


def test_doctor_tells_of_abandoned_overdue_and_unserved_calls(run: Commands, url: str) -> None:
    erase(url, (ADA, [_crm(REFUSED)]), (BOB, [_crm("cus_1")]))
    erase(url, (CYD, [_crm("cus_2")]), relay=False)
    _pass_deadlines(url)
    answer = run.any("doctor", "--json")
    found = [(one["status"], one["message"]) for one in answer.json["checks"] if one["check"] == "erasure"]
    assert found == [
        ("warn", "abandoned calls: 1"),
        ("fail", "requests past their deadline: 2, with 2 open calls"),
        ("warn", "calls to resolvers that no live worker has: crm (1)"),
    ]
    assert answer.code == 1
    others = {one["check"]: one["status"] for one in answer.json["checks"] if one["check"] != "erasure"}
    assert (others["dead letters"], others["unserved"]) == ("ok", "ok")


def test_doctor_says_nothing_of_calls_where_there_are_none() -> None:
    assert not list(check_erasures(ErasureFacts(counts={"sent": 0})))
    (fine,) = check_erasures(ErasureFacts(counts={"sent": 3, "scheduled": 2}))
    assert (fine.status, fine.message) == ("ok", "2 calls are open, none is abandoned, no request is overdue")


def _crm(value: str, extra: dict[str, Any] | None = None) -> SubjectRef:
    return SubjectRef("crm", value, extra)


def _logs(days: int) -> SubjectRef:
    return SubjectRef("logs", f"days-{days}")


def _ids(answer: Answer) -> list[str]:
    return [one["entry_id"] for one in answer.json["items"]]


def _reveals(run: Commands) -> list[tuple[str, str, str]]:
    """Newest first."""
    found = run.any("audit", "list", "--action", "reveal", "--json").json["items"]
    return [(one["target"], one["actor"], one["reason"]) for one in found]


def _pass_deadlines(url: str) -> None:
    execute(
        url,
        sqlite="UPDATE postlude_group SET deadline = 1000000000.0",
        postgres="UPDATE postlude_group SET deadline = '2020-01-01'",
    )


async def _nothing(app: Postlude) -> None:
    """Starting is enough: the schema is there."""


async def _drained(app: Postlude) -> None:
    await app.drain()
