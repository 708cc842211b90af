"""Resolvers are checked when they are registered, requests before anything is done, and calls keep their pace."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import pytest

from postlude import CallOperation, ConfigurationError, Correction, Erasure, NotEncodable, Retry, Schedule, SubjectRef
from postlude.calls.resolvers import OWN, Resolvers
from postlude.core.calls import subject_id_text
from postlude.core.event import MAX_SUBJECT
from postlude.erasure.requests import MAX_BYTES, checked
from postlude.erasure.views import error_of
from postlude.outbox.routes import Routes
from postlude.runtime.pacing import Pace
from postlude.testing.clock import ManualClock

MARK = "marked-personal-datum"
ERASE, RECTIFY = CallOperation.erase, CallOperation.rectify


class Good:
    name = "good"

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        return Erasure()


class Keeping:
    name = "keeping"

    async def schedule_erasure(self, ref: SubjectRef, *, idempotency_key: str) -> Schedule:
        return Schedule(already_absent=True)


class Both(Good, Keeping):
    name = "both"


def made() -> Resolvers:
    return Resolvers(
        Routes(retry=Retry(), retries={}, on_dead="skip"),
        Retry(max_attempts=8, base_delay=30, max_delay=3600, jitter=0),
    )


@pytest.fixture
def resolvers() -> Resolvers:
    resolvers = made()
    resolvers.register(Good())
    return resolvers


# ---------------------------------------------------------------- resolvers


def test_a_resolver_is_known_by_its_name() -> None:
    resolvers = made()
    for one in (Keeping(), Good()):
        resolvers.register(one)
    assert resolvers.names() == ["good", "keeping"]
    found = resolvers.get("good")
    assert found is not None
    assert (found.destination, found.timeout, found.concurrency, found.rate) == ("call:good", 30, 8, None)
    assert resolvers.get("other") is None
    assert {one.name for one in resolvers} == {"good", "keeping"}


def test_who_can_only_let_expire_is_never_asked_to_erase() -> None:
    resolvers = made()
    for one in (Good(), Keeping(), Both()):
        resolvers.register(one)
    methods = {one.name: one.method(ERASE) for one in resolvers}
    assert methods == {"good": "erase_subject", "keeping": "schedule_erasure", "both": "schedule_erasure"}
    assert {one.method(RECTIFY) for one in resolvers} == {"rectify_subject"}


def test_two_of_a_name_are_refused(resolvers: Resolvers) -> None:
    with pytest.raises(ConfigurationError, match="two resolvers named 'good'"):
        resolvers.register(Good())


@pytest.mark.parametrize("name", [None, "", 5, " good", "with space", "a" * 201, "-x", "x\n", OWN, "ü"])
def test_a_name_is_short_and_plain(name: Any) -> None:
    resolver = type("Named", (Good,), {"name": name})()
    with pytest.raises(ConfigurationError):
        made().register(resolver)


def test_a_resolver_can_do_something() -> None:
    class Nothing:
        name = "nothing"

        async def verify_absent(self, ref: SubjectRef) -> bool:
            return True

    with pytest.raises(ConfigurationError, match="neither erase nor schedule"):
        made().register(Nothing())


@pytest.mark.parametrize("method", ["erase_subject", "schedule_erasure", "rectify_subject", "verify_absent"])
def test_methods_are_coroutine_functions(method: str) -> None:
    resolver = type("Blocking", (Both,), {method: lambda self, *given, **options: None})()
    with pytest.raises(ConfigurationError, match=f"{method} of resolver 'both' is no coroutine function"):
        made().register(resolver)


@pytest.mark.parametrize("method", ["erase_subject", "schedule_erasure", "rectify_subject", "verify_absent"])
def test_methods_take_what_they_are_given(method: str) -> None:
    async def anything(self: Any, *given: Any, **options: Any) -> Any: ...

    async def too_little(self: Any) -> Any: ...

    made().register(type("Wrapped", (Both,), {method: anything})())
    with pytest.raises(ConfigurationError, match=f"{method} of resolver 'both' does not take") as refused:
        made().register(type("Old", (Both,), {method: too_little})())
    assert f"async def {method}(self, ref" in str(refused.value.hint)


def test_the_idempotency_key_has_to_be_taken() -> None:
    async def erase_subject(self: Any, ref: SubjectRef) -> Erasure:
        return Erasure()

    with pytest.raises(ConfigurationError, match="does not take"):
        made().register(type("Old", (Good,), {"erase_subject": erase_subject})())


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": -1}, {"concurrency": 0}, {"rate": 0}, {"rate": -0.5}])
def test_limits_are_above_zero(options: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="above zero"):
        made().register(Good(), **options)  # type: ignore[arg-type] # each is one of its numbers


# ---------------------------------------------------------------- words


def test_a_schedule_says_one_thing() -> None:
    assert Schedule(already_absent=True).expires_at is None
    assert Schedule(expires_at=datetime(2030, 1, 1, tzinfo=UTC)).already_absent is False
    for wrong in (
        {},
        {"expires_at": datetime(2030, 1, 1, tzinfo=UTC), "already_absent": True},
        {"expires_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - on purpose
    ):
        with pytest.raises(ValueError, match=r"either expires_at or already_absent|needs a time zone"):
            Schedule(**wrong)


def test_operations_have_nouns_for_the_trail() -> None:
    assert {one: one.noun for one in CallOperation} == {"erase": "erasure", "rectify": "rectification"}


def test_an_error_is_shown_by_its_class_only() -> None:
    assert error_of(None) is None
    assert error_of('{"kind":"Refused","at":"shop:call:3","message":"' + MARK + '"}') == "Refused"


# ---------------------------------------------------------------- requests


def ask(resolvers: Resolvers, operation: CallOperation = ERASE, **given: Any) -> Any:
    told: dict[str, Any] = {"subject_id": "ada", "refs": [SubjectRef("good", "x")], "actor": "app", "reason": None}
    if operation is RECTIFY:
        told["corrections"] = [Correction("name", "Ada")]
    told |= given
    return checked(resolvers, operation, told.pop("subject_id"), told.pop("refs"), **told)


def test_a_request_is_taken_as_it_was_meant(resolvers: Resolvers) -> None:
    refs = [
        SubjectRef("good", "x", {"b": 1, "a": 2}),
        SubjectRef("good", "x", {"a": 2, "b": 1}),
        SubjectRef("good", "y"),
    ]
    request = ask(resolvers, refs=refs, subject_id=UUID(int=7), reason="ticket 7")
    assert request.subject_id == str(UUID(int=7))
    assert request.refs == (refs[0], refs[2]), "the same in another order is the same"
    assert (request.corrected, request.reason, ask(resolvers).reason) == (None, "ticket 7", "")
    assert ask(resolvers, RECTIFY).corrected == b'[{"category":"name","value":"Ada"}]'
    assert ask(resolvers, refs=[]).refs == ()


@pytest.mark.parametrize(
    "given",
    [
        {"refs": [SubjectRef("unknown", MARK)]},
        {"refs": [SubjectRef(OWN, MARK)]},
        {"refs": [SubjectRef("good", "")]},
        {"refs": [SubjectRef("good", f"{MARK}\x00")]},
        {"refs": [SubjectRef("good", f"{MARK}\ud800")]},
        {"refs": [SubjectRef("good", cast(Any, [MARK]))]},
        {"refs": [SubjectRef(cast(Any, None), MARK)]},
        {"refs": [(MARK, MARK)]},
        {"refs": [MARK]},
        {"refs": [SubjectRef("good", MARK * (MAX_BYTES // len(MARK)))]},
        {"refs": [SubjectRef("good", MARK, {MARK: object()})]},
        {"operation": RECTIFY, "corrections": []},
        {"operation": RECTIFY, "corrections": [Correction("", MARK)]},
        {"operation": RECTIFY, "corrections": [Correction(cast(Any, None), MARK)]},
        {"operation": RECTIFY, "corrections": [(MARK, MARK)]},
        {"operation": RECTIFY, "corrections": [Correction("name", MARK), Correction("name", "x")]},
        {"operation": RECTIFY, "corrections": [Correction("name", {MARK: object()})]},
        {"operation": RECTIFY, "corrections": [Correction("name", {1.5j: MARK})]},
        {"operation": RECTIFY, "corrections": [Correction("name", MARK * MAX_BYTES)]},
        {"subject_id": MARK * MAX_SUBJECT},
        {"subject_id": f"{MARK}\x00"},
        {"subject_id": MARK.encode()},
        {"actor": "  "},
    ],
)
def test_what_is_refused_is_not_repeated(resolvers: Resolvers, given: dict[str, Any]) -> None:
    with pytest.raises((ConfigurationError, NotEncodable)) as refused:
        ask(resolvers, **given)
    error: BaseException | None = refused.value
    assert MARK not in f"{error}{error!r}{getattr(error, 'hint', '')}"
    assert error is not None
    assert error.__cause__ is None, "a codec's own error may quote the value"
    assert error.__suppress_context__ or error.__context__ is None


@pytest.mark.parametrize(
    "subject",
    [None, True, b"ada", "", " \t", "x" * (MAX_SUBJECT + 1), Good(), SubjectRef("a", "b"), ["ada"], {"id": 7}, 7.0],
)
def test_a_subject_is_somebody(subject: Any) -> None:
    with pytest.raises(ConfigurationError):
        subject_id_text(subject)


@pytest.mark.parametrize("subject", ["ada", 4711, UUID(int=1), "x" * MAX_SUBJECT, "åda"])
def test_any_id_will_do(subject: Any) -> None:
    assert subject_id_text(subject) == str(subject)


# ---------------------------------------------------------------- pace


async def test_calls_start_evenly() -> None:
    pace = Pace(200, ManualClock())
    began = time.monotonic()
    starts = []
    for _ in range(5):
        await pace.wait()
        starts.append(time.monotonic() - began)
    assert all(start >= number * 0.005 - 0.001 for number, start in enumerate(starts))


async def test_without_a_rate_nobody_waits() -> None:
    class Stopped(ManualClock):
        def monotonic(self) -> float:
            raise AssertionError("it need not look at the clock")

    pace = Pace(None, Stopped())
    for _ in range(1000):
        await pace.wait()


async def test_a_pause_is_not_made_up_for() -> None:
    class Jumping(ManualClock):
        now = 100.0

        def monotonic(self) -> float:
            return self.now

    clock = Jumping()
    pace = Pace(1000, clock)
    await pace.wait()
    clock.now = 200.0
    began = time.monotonic()
    for _ in range(6):
        await pace.wait()
    assert time.monotonic() - began >= 0.005 - 0.001, "however long nothing was called, calls do not come in bursts"
