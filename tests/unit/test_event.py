from __future__ import annotations

import dataclasses
from typing import Any
from uuid import UUID, uuid4

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postlude import ConfigurationError, Event, InvalidKey, UnknownEvent, event
from postlude.core.event import MAX_KEY, as_key, spec_of, topic_of, type_of


@event(type="order.placed", version=2, key="order_id", entity="order", subjects=("customer_id", "payer_id"))
class OrderPlaced(Event):
    order_id: str
    customer_id: str
    payer_id: str | None = None


def test_the_decorator_tells_everything() -> None:
    spec = spec_of(OrderPlaced)
    placed = OrderPlaced(order_id="o-1", customer_id="c-1")
    assert (spec.type, spec.version, spec.topic) == ("order.placed", 2, "events.order.placed")
    assert spec.key_of(placed) == "o-1"
    assert spec.entity_of("o-1") == "order/o-1"
    assert spec.entity_of(None) == "order"
    assert spec_of(placed) is spec


def test_data_subjects_are_named_once_and_never_by_nothing() -> None:
    spec = spec_of(OrderPlaced)
    assert spec.subjects_of(OrderPlaced(order_id="o", customer_id="c")) == ("c",)
    assert spec.subjects_of(OrderPlaced(order_id="o", customer_id="c", payer_id="c")) == ("c",)
    assert spec.subjects_of(OrderPlaced(order_id="o", customer_id="c", payer_id="p")) == ("c", "p")
    assert spec.subjects_of(OrderPlaced(order_id="o", customer_id="", payer_id=" ")) == ()


def test_without_arguments_the_name_decides() -> None:
    @event
    class StockHTTPChecked2(Event):
        pass

    spec = spec_of(StockHTTPChecked2)
    assert (spec.type, spec.topic) == ("stock.http.checked2", "events.stock.http.checked2")
    assert (spec.version, spec.key, spec.entity, spec.subjects, spec.record_only) == (1, None, None, (), False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OrderPlaced", "order.placed"),
        ("Order", "order"),
        ("HTTPServerStarted", "http.server.started"),
        ("orderPlaced", "order.placed"),
        ("Order_Placed", "order.placed"),
        ("V2Order", "v2.order"),
        ("ABC", "abc"),
    ],
)
def test_a_type_is_the_class_name_in_dotted_snake_case(name: str, expected: str) -> None:
    assert type_of(name) == expected


@given(name=st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,40}", fullmatch=True))
def test_a_type_loses_no_letter_and_is_lower(name: str) -> None:
    made = type_of(name)
    assert made.replace(".", "") == name.replace("_", "").lower()
    assert topic_of(made) == f"events.{made}"


def test_events_are_frozen_and_keyword_only() -> None:
    with pytest.raises(TypeError):
        OrderPlaced("o-1", "c-1")  # type: ignore[call-arg]  # that it must not
    with pytest.raises(AttributeError):
        OrderPlaced(order_id="o", customer_id="c").order_id = "x"  # type: ignore[misc]  # that it must not


def test_dataclass_attrs_and_pydantic_take_the_same_decorator() -> None:
    @event(key="number")
    @dataclasses.dataclass
    class ByDataclass:
        number: int

    @event(key="number")
    @attrs.define
    class ByAttrs:
        number: int

    @event(key="number")
    class ByPydantic(pydantic.BaseModel):
        number: int

    @event(key="number")
    class ByStruct(msgspec.Struct):
        number: int

    for cls in (ByDataclass, ByAttrs, ByPydantic, ByStruct):
        made: Any = cls(number=7)
        assert spec_of(made).key_of(made) == "7"


def test_a_plain_class_is_refused_with_a_hint() -> None:
    with pytest.raises(ConfigurationError) as refused:
        event(type("Plain", (), {}))
    assert "dataclass" in refused.value.hint


@pytest.mark.parametrize(
    "options",
    [
        {"key": "nothing"},
        {"subjects": ("nothing",)},
        {"type": "not a name"},
        {"type": ""},
        {"topic": "not a topic"},
        {"topic": ""},
        {"version": 0},
        {"version": 40_000},
        {"type": "x" * 201},
    ],
)
def test_a_wrong_declaration_is_refused(options: dict[str, Any]) -> None:
    class Something(Event):
        field: str

    with pytest.raises(ConfigurationError):
        event(**options)(Something)


def test_a_subclass_is_not_an_event_by_itself() -> None:
    class Derived(OrderPlaced):
        pass

    for target in (Derived, str, "text", None):
        with pytest.raises(UnknownEvent) as unknown:
            spec_of(target)
        assert unknown.value.hint


@pytest.mark.parametrize(("value", "key"), [("o-1", "o-1"), (7, "7"), (None, None), (UUID(int=5), str(UUID(int=5)))])
def test_keys_are_text_integers_and_uuids(value: object, key: str | None) -> None:
    assert as_key(value) == key


@pytest.mark.parametrize("value", ["", "x" * (MAX_KEY + 1), "a\x00b", True, 1.5, b"x", ["x"], "\ud800"])
def test_other_keys_are_refused(value: object) -> None:
    with pytest.raises(InvalidKey) as refused:
        as_key(value)
    assert refused.value.hint


@given(key=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=MAX_KEY))
def test_every_other_text_is_a_key(key: str) -> None:
    assert as_key(key) == key


def test_two_ids_are_two_keys() -> None:
    assert as_key(uuid4()) != as_key(uuid4())
