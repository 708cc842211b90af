"""Marks on the class of a value that its place does not declare."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import pydantic
import pytest

from postlude import Event, NotEncodable, Sealed, event
from postlude.core import undeclared
from postlude.core.event import spec_of
from postlude.core.undeclared import require_declared

Secret = Annotated[str, Sealed()]


class Parent(msgspec.Struct):
    name: str = "n"


class Child(Parent):
    mail: Secret = "SECRET"


class Person(msgspec.Struct):
    mail: Secret = "SECRET"


class LaterPerson(Person):
    size: int = 1


@dataclasses.dataclass
class Data:
    inner: Any = None
    mail: Secret = "SECRET"


class Pair(NamedTuple):
    mail: Secret
    size: int


class Model(pydantic.BaseModel):
    mail: Secret = "SECRET"


class Loose(pydantic.BaseModel, extra="allow"):
    name: str = "n"


class ModelParent(pydantic.BaseModel):
    name: str = "n"


class ModelChild(ModelParent):
    mail: Secret = "SECRET"


class Renamed(msgspec.Struct, rename="camel"):
    some_mail: Secret = "SECRET"


class Listed(msgspec.Struct, array_like=True, tag="l"):
    size: int = 1
    mail: Secret = "SECRET"


@event(type="test.und.any")
class OfAny(Event):
    value: Any
    email: Secret = ""


@event(type="test.und.object")
class OfObject(Event):
    value: object


@event(type="test.und.parent")
class OfParent(Event):
    values: tuple[Parent, ...] = ()


@event(type="test.und.bare")
class OfBare(Event):
    values: list  # type: ignore[type-arg]


@event(type="test.und.mapping")
class OfMapping(Event):
    values: dict[str, Any]


@event(type="test.und.model")
class OfModel(pydantic.BaseModel):
    value: Any = None
    kept: pydantic.SerializeAsAny[ModelParent] = ModelParent()


@event(type="test.und.loose")
class OfLoose(pydantic.BaseModel):
    value: Loose


@event(type="test.und.declared")
class OfDeclared(Event):
    person: Person
    either: Parent | Child | None = None
    whole: Annotated[Any, Sealed()] = None
    many: Sequence[Renamed | Data] = ()


@event(type="test.und.whole", sealed=True)
class OfWhole(Event):
    value: Any


class Item(msgspec.Struct):
    name: str


@event(type="test.und.flat")
class Flat(Event):
    name: str
    sizes: tuple[int, ...] = ()
    item: Item | None = None


@pytest.mark.parametrize(
    ("one", "named"),
    [
        (OfAny(value=Person()), "Person.mail"),
        (OfAny(value=[{"deep": (Person(),)}]), "Person.mail"),
        (OfAny(value=Data()), "Data.mail"),
        (OfAny(value=Pair("SECRET", 1)), "Pair.mail"),
        (OfAny(value=Renamed()), "Renamed.some_mail"),
        (OfAny(value=Listed()), "Listed.mail"),
        (OfObject(value=LaterPerson()), "LaterPerson.mail"),
        (OfParent(values=(Parent(), Child())), "Child.mail"),
        (OfBare(values=[Child()]), "Child.mail"),
        (OfMapping(values={"SECRET": Person()}), "Person.mail"),
        (OfModel(value=Model()), "Model.mail"),
        (OfModel(value=Data()), "Data.mail"),
        (OfModel(kept=ModelChild()), "ModelChild.mail"),
        (OfLoose(value=Loose(more=Model())), "Model.mail"),  # type: ignore[call-arg]
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_what_would_be_written_in_clear_is_refused(one: object, named: str) -> None:
    with pytest.raises(NotEncodable, match=named) as caught:
        require_declared(spec_of(one), one)
    assert type(one).__name__ in str(caught.value)
    assert "SECRET" not in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    "one",
    [
        OfAny(value={"a": [1, "x", None, Parent()]}),
        OfParent(values=(Parent(),)),
        OfDeclared(person=LaterPerson(), either=Child(), whole=Person(), many=[Renamed(), Data()]),
        OfWhole(value=Person()),
        OfModel(value={"a": ModelParent()}),
        OfLoose(value=Loose(more=1)),  # type: ignore[call-arg]
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_is_declared_or_has_no_mark_is_not(one: object) -> None:
    require_declared(spec_of(one), one)


def test_only_events_that_can_hold_such_a_thing_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[object] = []

    def parts(spec: object, value: object, shape: object) -> list[Any]:
        looked.append(value)
        return []

    monkeypatch.setattr(undeclared, "_parts", parts)
    flat, loose = Flat(name="x", item=Item("y")), OfAny(value=1)
    for one in (flat, OfWhole(value=1), loose):
        require_declared(spec_of(one), one)
    assert looked == [loose]

    class LateItem(Item):
        mail: Secret = ""

    require_declared(spec_of(flat), flat)
    assert looked == [loose, flat], LateItem.__name__
