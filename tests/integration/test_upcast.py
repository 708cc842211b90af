"""Event versions: old events reach new code, new ones wait for it, and a gap is found before anything is delivered."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import msgspec
import pytest

from postlude import ConfigurationError, Event, Filter, Postlude, event, upcast
from postlude.cli.main import execute
from tests.engine import make_app

WHO: dict[str, Any] = {"actor": "ann", "reason": "tests"}


@event(type="test.order", version=1, key="order_id")
class Order(Event):
    """As it was."""

    order_id: str
    first: str
    last: str


def newer(step: Callable[[dict[str, Any]], Any] | None = None, version: int = 2) -> type[Any]:
    """As it is after a deployment, with or without the way from version 1."""

    @event(type="test.order", version=version, key="order_id")
    class Renewed(Event):
        order_id: str
        name: str

    if step is not None:
        upcast(Renewed, 1)(step)
    return Renewed


def joined(old: dict[str, Any]) -> dict[str, Any]:
    return {"order_id": old["order_id"], "name": f"{old['first']} {old['last']}"}


def deployed(url: str, cls: type[Any], **options: Any) -> tuple[Postlude, list[Any]]:
    """A process with that code; what its handler got."""
    app, got = make_app(url), []

    @app.on(cls, name="greet", **options)
    async def greet(order: Any) -> None:
        got.append(order)

    return app, got


async def place(app: Postlude, *events: Any) -> None:
    async with app.transaction() as tx:
        await app.outbox.append_many(tx, events)


ANN = Order(order_id="o-1", first="Ann", last="Lee")


@pytest.mark.parametrize("transactional", [True, False])
async def test_what_waited_through_a_deployment_is_read_by_the_new_code(database_url: str, transactional: bool) -> None:
    old, _ = deployed(database_url, Order, transactional=transactional)
    async with old:
        await place(old, ANN)
    cls = newer(joined)
    new, got = deployed(database_url, cls, transactional=transactional)
    async with new:
        await place(new, cls(order_id="o-1", name="Bob"))
        assert await new.drain() == 2
    assert got == [cls(order_id="o-1", name="Ann Lee"), cls(order_id="o-1", name="Bob")]


async def test_a_replay_goes_through_the_upcast_and_changes_nothing_stored(database_url: str) -> None:
    old, got_before = deployed(database_url, Order)
    async with old:
        await place(old, ANN)
        assert await old.drain() == 1
    assert got_before == [ANN]
    cls = newer(joined)
    new, got = deployed(database_url, cls)
    async with new:
        (event_id,) = await new.actions.replay(Filter(type="test.order"), to="handler:greet", **WHO)
        assert await new.drain() == 1
        assert await new.actions.replay([event_id], to="handler:greet", **WHO) == [event_id]
        assert await new.drain() == 1
        stored = (await new.insight.event(event_id)).event
    assert got == [cls(order_id="o-1", name="Ann Lee")] * 2
    assert (stored.version, stored.payload) == (1, msgspec.json.encode(ANN))


async def test_a_newer_version_waits_as_a_dead_letter_for_the_newer_code(database_url: str) -> None:
    cls = newer(joined)
    new, got = deployed(database_url, cls)
    old, got_by_old = deployed(database_url, Order)
    async with new, old:
        await place(new, cls(order_id="o-1", name="Ann Lee"))
        await old.drain()
        (letter,) = await old.insight.list(status="dead")
        assert (letter.error or "").startswith("NewerVersion (event.newer_version)")
        assert letter.attempts == 1, "no further attempt of the same code could help"
        assert got_by_old == []
        assert await new.actions.requeue(Filter(status="dead"), **WHO) == [letter.event_id]
        assert await new.drain() == 1
        assert got == [cls(order_id="o-1", name="Ann Lee")]
        assert (await new.insight.counts())["dead"] == 0


def broken(old: dict[str, Any]) -> dict[str, Any]:
    return {"order_id": old["order_id"], "name": old["nickname"]}


def forgetful(old: dict[str, Any]) -> Any:
    old["name"] = "x"


@pytest.mark.parametrize(
    ("step", "said", "line"),
    [(broken, "KeyError", 1), (forgetful, "ContractViolation (handler.contract_violation)", 0)],
    ids=["it raises", "it returns nothing"],
)
async def test_an_upcast_that_fails_is_told_with_its_place_and_can_be_repaired(
    database_url: str, step: Any, said: str, line: int
) -> None:
    old, _ = deployed(database_url, Order)
    async with old:
        await place(old, ANN)
    wrong, got_nothing = deployed(database_url, newer(step))
    async with wrong:
        await wrong.drain()
        (letter,) = await wrong.insight.list(status="dead")
    place_of_it = f"{__name__}:{step.__name__}:{step.__code__.co_firstlineno + line}"
    assert (letter.error or "").startswith(f"{said} at {place_of_it}")
    assert got_nothing == []
    cls = newer(joined)
    repaired, got = deployed(database_url, cls)
    async with repaired:
        assert len(await repaired.actions.requeue(Filter(status="dead"), **WHO)) == 1
        assert await repaired.drain() == 1
    assert got == [cls(order_id="o-1", name="Ann Lee")]


async def test_one_event_that_cannot_be_read_does_not_hold_the_others(database_url: str) -> None:
    def picky(old: dict[str, Any]) -> dict[str, Any]:
        if old["first"] == "Ann":
            raise LookupError("who is that")
        return joined(old)

    old, _ = deployed(database_url, Order)
    async with old:
        await place(old, ANN, Order(order_id="o-1", first="Bob", last="Ray"))
    new, got = deployed(database_url, newer(picky))
    async with new:
        assert await new.drain() == 1
        assert [one.name for one in got] == ["Bob Ray"]
        assert (await new.insight.counts())["dead"] == 1


# ---------------------------------------------------------------- at start-up


@pytest.mark.parametrize("begin", ["drain", "run_once", "worker", "run"])
async def test_a_missing_upcast_is_found_before_anything_is_delivered(database_url: str, begin: str) -> None:
    old, _ = deployed(database_url, Order)
    async with old:
        await place(old, ANN)
    new, got = deployed(database_url, newer(version=3))
    async with new:
        with pytest.raises(
            ConfigurationError, match=r"Renewed \(test\.order\) has version 3 .* versions 1, 2"
        ) as refused:
            if begin == "worker":
                async with new.worker():
                    pytest.fail("it began to work")
            else:
                await getattr(new, begin)()
        assert "@upcast(Renewed, 1)" in refused.value.hint
        assert got == []
        assert (await new.insight.counts())["pending"] == 1
        assert await new.insight.workers() == [], "it did not take a place among the workers"


async def test_classes_that_are_only_sent_need_no_upcasts(database_url: str) -> None:
    """A broker gets the stored bytes, whatever their version."""
    app, cls = make_app(database_url), newer()
    app.route(cls)
    async with app:
        await place(app, cls(order_id="o-1", name="Ann"))
        assert await app.drain() == 1
        (message,) = app.broker().messages()
        assert msgspec.json.decode(message.payload)["name"] == "Ann"


async def test_an_app_that_only_appends_is_not_asked(database_url: str) -> None:
    cls = newer()
    app, _ = deployed(database_url, cls)
    async with app:
        await place(app, cls(order_id="o-1", name="Ann"))
        assert (await app.insight.counts())["pending"] == 1


# ---------------------------------------------------------------- the command line


def as_module(monkeypatch: pytest.MonkeyPatch, app: Postlude) -> str:
    module = ModuleType("versions_shop")
    module.app = app  # type: ignore[attr-defined]
    monkeypatch.setitem(__import__("sys").modules, "versions_shop", module)
    return "versions_shop:app"


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    execute(["doctor", "--json", *arguments])
    findings = msgspec.json.decode(capsys.readouterr().out)["checks"]
    return {one["check"]: one for one in findings}


def test_doctor_finds_a_missing_upcast(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = as_module(monkeypatch, deployed(database_url, newer())[0])
    found = checked(capsys, "--app", reference)["event versions"]
    assert found["status"] == "fail"
    assert "Renewed (test.order) has version 2" in found["message"]
    assert "@upcast(Renewed, 1)" in found["hint"]
    reference = as_module(monkeypatch, deployed(database_url, newer(joined))[0])
    assert checked(capsys, "--app", reference)["event versions"]["status"] == "ok"
    assert "event versions" not in checked(capsys, "--database", database_url), "a database has no classes"


def test_run_refuses_to_start_without_an_upcast(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = as_module(monkeypatch, deployed(sqlite_url, newer())[0])
    assert execute(["run", reference, "--once", "--json"]) == 2, "the code that tells a supervisor not to try again"
    assert "@upcast(Renewed, 1)" in capsys.readouterr().out
