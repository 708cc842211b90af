"""Postlude is what runs after your commit: transactional outbox, inbox and sagas."""

from postlude.app import Postlude
from postlude.audit.file_sink import FileAuditSink
from postlude.audit.report import AuditReport
from postlude.calls.events import ErasureCompleted, RectificationCompleted
from postlude.core.audit_chain import AuditRecord
from postlude.core.audit_verify import AuditProblem
from postlude.core.calls import AbandonedSignal, Call, CallOperation, Correction, Erasure, Schedule, SubjectRef
from postlude.core.data_lint import Finding
from postlude.core.data_map import Anonymise, Delete, Retain
from postlude.core.event import Event, event
from postlude.core.lifecycle import Status
from postlude.core.outcome import Err, Ok, Park, Reject
from postlude.core.retry import Retry
from postlude.core.sealed import Sealed
from postlude.core.upcast import upcast
from postlude.enlist.sqlalchemy_data import DataMap
from postlude.erasure.views import ErasureResult, ErasureView, SubjectStory
from postlude.errors import (
    AuditBroken,
    BadUrl,
    BeyondWindow,
    BrokenSeal,
    BrokerUnavailable,
    CannotOpen,
    ConfigurationError,
    ConnectionClosed,
    ContractViolation,
    DatabaseBusy,
    DatabaseUnavailable,
    DutyTaken,
    ErasureRefused,
    HandlerTimeout,
    IdConflict,
    InvalidId,
    InvalidKey,
    KeysUnavailable,
    KeyUnknown,
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
    ResolverError,
    SagaNotFound,
    SagaRefused,
    SchemaMissing,
    SchemaTooNew,
    SettingsError,
    Shredded,
    SinkUnavailable,
    StaleVersion,
    UnknownEvent,
    Unreadable,
    Unroutable,
)
from postlude.insight.views import EventStory, Page
from postlude.outbox.handlers import EventHandler
from postlude.outbox.prepare import Message
from postlude.ports.audit import AuditSink
from postlude.ports.broker import Received
from postlude.ports.records import Filter
from postlude.privacy.keyring import KeyRing
from postlude.privacy.redacting import Redaction
from postlude.runtime.context import Context
from postlude.runtime.watchers import DeadLetter
from postlude.saga.applying import Stuck
from postlude.saga.plain import Saga, step
from postlude.saga.step import SagaStep
from postlude.saga.typed import SagaDef
from postlude.saga.view import SagaView
from postlude.settings import Settings

__all__ = [
    "AbandonedSignal",
    "Anonymise",
    "AuditBroken",
    "AuditProblem",
    "AuditRecord",
    "AuditReport",
    "AuditSink",
    "BadUrl",
    "BeyondWindow",
    "BrokenSeal",
    "BrokerUnavailable",
    "Call",
    "CallOperation",
    "CannotOpen",
    "ConfigurationError",
    "ConnectionClosed",
    "Context",
    "ContractViolation",
    "Correction",
    "DataMap",
    "DatabaseBusy",
    "DatabaseUnavailable",
    "DeadLetter",
    "Delete",
    "DutyTaken",
    "Erasure",
    "ErasureCompleted",
    "ErasureRefused",
    "ErasureResult",
    "ErasureView",
    "Err",
    "Event",
    "EventHandler",
    "EventStory",
    "FileAuditSink",
    "Filter",
    "Finding",
    "HandlerTimeout",
    "IdConflict",
    "InvalidId",
    "InvalidKey",
    "KeyRing",
    "KeyUnknown",
    "KeysUnavailable",
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
    "RectificationCompleted",
    "Redaction",
    "Reject",
    "ResolverError",
    "Retain",
    "Retry",
    "Saga",
    "SagaDef",
    "SagaNotFound",
    "SagaRefused",
    "SagaStep",
    "SagaView",
    "Schedule",
    "SchemaMissing",
    "SchemaTooNew",
    "Sealed",
    "Settings",
    "SettingsError",
    "Shredded",
    "SinkUnavailable",
    "StaleVersion",
    "Status",
    "Stuck",
    "SubjectRef",
    "SubjectStory",
    "UnknownEvent",
    "Unreadable",
    "Unroutable",
    "event",
    "step",
    "upcast",
]
