"""A log vendor: nothing can be erased there, everything expires. The resolver says when.

    client = httpx.AsyncClient(base_url="https://logs.example.com", timeout=20)
    app.resolvers.register(LogVendorResolver("logs", client), timeout=30, concurrency=2)

The call is parked until the horizon and asked again then, with the same key: the erasure is complete when the vendor
says that nothing is left, not when the time is over.
"""

from __future__ import annotations

from datetime import datetime

import httpx

from postlude import Schedule, SubjectRef

from .asking import ask, is_absent, keyed, segment


class LogVendorResolver:
    def __init__(self, name: str, client: httpx.AsyncClient) -> None:
        self.name = name
        self._client = client

    async def schedule_erasure(self, ref: SubjectRef, *, idempotency_key: str) -> Schedule:
        path = f"{self._path(ref)}/expiry"
        answer = await ask(self._client, self.name, "POST", path, headers=keyed(idempotency_key))
        if is_absent(answer):
            return Schedule(already_absent=True)
        return Schedule(expires_at=datetime.fromisoformat(answer.json()["expires_at"]))

    async def verify_absent(self, ref: SubjectRef) -> bool:
        return is_absent(await ask(self._client, self.name, "GET", self._path(ref)))

    def _path(self, ref: SubjectRef) -> str:
        return f"subjects/{segment(self.name, ref.value)}"
