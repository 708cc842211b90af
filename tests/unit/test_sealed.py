"""Which places of a document are sealed, for every kind of class; what the header says; what masking leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postlude import BrokenSeal, ConfigurationError, Event, NotEncodable, Postlude, Sealed, event
from postlude.core.codec import encode
from postlude.core.delivery import StoredEvent
from postlude.core.envelope import check_headers
from postlude.core.event import spec_of
from postlude.core.masking import masked_payload
from postlude.core.sealed import Shape, shape_of
from postlude.core.sealing import HEADER, Seal, content_of, opened, path_of, place_text, prefix_of, sealed, token

T = TypeVar("T")
Email = NewType("Email", str)
Secret = Annotated[str, Sealed()]


class Inner(msgspec.Struct, rename="camel"):
    e_mail: Secret
    below: list[Inner] = []


class Pair(NamedTuple):
    left: str
    right: Secret


class Typed(TypedDict):
    open: int
    hidden: Secret


class Row(msgspec.Struct, array_like=True, tag=True):
    open: int
    hidden: Secret


class Root(pydantic.RootModel[list[Annotated[int, Sealed()]]]):
    pass


class Box(msgspec.Struct, Generic[T]):
    value: T


@dataclasses.dataclass
class Carton(Generic[T]):
    values: list[T]
    plain: str = "p"


@event
class OfMsgspec(Event):
    name: Secret
    maybe: Annotated[int, Sealed()] | None
    inner: Inner
    many: list[Inner]
    by_name: dict[str, Inner]
    pair: Pair
    typed: Typed
    row: Row
    box: Box[Secret]
    carton: Carton[Secret]
    fixed: tuple[int, Secret]
    email: Annotated[Email, Sealed()]
    whole: Annotated[list[str], Sealed()]
    plain: str = "plain"


@event
@dataclasses.dataclass
class OfDataclass:
    name: Secret
    inners: list[Inner]
    plain: int = 1


@event
@attrs.define
class OfAttrs:
    name: Secret
    inner: Inner
    plain: int = 1


class Model(pydantic.BaseModel):
    hidden: Secret
    open: str = "open"


@event
class OfPydantic(pydantic.BaseModel):
    name: Annotated[str, Sealed()]
    models: list[Model]
    maybe: Secret | None = None
    numbers: Root = Root([1, 2])


def shape(cls: type[Any]) -> Shape:
    found = shape_of(spec_of(cls))
    assert found is not None
    return found


def sealed_parts(one: object) -> tuple[bytes, tuple[str, ...]]:
    return sealed(encode(one), shape(type(one)), lambda _, value: token(value))


INSTANCES: list[tuple[object, set[str]]] = [
    (
        OfMsgspec(
            name="n", maybe=None, inner=Inner("i", [Inner("j")]), many=[Inner("k"), Inner("l")],
            by_name={"a/b*~": Inner("m")}, pair=Pair("open", "r"), typed={"open": 1, "hidden": "t"}, row=Row(1, "w"),
            box=Box("b"), carton=Carton(["c", "d"]), fixed=(1, "f"), email=Email("e"), whole=["x", "y"],
        ),
        {
            "/name", "/maybe", "/inner/eMail", "/inner/below/*/eMail", "/many/*/eMail", "/by_name/*/eMail", "/pair/1",
            "/typed/hidden", "/row/2", "/box/value", "/carton/values/*", "/fixed/1", "/email", "/whole",
        },
    ),
    (OfDataclass("n", [Inner("i")]), {"/name", "/inners/*/eMail"}),
    (OfAttrs("n", Inner("i")), {"/name", "/inner/eMail"}),
    (OfPydantic(name="n", models=[Model(hidden="h")]), {"/name", "/models/*/hidden", "/maybe", "/numbers/*"}),
]  # fmt: skip


@pytest.mark.parametrize(("instance", "paths"), INSTANCES, ids=lambda value: type(value).__name__)
def test_every_kind_of_class_has_its_sealed_places(instance: object, paths: set[str]) -> None:
    document, found = sealed_parts(instance)
    assert set(found) == paths
    assert opened(document, found, lambda _, value: content_of(value)) == encode(instance)


def test_a_class_without_sealed_places_has_no_shape() -> None:
    @event
    class Plain(Event):
        name: str
        again: tuple[str, ...] = ()

    assert shape_of(spec_of(Plain)) is None


def test_what_only_a_type_checker_knows_cannot_be_told() -> None:
    @event
    @dataclasses.dataclass
    class Strange:
        name: NotThere  # type: ignore[name-defined]  # noqa: F821 - that is the point

    assert shape(Strange).is_unresolved


@pytest.mark.parametrize(
    "options",
    [
        {"key": "email"},
        {"subjects": ("email",)},
        {"key": "email", "sealed": True},
        {"subjects": ("email",), "sealed": True},
    ],
)
def test_what_is_stored_in_clear_cannot_be_sealed(options: dict[str, Any]) -> None:
    @event(**options)
    class Signed(Event, rename="camel"):
        email: Secret

    with pytest.raises(ConfigurationError, match="stored in clear"):
        shape_of(spec_of(Signed))


def test_a_route_cannot_be_ordered_by_what_is_sealed() -> None:
    app = Postlude("sqlite:///never.db", broker="memory://")
    with pytest.raises(ConfigurationError, match="a key is stored in clear"):
        app.route(OfMsgspec, key="name")


class Cat(msgspec.Struct, tag=True):
    name: str
    chip: Secret


class Dog(msgspec.Struct, tag=True):
    name: Secret


@event
class Adopted(Event):
    pets: list[Cat | Dog]
    loose: dict[str, Secret] | Model2


class Model2(msgspec.Struct):
    tame: int
    name: str


def test_where_one_of_several_types_is_sealed_all_are() -> None:
    one = Adopted(pets=[Cat("tom", "c1"), Dog("rex")], loose=Model2(tame=1, name="n"))
    document, paths = sealed_parts(one)
    assert b"rex" not in document
    assert b"tom" not in document
    assert opened(document, paths, lambda _, value: content_of(value)) == encode(one)


# ---------------------------------------------------------------- documents

NAMES = st.text(st.sampled_from("ab*/~0é\U0001f600"), max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


class Tree(msgspec.Struct):
    open: Any = None
    hidden: Annotated[Any, Sealed()] = None
    each: list[Tree] = []
    by: dict[str, Tree | Annotated[int, Sealed()]] = {}


@event
class Planted(Event):
    tree: Tree


TREES = st.recursive(
    st.builds(Tree, open=VALUES, hidden=VALUES),
    lambda inner: st.builds(
        Tree,
        open=VALUES,
        hidden=VALUES,
        each=st.lists(inner, max_size=2),
        by=st.dictionaries(NAMES, inner | st.integers(), max_size=2),
    ),
    max_leaves=6,
)


@given(TREES)
def test_what_was_sealed_is_opened_byte_by_byte(tree: Tree) -> None:
    one = Planted(tree=tree)
    plain = encode(one)
    places: list[tuple[str, ...]] = []

    def change(path: tuple[str, ...], value: bytes) -> bytes:
        places.append(path)
        return token(value)

    document, paths = sealed(plain, shape(Planted), change)
    reopened: list[tuple[str, ...]] = []

    def back(path: tuple[str, ...], value: bytes) -> bytes:
        reopened.append(path)
        return content_of(value)

    assert opened(document, paths, back) == plain
    assert reopened == places


@given(st.lists(NAMES, max_size=4).map(tuple))
def test_a_place_is_written_and_read(path: tuple[str, ...]) -> None:
    assert path_of(place_text(path)) == path


def test_what_is_not_sealed_keeps_every_digit() -> None:
    plain = b'{"name":"n","amount":1.10,"big":123456789012345678901234567890,"text":"\\u00e9"}'
    document, paths = sealed(plain, shape(OfDataclass), lambda _, value: token(value))
    assert document.endswith(b'"amount":1.10,"big":123456789012345678901234567890,"text":"\\u00e9"}')
    assert opened(document, paths, lambda _, value: content_of(value)) == plain


@pytest.mark.parametrize(
    "value", [b'"plain"', b'"sealed:"x', b"7", b'"sealed:%%%"', b'"sealed:YQ"', b'"sealed:YR=="', b'"sealed:\xff"']
)
def test_what_was_never_sealed_is_told(value: bytes) -> None:
    with pytest.raises(BrokenSeal):
        content_of(value)


@pytest.mark.parametrize("document", [b'{"other":1}', b"[]", b"null", b"{", b'{"name":{}}'])
def test_a_sealed_part_that_is_gone_is_told(document: bytes) -> None:
    with pytest.raises(BrokenSeal):
        opened(document, ["/name"], lambda _, value: content_of(value))


@pytest.mark.parametrize(
    "header",
    [
        "", "x", "{}", '{"scheme":2,"key":"k","paths":["/a"]}', '{"scheme":1,"paths":["/a"]}',
        '{"scheme":1,"key":"k","paths":[]}', '{"scheme":1,"key":"k","subject":"s","paths":["/a"]}',
    ],
)  # fmt: skip
def test_a_header_that_says_nothing_is_told(header: str) -> None:
    with pytest.raises(BrokenSeal):
        Seal.read(header)


def test_a_header_is_found_by_how_it_begins() -> None:
    text = Seal(scheme=1, key="k1", paths=("/a",)).written()
    assert text.startswith(prefix_of())
    assert text.startswith(prefix_of("k1"))
    assert not text.startswith(prefix_of("k"))
    assert not Seal(scheme=1, subject="s", paths=("/a",)).written().startswith(prefix_of())


def test_nobody_else_may_write_the_header() -> None:
    with pytest.raises(NotEncodable, match="set by Postlude"):
        check_headers({HEADER: "x"})


# ---------------------------------------------------------------- masking


def _event(payload: bytes, paths: Sequence[str] = ()) -> StoredEvent:
    headers = {HEADER: Seal(scheme=1, key="k", paths=tuple(paths)).written()} if paths else {}
    now = datetime.now(UTC)
    return StoredEvent(
        UUID(int=1), "t", 1, "s", None, None, "t", "application/json", payload, headers, "", None, None, now
    )


def test_masked_payloads_have_names_and_shape_only() -> None:
    payload = b'{"name":"Ann","age":7,"tall":true,"none":null,"tags":["a",1.5],"email":"sealed:eA=="}'
    assert masked_payload(_event(payload, ["/email"])) == {
        "name": "<text>",
        "age": "<number>",
        "tall": "<boolean>",
        "none": None,
        "tags": ["<text>", "<number>"],
        "email": "<sealed>",
    }
    assert masked_payload(_event(b'"sealed:eA=="', [""])) == "<sealed>"


@pytest.mark.parametrize(("payload", "paths"), [(b"\xff\x00", []), (b"Ann", []), (b'{"a":1}', ["/gone"])])
def test_of_what_cannot_be_read_only_the_size_is_said(payload: bytes, paths: list[str]) -> None:
    assert masked_payload(_event(payload, paths)) == f"<{len(payload)} bytes>"
