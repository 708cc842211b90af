"""What the services tell each other. Nothing of it knows of sagas."""

from __future__ import annotations

from typing import NewType

from postlude import Event, event

ConventionSrn = NewType("ConventionSrn", str)


@event(key="srn")
class ConventionRegistered(Event):
    srn: ConventionSrn
    title: str
    hooks: list[str]


# ---------------------------------------------------------------- the service of schemas


@event(key="srn")
class CreateSchema(Event):
    srn: ConventionSrn
    title: str


@event(key="srn")
class SchemaCreated(Event):
    srn: ConventionSrn
    schema: str


@event(key="srn")
class SchemaCreationFailed(Event):
    srn: ConventionSrn
    reason: str


@event(key="srn")
class DropSchema(Event):
    srn: ConventionSrn


@event(key="srn")
class SchemaDropped(Event):
    srn: ConventionSrn


# ---------------------------------------------------------------- the service of features


@event(key="srn")
class CreateFeatureTables(Event):
    srn: ConventionSrn
    schema: str
    hooks: list[str]


@event(key="srn")
class FeatureTablesCreated(Event):
    srn: ConventionSrn
    tables: int


@event(key="srn")
class FeatureTablesFailed(Event):
    srn: ConventionSrn
    hook: str


@event(key="srn")
class DropFeatureTables(Event):
    srn: ConventionSrn


@event(key="srn")
class FeatureTablesDropped(Event):
    srn: ConventionSrn


# ---------------------------------------------------------------- of the process as a whole


@event(key="srn", record_only=True)
class ConventionReady(Event):
    srn: ConventionSrn


@event(key="srn", record_only=True)
class ConventionInitFailed(Event):
    srn: ConventionSrn
    error: str
