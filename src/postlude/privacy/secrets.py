"""What calls keep secret, whom they are about and corrections, sealed where the app has a key ring.

The key of the ring, and not that of the data subject: the own key of a subject may be dropped before its last call is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from postlude.core.lifecycle import Status
from postlude.core.sealing import derived
from postlude.errors import BrokenSeal, CannotOpen, KeysUnavailable, KeyUnknown
from postlude.ports.calls import HORIZON, SUBJECT, Calls, Secret, StoredCall
from postlude.privacy import cipher
from postlude.privacy.keyring import KeyRing

MARK, END = b"\x01", b"\0"
"""Before and after the id of the key. What is not sealed is JSON, which never begins like that."""


class Vault:
    """Seals with the active key; opens what any key of the ring has sealed, and what was never sealed."""

    def __init__(self, ring: KeyRing | None) -> None:
        self._ring = ring

    async def seal(self, entry_id: UUID, parts: Mapping[str, bytes]) -> Mapping[str, bytes]:
        if self._ring is None:
            return parts
        key_id, key = await self._ring.active()
        own = derived(key, "secret", entry_id.bytes)
        return {
            part: prefix_of(key_id) + cipher.encrypt(own, content, _bound(key_id, entry_id, part))
            for part, content in parts.items()
        }

    async def open(self, entry_id: UUID, part: str, content: bytes) -> bytes:
        """Raises CannotOpen and KeysUnavailable."""
        if not content.startswith(MARK):
            return content
        if self._ring is None:
            raise KeyUnknown("what a call needs is sealed, and this app has no key ring")
        name, _, sealed = content.removeprefix(MARK).partition(END)
        try:
            key_id = name.decode()
        except UnicodeDecodeError as error:
            raise BrokenSeal("what a call needs was sealed, and changed since") from error
        own = derived(await self._ring.key(key_id), "secret", entry_id.bytes)
        return cipher.decrypt(own, sealed, _bound(key_id, entry_id, part))

    async def sealed_again(self, one: Secret) -> Secret:
        plain = await self.open(one.entry_id, one.part, one.content)
        return replace(one, content=(await self.seal(one.entry_id, {one.part: plain}))[one.part])


class OpenedCalls:
    """Calls with their secrets opened."""

    def __init__(self, calls: Calls, vault: Vault) -> None:
        self._calls = calls
        self._vault = vault
        self.pseudonym_key = calls.pseudonym_key
        self.groups = calls.groups
        self.counts = calls.counts
        self.overdue_counts = calls.overdue_counts
        self.requeue = calls.requeue
        self.secrets_but = calls.secrets_but
        self.reseal = calls.reseal

    async def secrets(self, entry_id: UUID) -> Mapping[str, bytes]:
        """Raises CannotOpen and KeysUnavailable too."""
        found = await self._calls.secrets(entry_id)
        return {
            part: content if part == HORIZON else await self._vault.open(entry_id, part, content)
            for part, content in found.items()
        }

    async def calls(
        self,
        *,
        status: Status | None = None,
        subject: str | None = None,
        ids: Sequence[UUID] | None = None,
        limit: int,
    ) -> list[StoredCall]:
        """Whom a call is about that cannot be opened, nobody sees."""
        found = await self._calls.calls(status=status, subject=subject, ids=ids, limit=limit)
        return [await self._opened(one) for one in found]

    async def _opened(self, one: StoredCall) -> StoredCall:
        if one.secret is None:
            return one
        try:
            return replace(one, secret=await self._vault.open(one.entry_id, SUBJECT, one.secret))
        except (CannotOpen, KeysUnavailable):
            return replace(one, secret=None)


def prefix_of(key_id: str) -> bytes:
    """How everything begins that this key has sealed."""
    return MARK + key_id.encode() + END


def _bound(key_id: str, entry_id: UUID, part: str) -> bytes:
    return msgspec.json.encode(("postlude", "secret", key_id, str(entry_id), part))
