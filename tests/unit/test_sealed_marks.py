"""Marks that are easy to overlook: under qualifiers, in classes that are inherited from, under another name."""

from __future__ import annotations

import dataclasses
import time
from typing import Annotated, Any, Final, Generic, NotRequired, Required, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from postlude import ConfigurationError, Event, KeyRing, KeyUnknown, Sealed, event
from postlude.core.codec import encode
from postlude.core.event import spec_of
from postlude.core.sealed import shape_of
from postlude.core.sealing import opened, sealed

Secret = Annotated[str, Sealed()]
T = TypeVar("T")


class Person(msgspec.Struct):
    mail: Secret


P = TypeVar("P", bound=Person)


class Qualified(TypedDict):
    needed: Required[Secret]
    maybe: NotRequired[Secret]


class Bounded(msgspec.Struct, Generic[P]):
    value: P


@dataclasses.dataclass
class Box(Generic[T]):
    value: T


@dataclasses.dataclass
class SecretBox(Box[Secret]):
    size: int


class Computing(pydantic.BaseModel):
    @pydantic.computed_field
    def said(self) -> Secret:
        return "SECRET"


@event(type="test.mark.typed")
class OfTyped(Event):
    value: Qualified


@event(type="test.mark.final")
@dataclasses.dataclass
class OfFinal:
    value: Final[Secret]


@event(type="test.mark.bound")
class OfBound(Event):
    value: Bounded  # type: ignore[type-arg]


@event(type="test.mark.inherited")
class OfInherited(Event):
    value: SecretBox


@event(type="test.mark.computed")
class OfComputed(pydantic.BaseModel):
    value: Computing


@pytest.mark.parametrize(
    "one",
    [
        OfTyped(value={"needed": "SECRET", "maybe": "SECRET"}),
        OfFinal(value="SECRET"),
        OfBound(value=Bounded(value=Person("SECRET"))),
        OfInherited(value=SecretBox("SECRET", 1)),
        OfComputed(value=Computing()),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_mark_is_seen(one: Any) -> None:
    shape = shape_of(spec_of(one))
    assert shape is not None
    assert b"SECRET" not in sealed(encode(one), shape, lambda *_: b'"-"')[0]


def test_other_names_that_pydantic_takes_are_sealed_too() -> None:
    @event(type="test.mark.named")
    class Named(pydantic.BaseModel):
        mail: Secret = pydantic.Field(validation_alias=pydantic.AliasChoices("eMail", pydantic.AliasPath("to", 0)))

    shape = shape_of(spec_of(Named))
    assert shape is not None
    for document in (b'{"eMail":"SECRET"}', b'{"to":["SECRET"]}', b'{"mail":"SECRET"}'):
        assert b"SECRET" not in sealed(document, shape, lambda *_: b'"-"')[0]


def test_names_in_a_mapping_cannot_be_sealed() -> None:
    @event(type="test.mark.mapping")
    class Mapped(Event):
        value: dict[Annotated[str, Sealed()], int]

    with pytest.raises(ConfigurationError, match="names in a mapping"):
        shape_of(spec_of(Mapped))


def test_many_paths_of_a_stranger_cost_little() -> None:
    """What grows with the square of their number took a minute and more of the whole worker."""
    count = 8000
    document = msgspec.json.encode([{"e": 1}] * count)
    before = time.process_time()
    opened(document, [f"/{place}/e" for place in range(count)], lambda _, value: value)
    assert time.process_time() - before < 10


async def test_nothing_but_an_id_is_asked_of_a_key_service() -> None:
    asked: list[str] = []
    with pytest.raises(KeyUnknown):
        await KeyRing(asked.append, active="k1").key("../k1")
    assert asked == []
