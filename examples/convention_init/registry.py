"""The service that registers conventions, and the saga that sets one up."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import ClassVar
from uuid import UUID

from postlude import Postlude, SagaDef, SagaStep

from .contracts import (
    ConventionInitFailed,
    ConventionReady,
    ConventionRegistered,
    ConventionSrn,
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

app = Postlude("sqlite:///registry.db", broker=os.environ.get("POSTLUDE_BROKER", "memory://"))


class ConventionInit(SagaDef[ConventionRegistered, ConventionSrn]):
    name: ClassVar[str] = "convention_init"
    correlation_field: ClassVar[str] = "srn"
    deadline: ClassVar[timedelta | None] = timedelta(hours=1)
    steps: ClassVar[tuple[SagaStep, ...]] = (
        SagaStep(
            "create_schema",
            command=CreateSchema,
            topic="schemas",
            success=SchemaCreated,
            failure=SchemaCreationFailed,
            compensation=DropSchema,
            compensated=SchemaDropped,
        ),
        SagaStep(
            "create_feature_tables",
            command=CreateFeatureTables,
            topic="features",
            success=FeatureTablesCreated,
            failure=FeatureTablesFailed,
            compensation=DropFeatureTables,
            compensated=FeatureTablesDropped,
            deadline=timedelta(minutes=10),
        ),
    )

    async def on_completed(self, id: ConventionSrn) -> ConventionReady:
        return ConventionReady(srn=id)

    async def on_failed(self, id: ConventionSrn, error: str) -> ConventionInitFailed:
        return ConventionInitFailed(srn=id, error=error)


app.sagas.register(ConventionInit())


async def register(srn: str, title: str, hooks: list[str]) -> UUID:
    """The convention and its saga, in one transaction. Appending ConventionRegistered alone would start it too."""
    async with app.transaction() as tx:
        tx.execute("CREATE TABLE IF NOT EXISTS convention (srn TEXT, title TEXT)")
        tx.execute("INSERT INTO convention VALUES (?, ?)", (srn, title))
        convention = ConventionRegistered(srn=ConventionSrn(srn), title=title, hooks=hooks)
        return await app.sagas.start(tx, ConventionInit, convention)
