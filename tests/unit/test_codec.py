from __future__ import annotations

import dataclasses
import decimal
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postlude import Event, NotEncodable, event
from postlude.core.codec import CONTENT_TYPE, decode, digest, encode


class Line(msgspec.Struct):
    sku: str
    price: decimal.Decimal


@event
class AsStruct(Event):
    text: str
    at: datetime
    id: UUID
    lines: list[Line]


@event
@dataclasses.dataclass
class AsDataclass:
    text: str
    at: datetime


@event
@attrs.define
class AsAttrs:
    text: str
    at: datetime


@event
class AsPydantic(pydantic.BaseModel):
    text: str
    at: datetime


MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("cls", [AsDataclass, AsAttrs, AsPydantic])
def test_an_event_comes_back_as_it_was(cls: Any) -> None:
    sent = cls(text='"quoted" ✓', at=MOMENT)
    assert decode(cls, encode(sent)) == sent


@given(text=st.text(st.characters(exclude_categories=["Cs"])), prices=st.lists(st.decimals(-1000, 1000, places=2)))
def test_a_struct_comes_back_as_it_was(text: str, prices: list[decimal.Decimal]) -> None:
    sent = AsStruct(text=text, at=MOMENT, id=UUID(int=1), lines=[Line(sku="s", price=price) for price in prices])
    assert decode(AsStruct, encode(sent)) == sent


def test_unknown_fields_of_a_newer_version_are_left_alone() -> None:
    payload = encode(AsDataclass(text="t", at=MOMENT))[:-1] + b',"new":1}'
    assert decode(AsDataclass, payload).text == "t"


@pytest.mark.parametrize("cls", [AsStruct, AsDataclass, AsAttrs, AsPydantic])
@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"{}", b'{"text": 1}', b"\xff", b"null"])
def test_what_does_not_fit_is_a_value_error(cls: Any, payload: bytes) -> None:
    with pytest.raises((ValueError, msgspec.MsgspecError)):
        decode(cls, payload)


def test_what_cannot_be_written_is_refused_with_a_hint() -> None:
    @event
    @dataclasses.dataclass
    class Odd:
        what: Any

    loop: list[Any] = []
    loop.append(loop)
    for what in (object(), loop, "\ud800", {object(): 1}):
        with pytest.raises(NotEncodable) as refused:
            encode(Odd(what))
        assert refused.value.hint


def test_a_pydantic_model_that_cannot_be_written_is_refused_too() -> None:
    @event
    class Odd(pydantic.BaseModel):
        what: Any

    for what in (object(), "\ud800"):
        with pytest.raises(NotEncodable):
            encode(Odd(what=what))


parts = st.tuples(
    st.text(max_size=5), st.integers(1, 99), st.text(max_size=5), st.text(max_size=5), st.binary(max_size=5)
)


@given(one=parts, other=parts)
def test_a_digest_tells_contents_apart(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)


def test_parts_of_a_digest_do_not_run_into_each_other() -> None:
    assert digest("ab", 1, CONTENT_TYPE, "c", b"") != digest("a", 1, CONTENT_TYPE, "bc", b"")
    assert digest("a", 1, CONTENT_TYPE, "b", b"c") != digest("a", 1, CONTENT_TYPE, "bc", b"")
