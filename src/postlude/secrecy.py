"""No secret is ever shown: what may be said of a URL, and texts in which one may stand."""

from __future__ import annotations

import re

MASK = "***"

_CREDENTIALS = re.compile(r"(?<=://)([^\s/@:]*):\S*@")
_WITHOUT_SCHEME = re.compile(r"(?<![/\w])([\w.-]+):(?!//)\S+@")
_WORD = r"(?:\w*(?:password|passwd|pwd|passphrase|secret|token|api_?key))"
_SAID = re.compile(rf"(?<!\w)({_WORD}=)('[^']*'|\"[^\"]*\"|[^\s&'\",;)]+)", re.IGNORECASE)
_NAME = re.compile(rf"{_WORD}|\w*credentials?", re.IGNORECASE)


def without_secrets(text: str) -> str:
    """The text without passwords, wherever a URL stands in it."""
    if "@" in text:
        text = _WITHOUT_SCHEME.sub(r"\1@", _CREDENTIALS.sub(r"\1@", text))
    return _SAID.sub(rf"\1{MASK}", text) if "=" in text else text


def shown_url(url: str) -> str:
    """A URL that may be shown: without its password, nor anything in its query."""
    # By hand: a password that should have been escaped is no secret to a parser that splits inside it.
    scheme, found, rest = url.partition("://")
    if not found:
        return _end(url.rpartition("@")[2])
    user = re.split("[:/?#@]", rest, maxsplit=1)[0]
    if "@" not in rest or rest[len(user) :].startswith(("/", "?", "#")):  # an @ further on is none of a user
        return f"{scheme}://{_end(rest)}"
    return f"{scheme}://{user}{'@' if user else ''}{_end(rest.rpartition('@')[2])}"


def _end(place: str) -> str:
    return re.split("[?#]", place, maxsplit=1)[0]


def is_secret(name: str) -> bool:
    """Would a value of that name be a secret?"""
    return _NAME.fullmatch(name.replace("-", "_").replace(".", "_")) is not None
