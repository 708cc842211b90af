"""What a URL and the options of a broker say."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
from nats.aio.client import Client

from postlude.errors import BadUrl, ConfigurationError
from postlude.secrecy import shown_url

FORM = "nats://user:password@host:4222,host2:4222 or nats+tls://token@host"
WORDS = frozenset({"ca", "cert", "key"})

_OURS = frozenset(
    {
        "allow_reconnect",
        "closed_cb",
        "connect_timeout",
        "disconnected_cb",
        "error_cb",
        "max_reconnect_attempts",
        "reconnect_time_wait",
        "reconnect_to_server_handler",
        "reconnected_cb",
        "servers",
    }
)
_CLIENT = frozenset(inspect.signature(Client.connect).parameters) - {"self"} - _OURS


class Own(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the adapter itself."""

    timeout: float = 10.0
    """Seconds in which a call ends, whatever the broker does."""
    stream: str = "postlude"
    subjects: tuple[str, ...] = ("events.>",)
    """Which topics the stream takes, when we make it."""
    create: bool = True
    """Make the stream if it is not there."""
    replicas: int = 1
    duplicate_window: float = 120.0
    """Seconds in which the stream knows a message id again."""
    single_active: bool = True
    """One member of a group receives, the others stand by: that keeps the order of a key."""
    ack_wait: float = 15.0
    """Seconds until what a member received and did not acknowledge is given to another."""
    max_ack_pending: int = 10_000
    """How much all members of a group together may have received and not acknowledged."""


def split(options: Mapping[str, Any]) -> tuple[Own, dict[str, Any]]:
    """Ours and the client's. What neither knows is refused."""
    names = set(Own.__struct_fields__)
    for name in options:
        if name in _OURS:
            raise ConfigurationError(f"the option {name} of NATS is Postlude's", hint="Leave it out.")
        if name not in names | _CLIENT:
            raise ConfigurationError(
                f"neither Postlude nor nats-py has an option {name}",
                hint=f"Options are {', '.join(sorted(names))}, and the arguments of nats.connect.",
            )
    try:
        own = msgspec.convert({name: value for name, value in options.items() if name in names}, Own, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"an option of NATS is wrong: {error}") from error
    return own, {name: value for name, value in options.items() if name not in names}


def servers_of(url: str) -> tuple[list[str], dict[str, Any]]:
    """Where to, as whom and how."""
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    login, at, hosts = place.rstrip("/").rpartition("@")
    words = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(set(words) - WORDS):
        raise BadUrl(
            f"{shown_url(url)} says {unknown[0]!r}, which is not known of NATS",
            hint=f"Known are {', '.join(sorted(WORDS))}; give everything else as options of the broker.",
        )
    if not hosts or "/" in hosts:
        raise BadUrl(f"{shown_url(url)} does not name hosts only", hint=f"Use {FORM}.")
    given: dict[str, Any] = {}
    if at:
        user, colon, password = login.partition(":")
        given = {"user": unquote(user), "password": unquote(password)} if colon else {"token": unquote(user)}
    if scheme.lower() in ("tls", "nats+tls"):
        given["tls"] = _context(url, words)
    return [f"nats://{host}" for host in hosts.split(",") if host], given


def _context(url: str, words: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=words.get("ca"))
        if "cert" in words:
            context.load_cert_chain(words["cert"], words.get("key"))
    except OSError as error:  # ssl.SSLError is one
        raise BadUrl(f"{shown_url(url)}: a certificate cannot be read", hint="See ca, cert and key in it.") from error
    return context
