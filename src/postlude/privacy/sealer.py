"""Sealing before events are stored, and opening for those who may read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from postlude.core.codec import digest
from postlude.core.delivery import StoredEvent
from postlude.core.envelope import stored_headers
from postlude.core.event import EventSpec
from postlude.core.pseudonym import pseudonym
from postlude.core.sealed import Shape, has_sealed_parts, shape_of
from postlude.core.sealing import (
    HEADER,
    SCHEME,
    UNREADABLE,
    Change,
    Named,
    Seal,
    bound_to,
    changed,
    content_of,
    derived,
    keyed,
    opened,
    path_of,
    sealed,
    token,
)
from postlude.errors import (
    BrokenSeal,
    CannotOpen,
    ConfigurationError,
    KeysUnavailable,
    KeyUnknown,
    PayloadTooLarge,
)
from postlude.ports.append import Prepared
from postlude.ports.privacy import Play, Resealed, Subjects, SubjectScripts
from postlude.ports.scripts import Scripts
from postlude.privacy import cipher
from postlude.privacy.came_sealed import about, fitting, subjects_in
from postlude.privacy.keyring import KeyRing
from postlude.privacy.subject_keys import NO_RING, SubjectKeys, Wrapped

WHOLE = Shape([], is_sealed=True)


class SealerParts(msgspec.Struct, frozen=True):
    """What a database gives."""

    scripts: Callable[[], Scripts]
    subject_scripts: Callable[[], SubjectScripts]
    subjects: Callable[[], Subjects]


class Sealer:
    """Of one database. No key of a data subject is kept longer than a call, so that shredding works at once."""

    def __init__(self, ring: KeyRing | None, parts: SealerParts, *, max_bytes: int) -> None:
        self.ring = ring
        self.keys = SubjectKeys(ring)
        self._parts = parts
        self._max_bytes = max_bytes
        self._pseudonym_key: bytes | None = None

    def forget(self) -> None:
        """The next database may be another one."""
        self._pseudonym_key = None

    async def pseudonym_of(self, play: Play, subject_id: str) -> str:
        if self._pseudonym_key is None:
            self._pseudonym_key = await play(self._parts.scripts().pseudonym_key())
        return pseudonym(self._pseudonym_key, subject_id)

    # ------------------------------------------------------------ sealing

    async def seal(self, play: Play, prepared: Sequence[Prepared], *, from_afar: bool = False) -> list[Prepared]:
        seals: dict[int, Seal] = {}
        shapes: dict[int, Shape] = {}
        done = list(prepared)
        for place, one in enumerate(prepared):
            if one.seals is None:
                continue
            if (said := stored_headers(one.headers).get(HEADER)) is not None:
                done[place] = about(one)
                if (seal := fitting(one, one.seals, said)) is not None:
                    seals[place] = seal
                elif self.ring is not None:  # what should be sealed may be open; whoever handles it says so
                    shapes[place] = WHOLE
            elif (shape := self._shape(one)) is not None:
                shapes[place] = shape
        if not shapes and not seals:
            return done
        names = {place: await self.pseudonym_of(play, done[place].subjects[0])
                 for place in shapes if len(done[place].subjects) == 1}  # fmt: skip
        came = {seal.subject for seal in seals.values() if seal.subject is not None}
        wrapped = await self.keys.of_subjects(play, self._parts.subject_scripts, set(names.values()), came)
        for place, shape in shapes.items():
            done[place] = await self._sealed(done[place], shape, names.get(place), wrapped, from_afar=from_afar)
        for place, seal in seals.items():
            done[place] = await self._received(done[place], seal, wrapped)
        return done

    def _shape(self, one: Prepared) -> Shape | None:
        if one.seals is None or (shape := shape_of(one.seals)) is None:
            return None
        if shape.is_unresolved:
            if self.ring is None and not shape.names_mark:
                return None
            raise ConfigurationError(
                f"the annotations of {one.seals.cls.__qualname__} name something that is not there at run time",
                hint="Nobody can tell which of its fields are sealed: import what they name, not for type checkers only.",
            )
        if self.ring is None:
            raise ConfigurationError(f"{one.type} has sealed parts, and there is no key ring", hint=NO_RING)
        # A message of another version may have other names for what is sealed.
        return shape if one.version == one.seals.version else WHOLE

    async def _sealed(
        self, one: Prepared, shape: Shape, subject: str | None, wrapped: Wrapped, *, from_afar: bool
    ) -> Prepared:
        if subject is None:
            key_id, key = await self.keys.ring.active()
            seal = Seal(scheme=SCHEME, key=key_id, paths=("",))
        else:
            seal = Seal(scheme=SCHEME, subject=subject, paths=("",))
            if from_afar and (known := wrapped.get(subject)) is not None and known.is_shredded:
                # Others do not know yet. It is taken, and nobody will ever open it: the key is kept nowhere.
                one, key = replace(one, is_lost=True), cipher.new_key()
            else:
                key = await self.keys.unwrapped(wrapped.get(subject))
        change = _sealing(seal, one.event_id, key)
        try:
            payload, paths = sealed(one.payload, shape, change)
        except UNREADABLE:  # nobody can tell what is personal in it; its handler makes a dead letter of it
            payload, paths = sealed(one.payload, WHOLE, change)
        if not paths:
            return one
        if len(payload) > self._max_bytes and not from_afar:
            raise PayloadTooLarge(
                f"{one.type} has {len(payload)} bytes when it is sealed; payload.max_bytes is {self._max_bytes}"
            )
        headers = stored_headers(one.headers)
        headers |= {HEADER: replace(seal, paths=paths, within=headers.get(HEADER)).written()}
        also = (one.digest, *await self._keyed_otherwise(one.digest, seal))
        text = msgspec.json.encode(headers).decode()
        return replace(one, payload=payload, headers=text, digest=keyed(key, one.digest), also=also)

    async def sealed_again(self, event: StoredEvent, plain: bytes, content: bytes, key_id: str) -> Resealed:
        """At the same places, with another key of the ring."""
        was = event.headers[HEADER]
        key = await self.keys.ring.key(key_id)
        seal = replace(Seal.read(was), key=key_id, subject=None)
        change = _sealing(seal, event.event_id, key)
        places = Named([path_of(text) for text in seal.paths])
        return Resealed(event.event_id, was, seal.written(), changed(plain, places, change), keyed(key, content))

    async def _received(self, one: Prepared, seal: Seal, wrapped: Wrapped) -> Prepared:
        """It came sealed and stays so. Who can open it knows its content, and whom it speaks of."""
        try:
            key = await self.keys.of(seal, wrapped)
            plain = _opened(one.payload, one.event_id, seal, key)
        except CannotOpen:  # likewise
            return one
        except KeysUnavailable:
            if one.subjects or one.seals is None or not one.seals.subjects:
                return one
            raise  # stored now, it would not be found when one of them is redacted
        content = digest(one.type, one.version, one.content_type, one.key, plain)
        also = (one.digest, *await self._keyed_otherwise(content, seal))
        subjects = one.subjects or subjects_in(one, plain)
        return replace(one, digest=keyed(key, content), also=also, subjects=subjects)

    async def _keyed_otherwise(self, content: bytes, seal: Seal) -> list[bytes]:
        """The same content may have been sealed before the ring was rotated."""
        if self.ring is None or seal.key is None:
            return []
        active, _ = await self.ring.active()
        found: list[bytes] = []
        for key_id in {active, *self.ring.older} - {seal.key}:
            try:
                found.append(keyed(await self.ring.key(key_id), content))
            except KeyUnknown:
                continue
        return found

    # ------------------------------------------------------------ opening

    async def open(self, events: Sequence[StoredEvent]) -> list[StoredEvent | CannotOpen]:
        """As they were appended, or sent."""
        done = await self.open_outer(events)
        came = {place: one for place, one in enumerate(done) if isinstance(one, StoredEvent) and HEADER in one.headers}
        for place, one in zip(came, await self.open_outer(list(came.values())), strict=True):
            is_open = isinstance(one, CannotOpen) or HEADER not in one.headers
            done[place] = one if is_open else BrokenSeal("the header that says what is sealed cannot be read")
        return done

    async def open_outer(self, events: Sequence[StoredEvent]) -> list[StoredEvent | CannotOpen]:
        """What was sealed here. A message that came sealed otherwise than its header said is as it came."""
        if not any(HEADER in event.headers for event in events):
            return list(events)
        seals: dict[int, Seal] = {}
        done: list[StoredEvent | CannotOpen] = list(events)
        for place, event in enumerate(events):
            if HEADER in event.headers:
                try:
                    seals[place] = Seal.read(event.headers[HEADER])
                except CannotOpen as error:
                    done[place] = error
        subjects = sorted({seal.subject for seal in seals.values() if seal.subject is not None})
        wrapped = await self._parts.subjects().keys(subjects) if subjects and self.ring is not None else {}
        for place, seal in seals.items():
            try:
                done[place] = await self._open(events[place], seal, wrapped)
            except CannotOpen as error:
                done[place] = error
        return done

    async def _open(self, event: StoredEvent, seal: Seal, wrapped: Wrapped) -> StoredEvent:
        plain = _opened(event.payload, event.event_id, seal, await self.keys.of(seal, wrapped))
        headers = {name: value for name, value in event.headers.items() if name != HEADER}
        if seal.within is not None:
            headers[HEADER] = seal.within
        return replace(event, payload=plain, headers=headers)


def require_keys(specs: Iterable[EventSpec], ring: KeyRing | None) -> None:
    """Refuse classes with sealed parts where nobody could open them."""
    for spec in specs:
        if not has_sealed_parts(spec):
            continue
        if ring is None:
            raise ConfigurationError(
                f"{spec.cls.__name__} ({spec.type}) has sealed parts, a handler takes it, and there is no key ring",
                hint=NO_RING,
            )
        cipher.require()


def _sealing(seal: Seal, event_id: UUID, key: bytes) -> Change:
    """Every event has a key of its own, so that no nonce is ever used twice with one."""
    own = derived(key, "seal", event_id.bytes)
    return lambda path, value: token(cipher.encrypt(own, value, bound_to(seal.holder, event_id, path)))


def _opened(payload: bytes, event_id: UUID, seal: Seal, key: bytes) -> bytes:
    own = derived(key, "seal", event_id.bytes)
    return opened(
        payload,
        seal.paths,
        lambda path, value: cipher.decrypt(own, content_of(value), bound_to(seal.holder, event_id, path)),
    )
