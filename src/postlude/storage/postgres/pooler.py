"""A pooler between us and PostgreSQL, such as PgBouncer in transaction mode: how we notice, and what we do without.

Behind it every transaction may run in another session. So nothing may depend on a session: no settings at connect
(PgBouncer refuses them), no prepared statements that are kept, no LISTEN.
"""

from __future__ import annotations

from types import MappingProxyType

from postlude.core.statement import Statement
from postlude.storage.postgres.driver import SESSION, Driver, SessionOptions

POOLED = SessionOptions(
    settings=MappingProxyType({"application_name": SESSION["application_name"]}), keep_statements=False
)
"""Works through a pooler, and without one too."""
_WORD = 0xFFFF_FFFF
_WHO = Statement("", "SELECT pg_backend_pid()")


async def is_between(driver: Driver, *, timeout: float) -> bool:
    """Whether who greets us is who answers. A server announces its process at connect, for cancelling; a pooler must
    announce something of its own, as it does not know yet whose session it will lend."""
    connection = await driver.connect(timeout=timeout)
    try:
        answered = (await driver.fetch(connection, _WHO, {}))[0][0]
        return bool((driver.announced_process(connection) ^ answered) & _WORD)
    finally:
        driver.terminate(connection)
