"""Django without a project: databases are told to it one test after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connections

if not settings.configured:
    settings.configure(DATABASES={}, USE_TZ=True)
    django.setup()


@contextlib.contextmanager
def databases(**urls: str) -> Iterator[None]:
    """By alias. At the end the connections of this thread are closed; those of handlers close themselves."""
    for alias, url in urls.items():
        _forget(alias)
        connections.settings[alias] = connections.configure_settings({"default": conf(url)})["default"]
    try:
        yield
    finally:
        for alias in urls:
            _forget(alias)


def conf(url: str) -> dict[str, Any]:
    """What stands in DATABASES."""
    if url.startswith("sqlite"):
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": url.removeprefix("sqlite:///"),
            "OPTIONS": {"timeout": 2},
        }
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }


def forget(connection: Any) -> None:
    """Close it, even if a test has left a block open on purpose."""
    connection.in_atomic_block = False
    connection.close()


def _forget(alias: str) -> None:
    if hasattr(connections._connections, alias):
        forget(connections[alias])
        del connections[alias]
