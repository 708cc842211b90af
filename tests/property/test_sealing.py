"""Whatever is sealed opens where it was sealed, and nowhere else; any change of it is found."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from postlude import BrokenSeal, CannotOpen, KeyRing, KeyUnknown
from postlude.core.at_once import at_once
from postlude.core.codec import CONTENT_TYPE, digest, encode
from postlude.core.delivery import NORMAL, StoredEvent
from postlude.core.event import spec_of
from postlude.core.sealing import HEADER, TOKEN, content_of, token
from postlude.ports.append import Prepared
from postlude.privacy.sealer import Sealer, SealerParts
from tests.sealing import Address, SignedUp, Whole, ring

ID = UUID(int=7)
EVENTS = st.builds(Whole, note=st.text()) | st.builds(
    SignedUp,
    user_id=st.text(min_size=1, max_size=5),
    email=st.text(),
    homes=st.lists(st.builds(Address, street=st.text(), country=st.text()), max_size=3).map(tuple),
)


def sealer(keys: KeyRing | None) -> Sealer:
    def nothing() -> Any:
        raise AssertionError("no database is asked where there is no data subject")

    return Sealer(keys, SealerParts(nothing, nothing, nothing), max_bytes=1_000_000)


def prepared(one: object, event_id: UUID = ID) -> Prepared:
    spec = spec_of(one)
    payload = encode(one)
    return Prepared(
        event_id, spec.type, 1, "s", None, None, "t", CONTENT_TYPE, payload,
        digest(spec.type, 1, CONTENT_TYPE, None, payload), "{}", "", None, None, (), NORMAL, None, None, (), seals=spec,
    )  # fmt: skip


def sealed(one: object, *keys: str, event_id: UUID = ID) -> Prepared:
    (found,) = at_once(sealer(ring(*(keys or ("k1",)))).seal(_no_database, [prepared(one, event_id)]))
    return found


async def _no_database(_: object) -> None:
    raise AssertionError("no database is asked where there is no data subject")


def as_stored(one: Prepared) -> StoredEvent:
    headers = msgspec.json.decode(one.headers)
    now = datetime.now(UTC)
    return StoredEvent(
        one.event_id, one.type, 1, "s", None, None, "t", CONTENT_TYPE, one.payload, headers, "", None, None, now
    )


def opened(event: StoredEvent, *keys: str) -> StoredEvent | CannotOpen:
    (found,) = at_once(sealer(ring(*keys) if keys else None).open([event]))
    return found


@given(EVENTS)
def test_what_is_sealed_is_opened_with_the_same_ring(one: Any) -> None:
    plain = opened(as_stored(sealed(one)), "k2", "k1")
    assert isinstance(plain, StoredEvent)
    assert plain.payload == encode(one)
    assert HEADER not in plain.headers


@given(EVENTS)
def test_nothing_of_it_is_there_in_clear(one: Any) -> None:
    marked = replace(one, note="marked ann") if isinstance(one, Whole) else replace(one, email="marked ann")
    found = sealed(marked)
    assert b"marked" not in found.payload
    assert found.digest != prepared(marked).digest, "a digest that anybody can make tells what was said"


@given(EVENTS, st.data())
def test_any_changed_byte_is_found(one: Any, data: st.DataObject) -> None:
    stored = as_stored(sealed(one))
    text = stored.payload.decode()
    start = text.index(TOKEN) + len(TOKEN)
    coded = text[start : text.index('"', start)]
    content = bytearray(content_of(msgspec.json.encode(TOKEN + coded)))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    changed = text.replace(TOKEN + coded, msgspec.json.decode(token(bytes(content))))
    assert isinstance(opened(replace(stored, payload=changed.encode()), "k1"), BrokenSeal)


@given(EVENTS)
def test_a_token_belongs_to_its_event(one: Any) -> None:
    stored = as_stored(sealed(one))
    assert isinstance(opened(replace(stored, event_id=UUID(int=8)), "k1"), BrokenSeal)


@given(st.text(), st.text())
def test_a_token_belongs_to_its_place(first: str, second: str) -> None:
    homes = (Address(first, "x"), Address(second, "x"))
    stored = as_stored(sealed(SignedUp(user_id="u", email=first, homes=homes)))
    body = msgspec.json.decode(stored.payload)
    one, two = body["homes"]
    one["street"], two["street"] = two["street"], one["street"]
    assert isinstance(opened(replace(stored, payload=msgspec.json.encode(body)), "k1"), BrokenSeal)


@given(EVENTS)
def test_another_key_does_not_open_it(one: Any) -> None:
    stored = as_stored(sealed(one))
    assert isinstance(opened(stored, "k2"), KeyUnknown)
    assert isinstance(opened(stored), KeyUnknown)
    other = {HEADER: stored.headers[HEADER].replace('"k1"', '"k2"')}
    assert isinstance(opened(replace(stored, headers=other), "k1", "k2"), BrokenSeal)


@given(EVENTS)
def test_the_same_content_is_known_again_after_a_rotation(one: Any) -> None:
    before = sealed(one, "k1")
    assert sealed(one, "k1").is_as(before.digest)
    assert sealed(one, "k2", "k1").is_as(before.digest)
    assert not sealed(one, "k2").is_as(before.digest)
    assert sealed(one, "k2", "k1").is_as(prepared(one).digest), "as it was before the class had sealed parts"


@given(EVENTS, EVENTS)
def test_other_content_is_other(one: Any, other: Any) -> None:
    if encode(one) != encode(other) or type(one) is not type(other):
        assert not sealed(one, "k1", "k0").is_as(sealed(other, "k1").digest)
