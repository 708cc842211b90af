"""What somebody with every right on the database can do to the audit trail, triggers or not."""

from __future__ import annotations

import sqlite3
from uuid import UUID

from postlude import AuditRecord, Postlude
from postlude.core.audit_chain import Head, linked
from postlude.ports.audit import AuditEntry, AuditTrail
from tests.engine import connect


async def tamper(url: str, *statements: str) -> None:
    """Run them with the triggers off."""
    connection = await connect(url)
    if not isinstance(connection, sqlite3.Connection):
        await connection.execute("; ".join(["SET session_replication_role = replica", *statements]))
        await connection.close()
        return
    triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    script = [f"DROP TRIGGER {name}" for name, _ in triggers] + [*statements] + [sql for _, sql in triggers]
    for statement in script:
        connection.execute(statement)
    connection.close()


def literal(url: str, value: UUID | bytes) -> str:
    """An id or a hash, as the database writes it."""
    raw = value.bytes if isinstance(value, UUID) else value
    if url.startswith("sqlite"):
        return f"x'{raw.hex()}'"
    return f"'{value}'::uuid" if isinstance(value, UUID) else f"'\\x{raw.hex()}'::bytea"


async def write(app: Postlude, *targets: str, action: str = "requeue") -> None:
    """A record of each, in transactions of their own."""
    handles = app.engine._handles
    for target in targets:
        async with app.transaction() as tx:
            entry = AuditEntry(actor="ann", action=action, target=target, reason="tests")
            await handles.adapter(tx).play(tx, app.store.scripts.audit(entry))


async def chained(trail: AuditTrail) -> list[AuditRecord]:
    """Every record of the chain, in its order."""
    return [record for _, record in await trail.page_of_chain(0, 10_000) if record is not None]


async def rewrite(url: str, records: list[AuditRecord]) -> None:
    """Make a chain anew of these records, head and all, as if it had never been another one."""
    head, links, _ = linked(Head(), records)
    kept = ", ".join(literal(url, one.id) for one in records)
    system = "" if url.startswith("sqlite") else "OVERRIDING SYSTEM VALUE "
    rows = ", ".join(
        f"({link.position}, {literal(url, link.audit_id)}, {literal(url, link.row_hash)}, {literal(url, link.hash)})"
        for link in links
    )
    await tamper(
        url,
        f"DELETE FROM postlude_audit WHERE id NOT IN ({kept})",
        "DELETE FROM postlude_audit_link",
        f"INSERT INTO postlude_audit_link (position, audit_id, row_hash, hash) {system}VALUES {rows}",
        f"UPDATE postlude_meta SET value = '{head}' WHERE name = 'audit_head'",
    )
