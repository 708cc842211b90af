"""What can be set, in the options of the broker or in the query of its URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from yarl import URL

from postlude.errors import BadUrl, SettingsError
from postlude.secrecy import shown_url

CLIENT = frozenset({"name", "auth", "cafile", "capath", "cadata", "certfile", "keyfile", "no_verify_ssl"})
"""Options of the client that stand in the query of a URL."""


class RabbitmqOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All are optional. What is not here is an option of the client, see `CLIENT` and `ssl_context`."""

    exchange: str = "postlude"
    declare: bool = True
    """Make the exchange (durable, of type topic) and the queues of groups where they are not there."""
    mandatory: bool = True
    """A message that no queue is bound for is refused; else it is confirmed and gone."""
    max_bytes: int | None = None
    """Refuse larger payloads before they are sent. The server has a limit of its own."""
    queue_type: Literal["quorum", "classic"] = "quorum"
    single_active: bool = True
    """One member of a group receives, the others stand by: that keeps the order of a key."""
    queue_arguments: dict[str, Any] = {}
    timeout: float = 30.0
    heartbeat: int = 10


class Target(msgspec.Struct, frozen=True):
    """Where to connect and how. Never shown: it holds the password."""

    url: URL
    shown: str
    options: RabbitmqOptions
    context: Any = None


def target(url: str, given: Mapping[str, Any]) -> Target:
    """The options win over the query. Values of a query are text and become what they should be."""
    try:
        parsed = URL(url)
        host = parsed.host
    except ValueError:
        host = None
    if not host or parsed.scheme not in ("amqp", "amqps"):
        raise BadUrl(f"{shown_url(url)} is not the URL of a RabbitMQ", hint="Use amqp://user:password@host:5672/vhost.")
    merged: dict[str, Any] = {**parsed.query, **given}
    context = merged.pop("ssl_context", None)
    client = {name: str(merged.pop(name)) for name in sorted(CLIENT & merged.keys())}
    try:
        options = msgspec.convert(merged, RabbitmqOptions, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(sorted({*RabbitmqOptions.__struct_fields__, *CLIENT, "ssl_context"}))
        raise SettingsError(f"options of RabbitMQ: {error}", hint=f"There are {known}.") from None
    query = {"name": "postlude", **client, "heartbeat": str(options.heartbeat)}
    return Target(parsed.with_query(query), shown_url(url), options, context)
