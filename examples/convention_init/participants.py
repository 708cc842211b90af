"""The services that do the work: ordinary handlers that take commands from a broker and reply with events."""

from __future__ import annotations

import os
from typing import Any

from postlude import Context, Err, Ok, Postlude

from .contracts import (
    CreateFeatureTables,
    CreateSchema,
    DropFeatureTables,
    DropSchema,
    FeatureTablesCreated,
    FeatureTablesDropped,
    FeatureTablesFailed,
    SchemaCreated,
    SchemaCreationFailed,
    SchemaDropped,
)

REPLIES = (
    SchemaCreated, SchemaCreationFailed, SchemaDropped, FeatureTablesCreated, FeatureTablesFailed, FeatureTablesDropped,
)  # fmt: skip


def write(ctx: Context, command: str, *values: Any) -> None:
    """In the transaction that also settles the command and appends the reply."""
    ctx.tx.execute("CREATE TABLE IF NOT EXISTS made (srn TEXT, what TEXT)")
    ctx.tx.execute(command, values)


async def create_schema(command: CreateSchema, ctx: Context) -> Ok[SchemaCreated] | Err[SchemaCreationFailed]:
    if not command.title:
        return Err(SchemaCreationFailed(srn=command.srn, reason="it has no title"))
    write(ctx, "INSERT INTO made VALUES (?, 'schema')", command.srn)
    return Ok(SchemaCreated(srn=command.srn, schema=f"schema of {command.title}"))


async def drop_schema(command: DropSchema, ctx: Context) -> Ok[SchemaDropped]:
    write(ctx, "DELETE FROM made WHERE srn = ? AND what = 'schema'", command.srn)
    return Ok(SchemaDropped(srn=command.srn))


async def create_tables(
    command: CreateFeatureTables, ctx: Context
) -> Ok[FeatureTablesCreated] | Err[FeatureTablesFailed]:
    for hook in command.hooks:
        if hook == "taken":
            return Err(FeatureTablesFailed(srn=command.srn, hook=hook))  # what was written before is rolled back
        write(ctx, "INSERT INTO made VALUES (?, ?)", command.srn, hook)
    return Ok(FeatureTablesCreated(srn=command.srn, tables=len(command.hooks)))


async def drop_tables(command: DropFeatureTables, ctx: Context) -> Ok[FeatureTablesDropped]:
    write(ctx, "DELETE FROM made WHERE srn = ? AND what <> 'schema'", command.srn)
    return Ok(FeatureTablesDropped(srn=command.srn))


def serve(app: Postlude) -> None:
    """Let an app do this work."""
    for reply in REPLIES:
        app.route(reply)
    app.on(CreateSchema, topic="schemas", consumer="schemas")(create_schema)
    app.on(DropSchema, topic="schemas", consumer="schemas")(drop_schema)
    app.on(CreateFeatureTables, topic="features", consumer="features")(create_tables)
    app.on(DropFeatureTables, topic="features", consumer="features")(drop_tables)


app = Postlude("sqlite:///participants.db", broker=os.environ.get("POSTLUDE_BROKER", "memory://"))
serve(app)
