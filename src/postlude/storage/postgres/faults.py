"""What goes wrong at PostgreSQL, and what it means here: one table for all drivers, by SQLSTATE."""

from __future__ import annotations

from types import MappingProxyType

from postlude.errors import DatabaseUnavailable, PostludeError, SchemaMissing

SERIALISATION, DEADLOCK = "40001", "40P01"
NO_TABLE, NO_OBJECT, NO_DATABASE = "42P01", "42704", "3D000"
NO_LOCK, READ_ONLY = "55P03", "25006"
RETRIED = frozenset({SERIALISATION, DEADLOCK})
NO_STATEMENT, STATEMENT_EXISTS = "26000", "42P05"
_REFUSED = MappingProxyType({"28000": "user", "28P01": "user", NO_OBJECT: "connection"})
# Classes: connections, resources (connections, memory, disk), operators (shutdowns, cancelled statements).
_UNREACHABLE = ("08", "53", "57", NO_LOCK, READ_ONLY)
_RESTART = "Restart this process: it looks for a pooler when it connects for the first time."
_AT_CONNECT = (
    "PgBouncer takes no settings at connect: leave them out of the URL (`options`), and give them to the role once,"
    " with ALTER ROLE ... SET."
)


def state(error: BaseException) -> str:
    """The SQLSTATE, of either driver; empty when the server said nothing."""
    return getattr(error, "sqlstate", None) or ""


def meaning(error: Exception, lost: tuple[type[Exception], ...]) -> PostludeError | None:
    """Our error for a driver's; None for what has no meaning of ours."""
    code = state(error)
    if code == NO_TABLE:
        return SchemaMissing(f"the Postlude schema is not there: {error}")
    if code == NO_DATABASE:
        return DatabaseUnavailable(str(error), hint="Create the database first, for instance with createdb.")
    if code in _REFUSED:
        return DatabaseUnavailable(f"PostgreSQL refuses the {_REFUSED[code]}: {error}")
    if (pooler := _of_a_pooler(error, code)) is not None:
        return pooler
    if code.startswith(_UNREACHABLE) or (not code and isinstance(error, (*lost, OSError))):
        return DatabaseUnavailable(f"PostgreSQL cannot be reached: {str(error).strip() or type(error).__name__}")
    return None


def _of_a_pooler(error: Exception, code: str) -> PostludeError | None:
    if "unsupported startup parameter" in str(error):  # psycopg gives no SQLSTATE of a failed connect
        return DatabaseUnavailable(f"the pooler before PostgreSQL refuses the connection: {error}", hint=_AT_CONNECT)
    if code in (NO_STATEMENT, STATEMENT_EXISTS):
        return DatabaseUnavailable(f"a pooler has come between us and PostgreSQL: {error}", hint=_RESTART)
    return None
