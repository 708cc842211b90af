"""Upcasts: what is refused when they are declared, and what the chain makes of an old payload."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from postlude import ConfigurationError, ContractViolation, Event, NewerVersion, event, upcast
from postlude.core.event import spec_of
from postlude.core.upcast import decode_event, missing, require_upcasts, upcasts_of


def placed(version: int = 3) -> type[Any]:
    """A class of its own for every test: upcasts belong to the class."""

    @event(type="order.placed", version=version)
    class Placed(Event):
        name: str
        total: int = 0

    return Placed


def complete() -> type[Any]:
    """Version 1 had first and last; version 2 a name and a price; version 3 calls the price total."""
    cls = placed()

    @upcast(cls, 1)
    def v1(old: dict[str, Any]) -> dict[str, Any]:
        return {"name": f"{old['first']} {old['last']}", "price": old.get("price", 0)}

    @upcast(cls, 2)
    def v2(old: dict[str, Any]) -> dict[str, Any]:
        old["total"] = old.pop("price")
        return old

    return cls


def same(old: dict[str, Any]) -> dict[str, Any]:
    return old


def listed(old: dict[str, Any]) -> Any:
    return list(old)


# ---------------------------------------------------------------- declaring


@pytest.mark.parametrize("version", [0, -1, 3, 4, "1", None, 1.5])
def test_a_version_that_is_not_below_the_classs_is_refused(version: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Placed has version 3.*" + repr(version)) as refused:
        upcast(placed(), version)
    assert "@event" in refused.value.hint


class Child(placed()):  # type: ignore[misc]  # a class made at run time
    """Not decorated itself."""


@pytest.mark.parametrize("given", [dict, Child, "order.placed", None, same])
def test_what_is_no_event_class_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"upcast\(\) is for event classes") as refused:
        upcast(given, 1)
    assert "@event" in refused.value.hint


def test_an_instance_is_no_class() -> None:
    with pytest.raises(ConfigurationError, match="is for event classes"):
        upcast(placed()(name="x"), 1)


async def eventually(old: dict[str, Any]) -> dict[str, Any]:
    return old


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda: {"name": "x"}, "one argument"),
        (lambda one, two: {}, "one argument"),
        (lambda *, old: {}, "one argument"),
        (eventually, "not a coroutine function"),
        ("same", "not a str"),
        (None, "not a NoneType"),
    ],
)
def test_what_cannot_be_called_with_one_argument_is_refused(function: Any, what: str) -> None:
    cls = placed()
    with pytest.raises(ConfigurationError, match=what) as refused:
        upcast(cls, 1)(function)
    assert "def v1(old: dict) -> dict" in refused.value.hint
    assert not upcasts_of(spec_of(cls))


def test_defaults_more_arguments_builtins_and_callables_are_fine() -> None:
    class Callable:
        def __call__(self, old: dict[str, Any]) -> dict[str, Any]:
            return old

    for function in (lambda old, more=1: old, lambda *every: every[0], dict, Callable()):
        cls = placed()
        assert upcast(cls, 1)(function) is function
        assert dict(upcasts_of(spec_of(cls))) == {1: function}


def test_two_for_one_version_are_refused() -> None:
    cls = placed()
    upcast(cls, 1)(same)
    with pytest.raises(ConfigurationError, match=r"two upcasts of Placed from version 1: .*:same:\d+ and") as refused:
        upcast(cls, 1)(listed)
    assert "remove one" in refused.value.hint
    assert upcasts_of(spec_of(cls))[1] is same


def test_upcasts_belong_to_one_class() -> None:
    parent, other = placed(), placed()
    upcast(parent, 1)(same)
    child = event(type="order.child", version=3)(type("Kid", (parent,), {}))
    assert missing(spec_of(parent)) == [2]
    assert missing(spec_of(other)) == missing(spec_of(child)) == [1, 2]


# ---------------------------------------------------------------- what is missing


def test_a_first_version_and_a_complete_chain_lack_nothing() -> None:
    assert missing(spec_of(placed(1))) == missing(spec_of(complete())) == []
    require_upcasts([spec_of(placed(1)), spec_of(complete())])


def test_everything_that_is_missing_is_said_at_once() -> None:
    @event(type="order.paid", version=2)
    class Paid(Event):
        n: int

    some = placed(4)
    upcast(some, 2)(same)
    with pytest.raises(ConfigurationError) as refused:
        require_upcasts([spec_of(Paid), spec_of(some), spec_of(some), spec_of(complete())])
    assert refused.value.args[0] == (
        "Paid (order.paid) has version 2 and no upcast from version 1; "
        "Placed (order.placed) has version 4 and no upcast from versions 1, 3"
    )
    assert "@upcast(Paid, 1), @upcast(Placed, 1)" in refused.value.hint


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("version", "payload"),
    [
        (1, b'{"first":"Ann","last":"Lee","price":7}'),
        (2, b'{"name":"Ann Lee","price":7}'),
        (3, b'{"name":"Ann Lee","total":7}'),
    ],
)
def test_every_version_is_read(version: int, payload: bytes) -> None:
    cls = complete()
    assert decode_event(spec_of(cls), version, payload) == cls(name="Ann Lee", total=7)


def test_the_same_version_goes_through_no_upcast() -> None:
    cls = placed(2)
    upcast(cls, 1)(listed)
    assert decode_event(spec_of(cls), 2, b'{"name":"x"}') == cls(name="x")


def test_a_newer_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(NewerVersion, match=r"order\.placed of version 4: Placed here knows none above 3") as refused:
        decode_event(spec_of(complete()), 4, b'{"name":"x"}')
    assert refused.value.code == "event.newer_version"
    assert "requeue" in refused.value.hint


class AsStruct(Event):
    id: UUID
    price: Decimal


@dataclasses.dataclass
class AsDataclass:
    id: UUID
    price: Decimal


@attrs.define
class AsAttrs:
    id: UUID
    price: Decimal


class AsPydantic(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    id: UUID
    price: Decimal


@pytest.mark.parametrize("cls", [AsStruct, AsDataclass, AsAttrs, AsPydantic])
@pytest.mark.parametrize("price", ["12.30", Decimal("12.30")], ids=["as JSON has it", "as Python has it"])
def test_every_kind_of_class_is_read(cls: Any, price: Any) -> None:
    """An upcast may give JSON values or those that the class has."""
    kind = event(type="order.priced", version=2)(type("Priced", (cls,), {"__module__": __name__}))
    if cls is AsDataclass:
        kind = event(type="order.priced", version=2)(dataclasses.dataclass(kind))
    upcast(kind, 1)(lambda old: {**old, "price": price})
    read = decode_event(spec_of(kind), 1, b'{"id":"00000000-0000-0000-0000-000000000007"}')
    assert (type(read), read.id, read.price) == (kind, UUID(int=7), Decimal("12.30"))


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"null", b"7", b"\xff", b'"text"'])
def test_an_old_payload_that_is_no_object_does_not_fit(payload: bytes) -> None:
    with pytest.raises((ValueError, msgspec.MsgspecError)):
        decode_event(spec_of(complete()), 1, payload)


def test_what_an_upcast_makes_must_fit_the_class() -> None:
    cls = placed(2)
    upcast(cls, 1)(same)
    with pytest.raises(msgspec.ValidationError, match="name"):
        decode_event(spec_of(cls), 1, b'{"first":"Ann"}')


@pytest.mark.parametrize("result", [None, [], "text", {"name": object()}])
def test_an_upcast_that_gives_no_payload_is_named_with_its_place(result: Any) -> None:
    cls = placed(2)

    @upcast(cls, 1)
    def v1(old: dict[str, Any]) -> Any:
        return result

    with pytest.raises(ContractViolation) as refused:
        decode_event(spec_of(cls), 1, b"{}")
    assert refused.value.at == f"{__name__}:v1:{v1.__code__.co_firstlineno}"
    assert refused.value.hint


def test_what_an_upcast_raises_comes_through() -> None:
    with pytest.raises(KeyError, match="first"):
        decode_event(spec_of(complete()), 1, b"{}")


def test_a_version_that_no_upcast_takes_is_named() -> None:
    cls = placed()
    upcast(cls, 1)(same)
    with pytest.raises(ConfigurationError, match="no upcast from version 2") as refused:
        decode_event(spec_of(cls), 1, b'{"name":"x"}')
    assert "@upcast(Placed, 2)" in refused.value.hint


@pytest.mark.parametrize("version", [0, -3])
def test_a_version_that_cannot_be_is_named(version: int) -> None:
    with pytest.raises(ValueError, match=f"says {version}$"):
        decode_event(spec_of(complete()), version, b'{"name":"x"}')
