"""The keys of data subjects, each wrapped by a key of the ring."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from postlude.core.sealing import Seal, derived
from postlude.errors import KeyUnknown, Shredded
from postlude.ports.privacy import Play, SubjectKey, SubjectScripts
from postlude.privacy import cipher
from postlude.privacy.keyring import KeyRing

NO_RING = "Give Postlude(..., keys=KeyRing.from_file(...)), set privacy.keys_file, or POSTLUDE_KEYS in the environment."
Wrapped = Mapping[str, SubjectKey]


class SubjectKeys:
    def __init__(self, ring: KeyRing | None) -> None:
        self._ring = ring

    @property
    def ring(self) -> KeyRing:
        if self._ring is None:
            raise KeyUnknown("this app has no key ring", hint=NO_RING)
        return self._ring

    async def of(self, seal: Seal, wrapped: Wrapped) -> bytes:
        """The key that a seal names."""
        ring = self.ring
        if seal.key is not None:
            return await ring.key(seal.key)
        return await self.unwrapped(wrapped.get(seal.subject or ""))

    async def of_subjects(
        self, play: Play, scripts_of: Callable[[], SubjectScripts], needed: set[str], came: set[str]
    ) -> Wrapped:
        """Those of subjects that seal now, who get one, and of subjects whose messages came sealed."""
        if self._ring is None or not needed | came:
            return {}
        scripts = scripts_of()
        found: dict[str, SubjectKey] = await play(scripts.keys(sorted(needed | came)))
        missing = sorted(one for one in needed if one not in found or _is_bare(found[one]))
        if missing:
            fresh = [await self.wrap(subject, cipher.new_key()) for subject in missing]
            found |= await play(scripts.add(fresh))
        return found

    async def wrap(self, subject: str, key: bytes) -> SubjectKey:
        key_id, ring_key = await self.ring.active()
        content = cipher.encrypt(derived(ring_key, "wrap"), key, _wrapping(subject, key_id))
        return SubjectKey(subject, key_id, content)

    async def unwrap(self, wrapped: SubjectKey) -> bytes:
        ring_key = await self.ring.key(wrapped.key_id or "")
        return cipher.decrypt(
            derived(ring_key, "wrap"), wrapped.key or b"", _wrapping(wrapped.subject, wrapped.key_id or "")
        )

    async def unwrapped(self, wrapped: SubjectKey | None) -> bytes:
        if wrapped is not None and wrapped.is_shredded:
            raise Shredded("the data subject of this event was shredded")
        if wrapped is None or wrapped.key is None:
            raise KeyUnknown(
                "this database has no key of the data subject that the event was sealed for",
                hint="Such events are opened where they were appended: route them with open_sealed=True.",
            )
        return await self.unwrap(wrapped)


def _is_bare(key: SubjectKey) -> bool:
    return key.key is None and not key.is_shredded


def _wrapping(subject: str, key_id: str) -> bytes:
    return msgspec.json.encode(("postlude", "subject key", subject, key_id))
