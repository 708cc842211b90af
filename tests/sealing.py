"""What the tests of sealing share: key rings by name, event classes with sealed parts, an app with keys."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import Annotated, Any
from uuid import UUID

import msgspec

from postlude import Event, KeyRing, Postlude, Sealed, Settings, event
from postlude.core.sealing import HEADER, Seal
from postlude.testing.clock import ManualClock


def key_of(key_id: str) -> bytes:
    return sha256(key_id.encode()).digest()


def ring(*key_ids: str) -> KeyRing:
    """The first is active."""
    return KeyRing.from_env({"POSTLUDE_KEYS": listed(*key_ids)})


def listed(*key_ids: str) -> str:
    return ",".join(f"{one}:{b64encode(key_of(one)).decode()}" for one in key_ids)


class Address(msgspec.Struct, frozen=True):
    street: Annotated[str, Sealed()]
    country: str


@event(type="test.signed_up", key="user_id", subjects=("person",))
class SignedUp(Event):
    user_id: str
    email: Annotated[str, Sealed()]
    person: str | None = None
    homes: tuple[Address, ...] = ()


@event(type="test.whole", sealed=True, record_only=True)
class Whole(Event):
    note: str


def app_with(url: str, keys: KeyRing | None, **settings: Any) -> Postlude:
    settings.setdefault("retry", {"base_delay_seconds": 0, "jitter_factor": 0})
    options = Settings.load(environ={}, **settings)
    app = Postlude(url, broker="memory://", settings=options, keys=keys)
    app.clock = ManualClock()
    return app


def handled(app: Postlude) -> list[SignedUp]:
    """What a handler was given."""
    got: list[SignedUp] = []

    @app.on(SignedUp, name="welcome")
    async def welcome(signed: SignedUp) -> None:
        got.append(signed)

    return got


async def append(app: Postlude, one: object, **options: Any) -> UUID:
    async with app.transaction() as tx:
        return await app.outbox.append(tx, one, **options)


async def stored(app: Postlude, event_id: UUID) -> Any:
    return (await app.insight.event(event_id)).event


async def seal_of(app: Postlude, event_id: UUID) -> Seal:
    return Seal.read((await stored(app, event_id)).headers[HEADER])


async def dead_codes(app: Postlude, event_id: UUID) -> list[str]:
    """Of its deliveries, as an operator sees them."""
    found = (await app.insight.event(event_id)).deliveries
    assert all(one.status == "dead" for one in found)
    return [str(one.error) for one in found]


def taking(got: list[Any]) -> Any:
    async def take(one: Any) -> None:
        got.append(one)

    return take
