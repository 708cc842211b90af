"""What a URL and the options of a broker say, in the client's own words."""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, codec

from postlude.errors import BadUrl, ConfigurationError, MissingExtra
from postlude.secrecy import shown_url

FORM = "kafka://user:password@host:9092,host2:9092?security=SASL_SSL&mechanism=SCRAM-SHA-256"
SECURITY = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WORDS = frozenset({"security", "mechanism", "ca", "cert", "key", "compression"})

OURS = frozenset(
    {
        "acks",
        "auto_offset_reset",
        "bootstrap_servers",
        "enable_auto_commit",
        "enable_idempotence",
        "group_id",
        "key_deserializer",
        "key_serializer",
        "loop",
        "partitioner",
        "transactional_id",
        "value_deserializer",
        "value_serializer",
    }
)
"""What the guarantees stand on; not to be given."""

_PRODUCER = frozenset(inspect.signature(AIOKafkaProducer.__init__).parameters) - {"self", "loop"}
_CONSUMER = frozenset(inspect.signature(AIOKafkaConsumer.__init__).parameters) - {"self", "loop", "topics"}
_CODECS = {"gzip": codec.has_gzip, "snappy": codec.has_snappy, "lz4": codec.has_lz4, "zstd": codec.has_zstd}


def connection(url: str) -> dict[str, Any]:
    """Where to and as whom."""
    scheme, _, rest = url.partition("://")
    place, _, query = rest.partition("?")
    login, at, hosts = place.rstrip("/").rpartition("@")
    words = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(set(words) - WORDS):
        raise BadUrl(
            f"{shown_url(url)} says {unknown[0]!r}, which is not known of Kafka",
            hint=f"Known are {', '.join(sorted(WORDS))}; give everything else as options of the broker.",
        )
    given: dict[str, Any] = {"bootstrap_servers": _servers(url, hosts)}
    security = words.get("security", _security(scheme, bool(at))).upper()
    mechanism = words.get("mechanism", "PLAIN").upper()
    if security not in SECURITY or mechanism not in MECHANISMS:
        raise BadUrl(
            f"{shown_url(url)}: security or mechanism is not known",
            hint=f"security is one of {', '.join(SECURITY)}; mechanism one of {', '.join(MECHANISMS)}.",
        )
    given["security_protocol"] = security
    if security.startswith("SASL"):
        user, colon, password = login.partition(":")
        if not colon:
            raise BadUrl(f"{shown_url(url)} has no user and password for {security}", hint=f"Use {FORM}.")
        given |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": unquote(user),
            "sasl_plain_password": unquote(password),
        }
    if security.endswith("SSL"):
        given["ssl_context"] = _context(url, words)
    if "compression" in words:
        given["compression_type"] = words["compression"]
    return given


def producing(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in _PRODUCER}


def consuming(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name in _CONSUMER}


def check(options: Mapping[str, Any]) -> None:
    """Options that would break a guarantee, or that the client does not know, are refused before it starts."""
    for name in options:
        if name in OURS:
            raise ConfigurationError(f"the option {name} of Kafka is Postlude's", hint="Leave it out.")
        if name not in _PRODUCER | _CONSUMER:
            raise ConfigurationError(
                f"aiokafka has no option {name}",
                hint="Options are the arguments of AIOKafkaProducer and AIOKafkaConsumer.",
            )


def check_compression(given: Mapping[str, Any]) -> None:
    compression = given.get("compression_type")
    if compression is None:
        return
    if compression not in _CODECS:
        raise ConfigurationError(f"Kafka has no compression {compression}", hint=f"Use one of {', '.join(_CODECS)}.")
    if not _CODECS[compression]():
        raise MissingExtra(f"compression {compression} needs a library", hint="pip install cramjam.")


def _servers(url: str, hosts: str) -> list[str]:
    servers = [host if host.rpartition(":")[2].isdigit() else f"{host}:9092" for host in hosts.split(",") if host]
    if not servers or "/" in hosts:
        raise BadUrl(f"{shown_url(url)} does not name hosts only", hint=f"Use {FORM}.")
    return servers


def _security(scheme: str, has_login: bool) -> str:  # noqa: FBT001 - said once, above
    transport = "SSL" if scheme.lower().endswith("+ssl") else "PLAINTEXT"
    if has_login:
        return f"SASL_{transport}"
    return transport


def _context(url: str, words: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=words.get("ca"))
        if "cert" in words:
            context.load_cert_chain(words["cert"], words.get("key"))
    except OSError as error:  # ssl.SSLError is one
        raise BadUrl(f"{shown_url(url)}: a certificate cannot be read", hint="See ca, cert and key in it.") from error
    return context
