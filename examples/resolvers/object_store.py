"""An object store that keeps versions: everything under the subject's prefix goes, old versions too.

    client = httpx.AsyncClient(base_url="https://objects.example.com/uploads", timeout=20)
    app.resolvers.register(ObjectStoreResolver("uploads", client), timeout=120, concurrency=4)

A store that keeps versions answers a plain DELETE with a marker and keeps the bytes; each version has to be named. A
call that is cut off in the middle is made again and finds what is left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx

from postlude import Erasure, ResolverError, SubjectRef

from .asking import ask, is_absent, keyed


class ObjectStoreResolver:
    def __init__(self, name: str, client: httpx.AsyncClient) -> None:
        self.name = name
        self._client = client

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        erased = 0
        # All pages before the first deletion: a page number means nothing when pages become shorter.
        for key, version in [one async for one in self._versions(ref)]:
            path = f"objects/{quote(key, safe='')}"
            gone = await ask(
                self._client,
                self.name,
                "DELETE",
                path,
                params={"version": version},
                headers=keyed(idempotency_key),
            )
            erased += not is_absent(gone)
        return Erasure(already_absent=erased == 0)

    async def verify_absent(self, ref: SubjectRef) -> bool:
        async for _ in self._versions(ref):
            return False
        return True

    async def _versions(self, ref: SubjectRef) -> AsyncIterator[tuple[str, str]]:
        """Of all objects of the subject. Without the slash `ada` would take the objects of `adam` along."""
        if not ref.value:
            raise ResolverError(f"{self.name}: an empty prefix is everybody's")
        after: str | None = ""
        while after is not None:
            asked = {"prefix": f"{ref.value}/", "after": after}
            answer = await ask(self._client, self.name, "GET", "versions", params=asked)
            if is_absent(answer):
                raise ResolverError(f"{self.name} is not there at all")
            page = answer.json()
            for one in page["versions"]:
                yield one["key"], one["version"]
            after = page["next"]
