"""Key rings: keys by id, one of them active. From the environment, a file, or a callable that asks a key service."""

from __future__ import annotations

import inspect
import os
import re
import stat
import time
import tomllib
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from postlude.errors import ConfigurationError, KeysUnavailable, KeyUnknown
from postlude.privacy.cipher import KEY_BYTES

VARIABLE = "POSTLUDE_KEYS"
HINT = f"A key is an id and {KEY_BYTES} random bytes in base64, as in k1:$(openssl rand -base64 {KEY_BYTES})."
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_OTHERS_MAY_READ = stat.S_IRWXG | stat.S_IRWXO

Find = Callable[[str], bytes | Awaitable[bytes | None] | None]
"""The key of an id; None or a LookupError: there is none."""
Active = str | Callable[[], str | Awaitable[str]]


class KeyRing:
    """What is new is sealed with the active key; every other key opens what was sealed with it.

    `find` gives the key of an id and may be a coroutine function, `active` the id of the active key, `older` the ids
    before it, newest first. What was found is remembered for `cache_seconds`, and of `cache_size` keys at most.
    """

    def __init__(
        self,
        find: Find,
        *,
        active: Active = "default",
        older: Sequence[str] = (),
        cache_seconds: float = 300.0,
        cache_size: int = 64,
    ) -> None:
        self._find = find
        self._active = active
        self.older = tuple(map(_checked_id, older))
        self._cache_seconds = cache_seconds
        self._cache_size = max(1, cache_size)
        self._known: dict[str, tuple[float, bytes]] = {}
        self._now_active: tuple[float, str] | None = None
        self._clock = time.monotonic

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> KeyRing:
        """`POSTLUDE_KEYS="k2:BASE64,k1:BASE64"`; the first is active."""
        text = (os.environ if environ is None else environ).get(VARIABLE, "")
        return cls._of([_pair(part, VARIABLE) for part in text.split(",") if part.strip()], VARIABLE)

    @classmethod
    def from_file(cls, path: str | Path) -> KeyRing:
        """Lines `k2:BASE64`, or TOML `k2 = "BASE64"`; the first is active. Nobody but its owner may read the file."""
        file = Path(path)
        try:
            with file.open("rb") as opened:
                mode = os.fstat(opened.fileno()).st_mode
                text = opened.read().decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ConfigurationError(f"the keys in {file} cannot be read: {reason}", hint=HINT) from None
        if mode & _OTHERS_MAY_READ:
            raise ConfigurationError(
                f"{file} holds keys, and others than its owner may use it (mode {stat.S_IMODE(mode):o})",
                hint=f"chmod 600 {file}",
            )
        return cls._of(_pairs(text, str(file)), str(file))

    @classmethod
    def _of(cls, pairs: Sequence[tuple[str, bytes]], where: str) -> KeyRing:
        keys = dict(pairs)
        if not pairs or len(keys) < len(pairs):
            what = f"two keys in {where} have one id" if pairs else f"there is no key in {where}"
            raise ConfigurationError(what, hint=HINT)
        active, *older = keys
        return cls(keys.get, active=active, older=older, cache_seconds=float("inf"), cache_size=len(keys))

    def __repr__(self) -> str:
        return f"KeyRing(active={self._active if isinstance(self._active, str) else '...'})"

    async def active(self) -> tuple[str, bytes]:
        """Id and key."""
        known = self._now_active
        if known is None or known[0] <= self._clock():
            given = self._active
            key_id = given if isinstance(given, str) else await _asked(given, "the id of the active key")
            known = self._now_active = (self._clock() + self._cache_seconds, _checked_id(key_id))
        return known[1], await self.key(known[1])

    async def key(self, key_id: str) -> bytes:
        """Raises KeyUnknown, and KeysUnavailable when the callable fails."""
        if not _ID.fullmatch(key_id):  # it may come from a message: nothing else is asked for
            raise KeyUnknown("what should be the id of a key is none")
        known = self._known.get(key_id)
        if known is not None and known[0] > self._clock():
            return known[1]
        try:
            found = await _asked(lambda: self._find(key_id), f"key {key_id!r}", passes=LookupError)
        except LookupError:
            found = None
        if found is None:
            raise KeyUnknown(f"there is no key {key_id[:64]!r} in the key ring")
        key = _checked_key(found, key_id)
        self._known.pop(key_id, None)
        while len(self._known) >= self._cache_size:
            del self._known[next(iter(self._known))]
        self._known[key_id] = (self._clock() + self._cache_seconds, key)
        return key


def ring_of(file: str | None) -> KeyRing | None:
    """As the settings or the environment say; None: they say nothing."""
    if file is not None:
        return KeyRing.from_file(file)
    return KeyRing.from_env() if os.environ.get(VARIABLE, "").strip() else None


async def _asked(ask: Callable[[], Any], what: str, *, passes: type[Exception] | tuple[()] = ()) -> Any:
    try:
        answer = ask()
        return await answer if inspect.isawaitable(answer) else answer
    except passes:
        raise
    except Exception as error:
        raise KeysUnavailable(f"the key ring could not give {what}: {type(error).__name__}") from error


def _pairs(text: str, where: str) -> list[tuple[str, bytes]]:
    lines = [line for line in (one.strip() for one in text.splitlines()) if line and not line.startswith("#")]
    if not any(re.match(r"[^:]+=\s*[\"']", line) for line in lines):
        return [_pair(line, where) for line in lines]
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise ConfigurationError(f"{where} is not valid TOML", hint=HINT) from None
    return [_pair(f"{key_id}:{key}", where) for key_id, key in table.items()]


def _pair(text: str, where: str) -> tuple[str, bytes]:
    """No part of it is said in an error: it may be a key."""
    key_id, found, coded = text.strip().partition(":")
    try:
        key = b64decode(coded.strip().replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        key = b""
    if not found or not _ID.fullmatch(key_id.strip()) or len(key) != KEY_BYTES:
        raise ConfigurationError(f"an entry of {where} is no key", hint=HINT)
    return key_id.strip(), key


def _checked_id(key_id: object) -> str:
    if not isinstance(key_id, str) or not _ID.fullmatch(key_id):
        raise ConfigurationError(
            "the id of a key has letters, digits, . _ - and at most 64 characters, and begins with a letter or digit"
        )
    return key_id


def _checked_key(key: object, key_id: str) -> bytes:
    if not isinstance(key, bytes | bytearray) or len(key) != KEY_BYTES:
        raise ConfigurationError(f"key {key_id!r} is not {KEY_BYTES} bytes", hint=HINT)
    return bytes(key)
