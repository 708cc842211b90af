"""A vendor with a REST API: erases by DELETE, corrects by PATCH, looks by GET.

    client = httpx.AsyncClient(base_url="https://api.example.com", headers={"Authorization": "Bearer ..."}, timeout=20)
    app.resolvers.register(HttpResolver("crm", client, "customers"), timeout=30, concurrency=8)

The client is yours to close. Its timeout should be shorter than that of the registration: then the error says which
side was slow.
"""

from __future__ import annotations

from collections.abc import Sequence

import httpx

from postlude import Correction, Erasure, SubjectRef

from .asking import ask, is_absent, keyed, segment


class HttpResolver:
    def __init__(self, name: str, client: httpx.AsyncClient, resource: str) -> None:
        self.name = name
        self._client = client
        self._resource = resource

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        gone = await ask(self._client, self.name, "DELETE", self._path(ref), headers=keyed(idempotency_key))
        return Erasure(already_absent=is_absent(gone))

    async def rectify_subject(
        self, ref: SubjectRef, corrections: Sequence[Correction], *, idempotency_key: str
    ) -> None:
        """Nobody there is nothing to correct."""
        values = {correction.category: correction.value for correction in corrections}
        await ask(self._client, self.name, "PATCH", self._path(ref), json=values, headers=keyed(idempotency_key))

    async def verify_absent(self, ref: SubjectRef) -> bool:
        return is_absent(await ask(self._client, self.name, "GET", self._path(ref)))

    def _path(self, ref: SubjectRef) -> str:
        return f"{self._resource}/{segment(self.name, ref.value)}"
