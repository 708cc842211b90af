"""The demo's own tables and its statements on them, on either database."""

from __future__ import annotations

import sqlite3
from typing import Any

from postlude.app import Postlude
from postlude.core.statement import Row, Statement
from postlude.errors import ConfigurationError

SCHEMA = "postlude_demo"
MARK = "made by postlude demo, dropped when it ends"

# No UNIQUE on effects: an effect that happened twice must show.
TABLES = (
    "CREATE TABLE shop.demo_order (order_id text PRIMARY KEY, customer text NOT NULL, event_id text NOT NULL)",
    "CREATE TABLE shop.demo_click (order_id text NOT NULL)",
    "CREATE TABLE shop.demo_effect (event_id text NOT NULL, product text NOT NULL, quantity integer NOT NULL)",
    "CREATE TABLE shop.demo_mail (idempotency_key text PRIMARY KEY, event_id text NOT NULL, requests integer NOT NULL)",
)
CLICK = "INSERT INTO shop.demo_click (order_id) VALUES (:order_id)"
ORDER = (
    "INSERT INTO shop.demo_order (order_id, customer, event_id) VALUES (:order_id, :customer, :event_id)"
    " ON CONFLICT DO NOTHING"
)
EFFECT = "INSERT INTO shop.demo_effect (event_id, product, quantity) VALUES (:event_id, :product, :quantity)"
MAIL = (
    "INSERT INTO shop.demo_mail (idempotency_key, event_id, requests) VALUES (:idempotency_key, :event_id, 1)"
    " ON CONFLICT (idempotency_key) DO UPDATE SET requests = demo_mail.requests + 1"
)
ORDERS = "SELECT event_id FROM shop.demo_order"
CLICKS = "SELECT count(*) FROM shop.demo_click"
EFFECTS = "SELECT event_id FROM shop.demo_effect"
MAILS = "SELECT event_id, requests FROM shop.demo_mail"


async def run_sql(tx: Any, sql: str, **values: Any) -> list[Row]:
    """One statement on the handle of a transaction. `shop.` is the demo's schema, where there are schemas."""
    if isinstance(tx, sqlite3.Connection):
        return tx.execute(sql.replace("shop.", ""), values).fetchall()
    statement = Statement("demo", sql.replace("shop.", f"{SCHEMA}."))
    found = await tx.fetch(statement.compile("dollar"), *statement.arguments(values))
    return [tuple(row) for row in found]


async def prepare(app: Postlude) -> None:
    """An empty schema of its own, with Postlude's tables and the shop's."""
    if app.store.dialect == "postgres":
        await _make_schema(app)
    await app.db.upgrade()
    async with app.transaction() as tx:
        for statement in TABLES:
            await run_sql(tx, statement)


async def clean_up(app: Postlude) -> None:
    """Leave the server as it was. An embedded file goes with its directory."""
    if app.store.dialect == "postgres":
        async with app.store.transaction() as tx:
            await tx.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


async def _make_schema(app: Postlude) -> None:
    """Only a schema that a demo made, and whose workers are gone, is replaced."""
    async with app.store.transaction() as tx:
        mark = await tx.fetchval(
            "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') FROM pg_namespace WHERE nspname = $1", SCHEMA
        )
    if mark is not None:
        if mark != MARK:
            raise ConfigurationError(
                f"the schema {SCHEMA} is there and is not ours", hint="Drop it or use another database."
            )
        if (await app.db.status()).version and await app.insight.workers():
            raise ConfigurationError("a demo is running in this database", hint="Wait until it has ended, about 10 s.")
        await clean_up(app)
    async with app.store.transaction() as tx:
        await tx.execute(f"CREATE SCHEMA {SCHEMA}")
        await tx.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{MARK}'")
