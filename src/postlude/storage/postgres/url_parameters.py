"""Database URLs as people have them, in the spelling of either driver."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from urllib.parse import parse_qsl

from postlude.errors import BadUrl

SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_SSL = {"true": "require", "on": "require", "1": "require", "false": "disable", "off": "disable", "0": "disable"}
_SPELLINGS = {"database": "dbname", "ssl": "sslmode"}


def read(url: str, driver: str, known: Collection[str]) -> tuple[str, dict[str, str]]:
    """The URL without its parameters, and the parameters by libpq's names. One that the driver does not know is
    refused here: left to itself, a driver fails much later, with a traceback."""
    place, _, query = url.partition("?")
    parameters: dict[str, str] = {}
    for given, value in parse_qsl(query, keep_blank_values=True):
        name = _SPELLINGS.get(given, given)
        if name not in known:
            raise _unknown(given, driver, known)
        read_value = _ssl_mode(given, value) if name == "sslmode" else value
        if parameters.setdefault(name, read_value) != read_value:
            raise BadUrl(f"the database URL says {name} twice, and differently", hint="Keep one of them.")
    _check_timeout(parameters.get("connect_timeout", "0"))
    return place, parameters


def _ssl_mode(given: str, value: str) -> str:
    mode = _SSL.get(value.lower(), value.lower()) if given == "ssl" else value
    if mode not in SSL_MODES:
        raise BadUrl(f"{given}={value} in the database URL is no mode of TLS", hint=f"Use {', '.join(SSL_MODES)}.")
    return mode


def _check_timeout(value: str) -> None:
    if not value.isdecimal():
        raise BadUrl("connect_timeout in the database URL is no number of seconds", hint="Write connect_timeout=10.")


def _unknown(name: str, driver: str, known: Collection[str]) -> BadUrl:
    near = difflib.get_close_matches(name, [*known, *_SPELLINGS], n=1, cutoff=0.85)
    hint = (
        f"Did you mean {near[0]}?"
        if near
        else "Settings of the server go into options, such as ?options=-c%20statement_timeout%3D5000."
    )
    return BadUrl(f"the database URL has a parameter that {driver} does not know: {name}", hint=hint)
