"""Every error Postlude raises, drawn as a tree.

    PostludeError
    ├── NotInTransaction      append.not_in_transaction   the handle commits by itself
    ├── IdConflict            append.id_conflict          same id, other content
    ├── UnknownEvent          event.unknown               not a class decorated with @event
    ├── NewerVersion          event.newer_version         the class here is older than the event: dead letter
    ├── Unroutable            append.unroutable           no route and no handler
    ├── PayloadTooLarge       append.payload_too_large
    ├── NotEncodable          append.not_encodable        payload or headers cannot be written
    ├── InvalidKey            append.invalid_key
    ├── InvalidId             append.invalid_id
    ├── NaiveDatetime         append.naive_datetime
    ├── ConnectionClosed      database.closed
    ├── DatabaseUnavailable   database.unavailable
    │   └── DatabaseBusy      database.busy               SQLite: somebody else is writing
    ├── SchemaMissing         schema.missing
    ├── SchemaTooNew          schema.too_new
    ├── LanesDiffer           schema.lanes_differ
    ├── SettingsError         settings.invalid
    │   └── BadUrl            settings.bad_url
    ├── MissingExtra          settings.missing_extra
    ├── ConfigurationError    configuration.refused
    ├── ContractViolation     handler.contract_violation  dead letter at once
    ├── HandlerTimeout        handler.timeout
    ├── EventMissing          delivery.event_missing
    ├── NotFound              insight.not_found
    ├── DutyTaken             duty.taken                  a worker has the duty
    ├── OperationRunning      operation.running           the same bulk action was begun and has not ended
    ├── BeyondWindow          replay.beyond_window        consumers may have forgotten that they saw it
    ├── Unreadable            unreadable                  a message that is no CloudEvent, or cannot be kept
    ├── CannotOpen            privacy.cannot_open         a sealed event that stays sealed: dead letter
    │   ├── KeyUnknown        privacy.key_unknown         no key ring, or one without that key
    │   ├── BrokenSeal        privacy.broken_seal         changed, or moved from where it was sealed
    │   └── Shredded          privacy.shredded            the key of its data subject is gone for good
    ├── KeysUnavailable       privacy.keys_unavailable    the callable of a key ring failed; burns no attempts
    ├── SagaNotFound          saga.not_found
    ├── SagaRefused           saga.refused                an order that cannot be followed, or a second run at a time
    ├── StaleVersion          saga.stale_version          somebody else was faster, again and again
    ├── Misfit                saga.misfit                 this code cannot continue the run: it is left alone
    ├── ErasureRefused        erasure.refused             an id or a correction that does not fit, or the database
    ├── ResolverError         call.refused                a foreign system will never do it: abandoned at once
    ├── BrokerUnavailable     broker.unavailable          burns no attempts
    ├── AuditBroken           audit.broken                the chain does not fit; nothing more is linked
    └── SinkUnavailable       audit.sink_unavailable      records wait and are copied later

`code` is stable and may be stored; `hint` says what to do next. No password of a URL is in either.
"""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from postlude.secrecy import without_secrets


class PostludeError(Exception):
    """The root of the tree; carries a stable code and a hint."""

    code: ClassVar[str] = "postlude"
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(without_secrets(message))
        self.hint = self.default_hint if hint is None else without_secrets(hint)

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  hint: {self.hint}" if self.hint else message


class NotInTransaction(PostludeError):
    code = "append.not_in_transaction"
    default_hint = "Open a transaction on the handle first, or use `async with app.transaction() as tx:`."


class IdConflict(PostludeError):
    code = "append.id_conflict"
    default_hint = "An id names one event for ever: repeat exactly the same event, or append with a new id."
    ids: frozenset[UUID] = frozenset()
    """Under which other content is stored, as far as it is known."""


class UnknownEvent(PostludeError):
    code = "event.unknown"
    default_hint = "Decorate the class with @event(...)."


class NewerVersion(PostludeError):
    code = "event.newer_version"
    default_hint = "Deploy the code that knows this version, then requeue: `postlude outbox requeue`."


class Unroutable(PostludeError):
    code = "append.unroutable"
    default_hint = "Add app.route(...), a handler with @app.on(...), or declare the class with record_only=True."


class PayloadTooLarge(PostludeError):
    code = "append.payload_too_large"
    default_hint = "Store the large part elsewhere and put a reference in the event, or raise payload.max_bytes."


class NotEncodable(PostludeError):
    code = "append.not_encodable"
    default_hint = "Use fields of plain types, and headers of text."


class InvalidKey(PostludeError):
    code = "append.invalid_key"
    default_hint = "A key is text, an integer or a UUID, and goes without a priority."


class InvalidId(PostludeError):
    code = "append.invalid_id"
    default_hint = "Give a UUID as id, or none at all."


class NaiveDatetime(PostludeError):
    code = "append.naive_datetime"
    default_hint = "Give a time with a time zone, such as datetime.now(timezone.utc)."


class ConnectionClosed(PostludeError):
    code = "database.closed"
    default_hint = "The handle was closed before the append; use one that is open and in a transaction."


class DatabaseUnavailable(PostludeError):
    code = "database.unavailable"
    default_hint = "Check that the server runs and that the URL names the right host, port, user and database."


class DatabaseBusy(DatabaseUnavailable):
    code = "database.busy"
    default_hint = "Begin the transaction with BEGIN IMMEDIATE, or use app.transaction(), which does."


class SchemaMissing(PostludeError):
    code = "schema.missing"
    default_hint = "Run `postlude db upgrade`, or await app.db.upgrade()."


class SchemaTooNew(PostludeError):
    code = "schema.too_new"
    default_hint = "The database was upgraded by a newer Postlude: upgrade this process too."


class LanesDiffer(PostludeError):
    code = "schema.lanes_differ"
    default_hint = "The number of lanes is fixed when the schema is installed; remove the setting or make it equal."


class SettingsError(PostludeError):
    code = "settings.invalid"
    default_hint = "See the reference of settings for the names and what they may be."


class BadUrl(SettingsError):
    code = "settings.bad_url"
    default_hint = "Use URLs such as sqlite:///shop.db, postgresql://user@host/database or memory://."


class MissingExtra(PostludeError):
    code = "settings.missing_extra"
    default_hint = "Install the extra, such as pip install 'postlude[postgres]'."


class ConfigurationError(PostludeError):
    code = "configuration.refused"
    default_hint = "Correct the declaration; nothing was changed."


class ContractViolation(PostludeError):
    """`at` is the place of a function that is in no traceback, because it returned."""

    code = "handler.contract_violation"
    default_hint = "Return Ok, Err or None as the handler declares it."

    def __init__(self, message: str, *, hint: str | None = None, at: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.at = at


class HandlerTimeout(PostludeError):
    code = "handler.timeout"
    default_hint = "Make the handler shorter, or raise its timeout."


class EventMissing(PostludeError):
    code = "delivery.event_missing"
    default_hint = "Its event is past its retention, or was removed by hand: discard the delivery."


class NotFound(PostludeError):
    code = "insight.not_found"
    default_hint = "It never was, or retention has removed it."


class DutyTaken(PostludeError):
    code = "duty.taken"
    default_hint = "See `postlude maintenance list`; once that worker has stopped, run it by hand."


class OperationRunning(PostludeError):
    code = "operation.running"
    default_hint = "Go on with it or cancel it: `postlude operation list`."


class BeyondWindow(PostludeError):
    code = "replay.beyond_window"
    default_hint = (
        "Narrow it with --since; or raise inbox.retention_hours where they are consumed, and then "
        "inbox.replay_window_hours here."
    )


class Unreadable(PostludeError):
    code = "unreadable"
    default_hint = "Send CloudEvents 1.0, in binary mode or as application/cloudevents+json."


class CannotOpen(PostludeError):
    code = "privacy.cannot_open"
    default_hint = "See the guide on privacy."


class KeyUnknown(CannotOpen):
    code = "privacy.key_unknown"
    default_hint = "Give Postlude(keys=KeyRing...) the ring it was sealed with, then requeue."


class BrokenSeal(CannotOpen):
    code = "privacy.broken_seal"
    default_hint = "Somebody changed the event after it was sealed, or it was sealed with another key of that id."


class Shredded(CannotOpen):
    code = "privacy.shredded"
    default_hint = "It cannot be undone: discard what is left of it."


class KeysUnavailable(PostludeError):
    code = "privacy.keys_unavailable"
    default_hint = "Check that the key service runs; it is asked again."


class SagaNotFound(PostludeError):
    code = "saga.not_found"
    default_hint = "`postlude saga list` shows what is there; ended sagas go with retention.events_hours."


class SagaRefused(PostludeError):
    code = "saga.refused"
    default_hint = "`postlude saga show ID` says where it stands and what it waits for."


class StaleVersion(PostludeError):
    code = "saga.stale_version"
    default_hint = "The saga went on meanwhile: look at it again, then decide."


class Misfit(PostludeError):
    code = "saga.misfit"


class ErasureRefused(PostludeError):
    code = "erasure.refused"
    default_hint = "Nothing of it stays if you roll back; correct it and erase or rectify again."


class ResolverError(PostludeError):
    code = "call.refused"
    default_hint = (
        "`postlude erasure abandoned` lists such calls; remove the cause, then `postlude erasure requeue ID`."
    )


class BrokerUnavailable(PostludeError):
    code = "broker.unavailable"
    default_hint = "The broker is retried with backoff and no attempt is burned; check that it runs."


class AuditBroken(PostludeError):
    code = "audit.broken"
    default_hint = "Nothing more is linked until it is explained: `postlude audit verify` names what is wrong."


class SinkUnavailable(PostludeError):
    code = "audit.sink_unavailable"
    default_hint = "Records wait in the database and are copied in order once the sink takes them again."
