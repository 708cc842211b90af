"""Postlude is what runs after your commit: transactional outbox, inbox and sagas."""

from postlude.app import Postlude
from postlude.core.event import Event, event
from postlude.core.lifecycle import Status
from postlude.core.outcome import Err, Ok, Park, Reject
from postlude.core.retry import Retry
from postlude.core.upcast import upcast
from postlude.errors import (
    BadUrl,
    BeyondWindow,
    BrokerUnavailable,
    ConfigurationError,
    ConnectionClosed,
    ContractViolation,
    DatabaseBusy,
    DatabaseUnavailable,
    DutyTaken,
    HandlerTimeout,
    IdConflict,
    InvalidId,
    InvalidKey,
    LanesDiffer,
    MissingExtra,
    NaiveDatetime,
    NewerVersion,
    NotEncodable,
    NotFound,
    NotInTransaction,
    OperationRunning,
    PayloadTooLarge,
    PostludeError,
    SagaNotFound,
    SagaRefused,
    SchemaMissing,
    SchemaTooNew,
    SettingsError,
    StaleVersion,
    UnknownEvent,
    Unreadable,
    Unroutable,
)
from postlude.insight.insight import EventStory, Page
from postlude.outbox.handlers import EventHandler
from postlude.outbox.prepare import Message
from postlude.ports.broker import Received
from postlude.ports.store import Filter
from postlude.runtime.context import Context
from postlude.runtime.watchers import DeadLetter
from postlude.saga.applying import Stuck
from postlude.saga.plain import Saga, step
from postlude.saga.step import SagaStep
from postlude.saga.typed import SagaDef
from postlude.saga.view import SagaView
from postlude.settings import Settings

__all__ = [
    "BadUrl",
    "BeyondWindow",
    "BrokerUnavailable",
    "ConfigurationError",
    "ConnectionClosed",
    "Context",
    "ContractViolation",
    "DatabaseBusy",
    "DatabaseUnavailable",
    "DeadLetter",
    "DutyTaken",
    "Err",
    "Event",
    "EventHandler",
    "EventStory",
    "Filter",
    "HandlerTimeout",
    "IdConflict",
    "InvalidId",
    "InvalidKey",
    "LanesDiffer",
    "Message",
    "MissingExtra",
    "NaiveDatetime",
    "NewerVersion",
    "NotEncodable",
    "NotFound",
    "NotInTransaction",
    "Ok",
    "OperationRunning",
    "Page",
    "Park",
    "PayloadTooLarge",
    "Postlude",
    "PostludeError",
    "Received",
    "Reject",
    "Retry",
    "Saga",
    "SagaDef",
    "SagaNotFound",
    "SagaRefused",
    "SagaStep",
    "SagaView",
    "SchemaMissing",
    "SchemaTooNew",
    "Settings",
    "SettingsError",
    "StaleVersion",
    "Status",
    "Stuck",
    "UnknownEvent",
    "Unreadable",
    "Unroutable",
    "event",
    "step",
    "upcast",
]
