"""What the resolvers of this folder share: a request to a vendor, and what its failures mean.

No error says whom the request was about. httpx puts URLs into its messages, so nothing of them is passed on.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import httpx

from postlude import ResolverError

ABSENT = frozenset({404, 410})
HOPELESS = frozenset({400, 401, 403, 405, 409, 422})
THROTTLED = 429


class VendorUnavailable(Exception):
    """It may work later: the call is tried again."""


class VendorBusy(VendorUnavailable):
    """We ask too much. `retry_after` is what the vendor said: seconds, or a date."""

    def __init__(self, message: str, retry_after: str | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


async def ask(client: httpx.AsyncClient, vendor: str, method: str, path: str, **given: Any) -> httpx.Response:
    """A successful answer, or one that says that nothing is there (`is_absent`)."""
    try:
        response = await client.request(method, path, **given)
    except httpx.TransportError as error:
        raise VendorUnavailable(f"{vendor}: {type(error).__name__}") from None
    status = response.status_code
    if response.is_success or status in ABSENT:
        return response
    if status in HOPELESS:
        raise ResolverError(f"{vendor} refuses the request with {status}")
    if status == THROTTLED:
        raise VendorBusy(f"{vendor} is busy", response.headers.get("retry-after"))
    raise VendorUnavailable(f"{vendor} answered {status}")


def segment(vendor: str, value: str) -> str:
    """A reference as one part of a path. Nothing, and what leads upwards in a path, would be everybody."""
    if value.strip() in ("", ".", ".."):
        raise ResolverError(f"{vendor}: a reference is no id that can stand in a path")
    return quote(value, safe="")


def is_absent(response: httpx.Response) -> bool:
    return response.status_code in ABSENT


def keyed(idempotency_key: str) -> dict[str, str]:
    return {"Idempotency-Key": idempotency_key}
