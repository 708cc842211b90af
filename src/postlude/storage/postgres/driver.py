"""What a driver of PostgreSQL gives: the port behind which asyncpg and psycopg stand.

Connections are the driver's own objects: handlers are lent them as they are. Both drivers' connections have `connection.transaction()`, an async context manager that nests as savepoints.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from postlude.core.statement import Statement

# Generic plans and JIT both hurt statements that read a queue (the statistics lie).
SESSION = MappingProxyType({"jit": "off", "plan_cache_mode": "force_custom_plan", "application_name": "postlude"})
RELEASE = 2.0
"""How long a session may take to confirm that its statement was cancelled; a server that hangs never does."""


class PoolOptions(msgspec.Struct, frozen=True):
    """How many connections, and how patient."""

    min: int = 1
    max: int = 10
    command_timeout: float = 60.0


class SessionOptions(msgspec.Struct, frozen=True):
    """What every connection of ours is told when it is made: here, and nowhere else."""

    settings: Mapping[str, str] = SESSION
    keep_statements: bool = True
    """Prepare what is repeated and keep it with the session."""


class Pool(Protocol):
    """Connections that are lent and come back. Nothing is reset between: our statements leave no session state."""

    async def open(self) -> None:
        """Make the first connection, or say why there is none."""

    async def close(self) -> None: ...

    def acquire(self) -> Awaitable[Any]:
        """Fails soon when no connection can be made; waits when all are lent."""

    def release(self, connection: Any) -> Awaitable[None]: ...


class Driver(Protocol):
    """One driver, for one database."""

    name: str

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """All that it raises by itself."""

    @property
    def lost(self) -> tuple[type[Exception], ...]:
        """Of these, what means that the connection is gone, if the server gave no SQLSTATE."""

    def pool(self, options: PoolOptions) -> Pool: ...

    async def connect(self, *, timeout: float) -> Any:
        """A connection by itself, in autocommit; belongs to the event loop that runs."""

    def announced_process(self, connection: Any) -> int:
        """The id of the server's process as it was told at connect."""

    async def close(self, connection: Any) -> None: ...

    def terminate(self, connection: Any) -> None:
        """End it without a word."""

    def fetch(self, connection: Any, statement: Statement, values: Mapping[str, Any]) -> Awaitable[list[Any]]:
        """Run one statement. Its rows are read by position and by name, and `dict(row)` works. JSON comes as text,
        times are in UTC."""

    async def execute(self, connection: Any, sql: str) -> None:
        """Run a text without parameters, which may be several statements."""

    async def listen(self, connection: Any, channel: str, wake: Callable[[], None]) -> None:
        """Call `wake` for every notification, until the connection is lost."""
