"""psycopg 3."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format

from postlude.core.statement import Statement
from postlude.errors import BadUrl
from postlude.storage.postgres import url_parameters
from postlude.storage.postgres.driver import Pool, PoolOptions, SessionOptions
from postlude.storage.postgres.psycopg_connection import AsyncConnection, known_parameters
from postlude.storage.postgres.psycopg_pool import PsycopgPool

REPEATED = 5
"""So often a statement is sent as text before it is prepared."""
CONNECT = 10


class PsycopgDriver:
    name = "psycopg"
    errors = (psycopg.Error, OSError)
    lost = (psycopg.OperationalError, psycopg.InterfaceError)

    def __init__(self, url: str, session: SessionOptions) -> None:
        place, parameters = url_parameters.read(url, self.name, known_parameters())
        try:
            conninfo_to_dict(place)
        except psycopg.ProgrammingError:  # its text may have parts of the password
            raise BadUrl("psycopg cannot read the database URL") from None
        self._url = place
        settings = dict(session.settings)
        name = settings.pop("application_name", None)
        options = [f"-c {setting}={value}" for setting, value in settings.items()]
        self._parameters: dict[str, Any] = {
            "client_encoding": "utf8",
            "application_name": name,
            **parameters,
            "options": " ".join([*options, *filter(None, [parameters.get("options")])]),
            "prepare_threshold": REPEATED if session.keep_statements else None,
        }

    def pool(self, options: PoolOptions) -> Pool:
        return PsycopgPool(self._url, {"connect_timeout": CONNECT, **self._parameters}, options)

    async def connect(self, *, timeout: float) -> Any:
        return await AsyncConnection.connect(self._url, **{"connect_timeout": round(timeout), **self._parameters})

    def announced_process(self, connection: Any) -> int:
        announced: int = connection.info.backend_pid
        return announced

    async def close(self, connection: Any) -> None:
        await connection.close()

    def terminate(self, connection: Any) -> None:
        connection.pgconn.finish()

    async def fetch(self, connection: Any, statement: Statement, values: Mapping[str, Any]) -> list[Any]:
        # On a cursor of our own, not for the whole connection: handlers are lent it and expect psycopg's usual types.
        cursor = connection.cursor(binary=True, row_factory=_rows)
        cursor.adapters.register_loader("jsonb", _JsonText)
        cursor.adapters.register_loader("timestamptz", _Utc)
        await cursor.execute(_compiled(statement), values)
        return list(await cursor.fetchall()) if cursor.pgresult.nfields else []

    async def execute(self, connection: Any, sql: str) -> None:
        await connection.execute(sql, prepare=False)

    async def listen(self, connection: Any, channel: str, wake: Callable[[], None]) -> None:
        await self.execute(connection, f"LISTEN {channel}")
        async for _ in connection.notifies():
            wake()


class Row(tuple[Any, ...]):
    """Values by position and by name."""

    __slots__ = ()
    names: ClassVar[tuple[str, ...]]

    def keys(self) -> Sequence[str]:
        return self.names

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self.names.index(key) if isinstance(key, str) else key)


class _JsonText(Loader):
    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        return bytes(data)[1:].decode()  # after the version of the format


class _Utc(Loader):
    format = Format.BINARY
    _EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

    def load(self, data: Buffer) -> datetime:
        return self._EPOCH + timedelta(microseconds=int.from_bytes(bytes(data), "big", signed=True))


def _rows(cursor: Any) -> Callable[[Sequence[Any]], Any]:
    result = cursor.pgresult
    return _row_of(tuple(map(result.fname, range(result.nfields)))) if result else tuple


@lru_cache(512)
def _row_of(columns: tuple[bytes, ...]) -> type[Row]:
    return type("Row", (Row,), {"__slots__": (), "names": tuple(name.decode() for name in columns)})


@lru_cache(512)
def _compiled(statement: Statement) -> str:
    return statement.compile("pyformat")
