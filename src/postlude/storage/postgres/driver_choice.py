"""Which driver: the one the URL asks for if it is installed, else the first that is."""

from __future__ import annotations

from collections.abc import Callable

from postlude.errors import MissingExtra
from postlude.storage.postgres.driver import Driver, SessionOptions

Opening = Callable[[str, SessionOptions], Driver]


def open_driver(url: str, asked: str | None = None, session: SessionOptions | None = None) -> Driver:
    """A driver for that database; `asked` is what stands behind the + of a URL."""
    names = sorted(DRIVERS, key=lambda name: name != asked)
    missing: list[ImportError] = []
    for name in names:
        try:
            opening = DRIVERS[name]()
        except ImportError as error:
            if (error.name or "").startswith("postlude"):
                raise
            missing.append(error)
        else:
            return opening(url, session or SessionOptions())
    raise MissingExtra(
        f"PostgreSQL needs asyncpg or psycopg ({'; '.join(map(str, missing))})",
        hint="pip install 'postlude[postgres]' or 'postlude[psycopg]'",
    ) from missing[0]


def _asyncpg() -> Opening:
    from postlude.storage.postgres.driver_asyncpg import AsyncpgDriver

    return AsyncpgDriver


def _psycopg() -> Opening:
    from postlude.storage.postgres.driver_psycopg import PsycopgDriver

    return PsycopgDriver


DRIVERS = {"asyncpg": _asyncpg, "psycopg": _psycopg}
"""In the order of preference."""
