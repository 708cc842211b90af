"""Sealed documents: where the tokens stand, what the header says of them, and the keys that follow from a key. Every
byte that is not sealed stays as it is."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from postlude.core.sealed import ANY, Path, Shape
from postlude.errors import BrokenSeal

HEADER = "postlude-sealed"
"""Says what is sealed in the payload, and with which key. Nobody else may write it: what merely looks sealed is not."""
SCHEME = 1
"""AES-256-GCM; nonce, ciphertext and tag in base64."""
TOKEN = "sealed:"  # noqa: S105 - the beginning of a text, and no password
Change = Callable[[Path, bytes], bytes]
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode


class Seal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The header. The key is one of the ring, or the own one of a data subject, who stands there by pseudonym."""

    scheme: int
    key: str | None = None
    subject: str | None = None
    paths: tuple[str, ...]
    within: str | None = None
    """The header that a message came with, whose payload was then sealed whole: it did not fit."""

    @property
    def holder(self) -> str:
        return f"key:{self.key}" if self.subject is None else f"subject:{self.subject}"

    def written(self) -> str:
        return _encode(self).decode()

    @classmethod
    def read(cls, header: str) -> Seal:
        try:
            seal = msgspec.json.decode(header, type=cls)
        except UNREADABLE as error:
            raise BrokenSeal("the header that says what is sealed cannot be read") from error
        if seal.scheme != SCHEME or not seal.paths or (seal.key is None) == (seal.subject is None):
            raise BrokenSeal(f"a seal of scheme {seal.scheme} is not known here")
        return seal


def prefix_of(key: str | None = None) -> str:
    """How the header of what a key of the ring has sealed begins: any, or that one. For databases to look for."""
    begun = f'{{"scheme":{SCHEME},"key":"'
    return begun if key is None else f'{begun}{key}",'


class Places(Protocol):
    """Where something is to be changed in a document."""

    @property
    def is_sealed(self) -> bool: ...
    def child(self, name: str) -> Places | None: ...


class Named:
    """The places that paths name. Each path is looked at once a level, for a stranger may send many."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.is_sealed = () in paths
        self._below: dict[str, list[Path]] = {}
        self._each: Named | None = None
        for first, *rest in filter(None, paths):
            self._below.setdefault(first, []).append(tuple(rest))

    def child(self, name: str) -> Named | None:
        each = self._below.get(ANY, [])
        if name in self._below and name != ANY:
            return Named([*self._below[name], *each])
        if each and self._each is None:
            self._each = Named(each)
        return self._each


def changed(document: bytes, places: Places, change: Change, at: Path = ()) -> bytes:
    """The document with the values at those places changed. Raises msgspec.DecodeError when it is no JSON."""
    if places.is_sealed:
        return change(at, document)
    first = document.lstrip()[:1]
    if first == b"{":
        members = _members.decode(document)
        found = {name: below for name in members if (below := places.child(name)) is not None}
        new = {name: _below(members[name], below, change, (*at, name)) for name, below in found.items()}
        return _encode(members | new) if any(new[name] != members[name] for name in new) else document
    if first == b"[":
        items = _items.decode(document)
        fresh = [
            one if (below := places.child(str(place))) is None else _below(one, below, change, (*at, str(place)))
            for place, one in enumerate(items)
        ]
        return _encode(fresh) if fresh != items else document
    return document


def _below(value: msgspec.Raw, places: Places, change: Change, at: Path) -> msgspec.Raw:
    return msgspec.Raw(changed(bytes(value), places, change, at))


def sealed(document: bytes, shape: Shape, change: Change) -> tuple[bytes, tuple[str, ...]]:
    """The document with every sealed place changed, and the paths that lead there and nowhere else."""
    found: list[Path] = []

    def noted(path: Path, value: bytes) -> bytes:
        found.append(path)
        return change(path, value)

    result = changed(document, shape, noted)
    general = list(dict.fromkeys(shape.general(path) for path in found))
    exact = general if _places_in(result, general) == found else found
    return result, tuple(place_text(path) for path in exact)


def opened(document: bytes, paths: Sequence[str], change: Change) -> bytes:
    """The reverse. A path that leads nowhere is a seal that was broken."""
    known = [path_of(text) for text in paths]
    try:
        found = _places_in(document, known)
        exact = set(found)
        if not all(path in exact or (ANY in path and any(_fits(path, one) for one in found)) for path in known):
            raise BrokenSeal("a sealed part of the payload is gone")
        return changed(document, Named(known), change)
    except UNREADABLE as error:
        raise BrokenSeal("a payload with sealed parts is no JSON any more") from error


def is_kept(document: bytes, paths: Sequence[str], shape: Places | None) -> bool:
    """Does a token stand wherever a path leads, and wherever the shape says that something is sealed?"""
    tokens: set[Path] = set()
    bare: list[Path] = []

    def sealed_there(path: Path, value: bytes) -> bytes:
        content_of(value)
        tokens.add(path)
        return value

    def wanted_there(path: Path, value: bytes) -> bytes:
        if not any(path[:depth] in tokens for depth in range(len(path) + 1)):
            bare.append(path)
        return value

    try:
        opened(document, paths, sealed_there)
        if shape is not None:
            changed(document, shape, wanted_there)
    except (BrokenSeal, *UNREADABLE):
        return False
    return not bare


def place_text(path: Path) -> str:
    """A JSON pointer, with a star where every item or member is meant; `~2` is a star in a name."""
    names = ("*" if name == ANY else name.replace("~", "~0").replace("/", "~1").replace("*", "~2") for name in path)
    return "".join(f"/{name}" for name in names)


def _places_in(document: bytes, paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []

    def noted(path: Path, value: bytes) -> bytes:
        found.append(path)
        return value

    changed(document, Named(paths), noted)
    return found


def _fits(pattern: Path, path: Path) -> bool:
    return len(pattern) == len(path) and all(one in (ANY, name) for one, name in zip(pattern, path, strict=True))


def path_of(text: str) -> Path:
    return tuple(
        ANY if name == "*" else name.replace("~2", "*").replace("~1", "/").replace("~0", "~")
        for name in text.split("/")[1:]
    )


def token(content: bytes) -> bytes:
    """What stands in the place of a sealed value: a JSON text."""
    return _encode(TOKEN + urlsafe_b64encode(content).decode())


def content_of(value: bytes) -> bytes:
    try:
        text = msgspec.json.decode(value, type=str)
        if text.startswith(TOKEN):
            coded = text.removeprefix(TOKEN)
            content = urlsafe_b64decode(coded)
            if urlsafe_b64encode(content).decode() == coded:
                return content
    except (*UNREADABLE, ValueError) as error:
        raise BrokenSeal("what stands in a sealed place was never sealed") from error
    raise BrokenSeal("what stands in a sealed place was never sealed")


def bound_to(holder: str, event_id: UUID, path: Path) -> bytes:
    """What a sealed value belongs to: nowhere else can it be opened."""
    return _encode(("postlude", SCHEME, holder, str(event_id), place_text(path)))


def derived(key: bytes, purpose: str, of: bytes = b"") -> bytes:
    """A key for one purpose, by HKDF-Expand with SHA-256: one key never does two things."""
    return hmac.digest(key, b"postlude " + purpose.encode() + b"\0" + of + b"\x01", "sha256")


def keyed(key: bytes, digest: bytes) -> bytes:
    """The digest of a content that must not be guessed from its digest."""
    return hmac.digest(derived(key, "digest"), digest, "sha256")
