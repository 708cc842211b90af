"""Least privilege: what a role needs to append, to work, or to look, and nothing more."""

from __future__ import annotations

from postlude.errors import ConfigurationError

# Appending reads nothing but whether an id is there already, and with what content; a start, what ran before.
_APP = (
    "SELECT ON {s}.postlude_meta, {s}.postlude_migration",
    "INSERT, SELECT (event_id, digest, subjects) ON {s}.postlude_event",
    "INSERT, SELECT (event_id) ON {s}.postlude_delivery",
    "INSERT, SELECT (event_id) ON {s}.postlude_inbox",
    "SELECT, INSERT ON {s}.postlude_saga",
    "INSERT ON {s}.postlude_saga_step",
    # An erasure in the caller's transaction: the subject is locked, its group, calls and what they need are written.
    "SELECT, INSERT ON {s}.postlude_group",
    "SELECT, INSERT, UPDATE ON {s}.postlude_subject",
    "SELECT ON {s}.postlude_saga_subject",
    "INSERT, SELECT (event_id, part) ON {s}.postlude_secret",
    "SELECT ON {s}.postlude_key",
    "INSERT ON {s}.postlude_audit",
)
_WORKER = (
    "SELECT ON {s}.postlude_meta, {s}.postlude_migration, {s}.postlude_transition",
    "SELECT, INSERT ON {s}.postlude_event, {s}.postlude_receipt, {s}.postlude_inbox",
    "SELECT, INSERT, UPDATE, DELETE ON {s}.postlude_delivery, {s}.postlude_worker",
    "SELECT ON SEQUENCE {s}.postlude_delivery_seq_seq",
    "SELECT, INSERT, UPDATE ON {s}.postlude_lane, {s}.postlude_duty, {s}.postlude_consumer",
    "SELECT, INSERT ON {s}.postlude_destination",
    "SELECT, INSERT, UPDATE ON {s}.postlude_saga",
    "SELECT, INSERT ON {s}.postlude_saga_step",
    "SELECT, INSERT ON {s}.postlude_audit, {s}.postlude_audit_link",
    "INSERT, UPDATE (value) ON {s}.postlude_meta",  # the head of the chain is locked and moved, and how far sinks are
    "SELECT, INSERT, UPDATE ON {s}.postlude_group, {s}.postlude_subject",
    "SELECT ON {s}.postlude_saga_subject",
    "SELECT, INSERT, UPDATE, DELETE ON {s}.postlude_secret",
    "SELECT ON {s}.postlude_key",
)
# The one part that changes what is stored of an event. UPDATE of one column is what a lock on a row takes.
_REDACTOR = (
    "SELECT ON {s}.postlude_meta, {s}.postlude_migration, {s}.postlude_key",
    "SELECT, UPDATE (entity, key, content_type, payload, digest, headers, correlation_id, subjects) ON {s}.postlude_event",
    "SELECT, UPDATE (status), DELETE ON {s}.postlude_delivery",
    "INSERT ON {s}.postlude_receipt, {s}.postlude_audit",
    "SELECT, UPDATE ON {s}.postlude_saga",
    "SELECT, UPDATE (detail) ON {s}.postlude_saga_step",
    "SELECT, DELETE ON {s}.postlude_saga_subject",
    "SELECT, UPDATE (key_id, key, shredded_at) ON {s}.postlude_subject",
    # Discarding a rectification ends a call: its secret goes, its group counts down, and may say that it is complete.
    "SELECT, UPDATE (open, discarded, completed_at) ON {s}.postlude_group",
    "SELECT (event_id, part), DELETE ON {s}.postlude_secret",
    "SELECT ON {s}.postlude_receipt",
    "INSERT ON {s}.postlude_event, {s}.postlude_delivery",
)
_VIEWER = (
    "SELECT ON {s}.postlude_meta, {s}.postlude_migration, {s}.postlude_transition",
    "SELECT ON {s}.postlude_event, {s}.postlude_event_json, {s}.postlude_delivery, {s}.postlude_receipt",
    "SELECT ON {s}.postlude_worker, {s}.postlude_lane, {s}.postlude_destination, {s}.postlude_duty",
    "SELECT ON {s}.postlude_audit, {s}.postlude_audit_link, {s}.postlude_operation, {s}.postlude_inbox",
    "SELECT ON {s}.postlude_consumer, {s}.postlude_group",
    "SELECT (subject, erasures, erased_at, key_id, shredded_at) ON {s}.postlude_subject",
    "SELECT ON {s}.postlude_saga, {s}.postlude_saga_step, {s}.postlude_saga_subject",
    "SELECT ON SEQUENCE {s}.postlude_delivery_seq_seq",
)
PARTS = {"app": _APP, "worker": _WORKER, "redactor": _REDACTOR, "viewer": _VIEWER}
MEANING = {
    "app": "may append events, start sagas and request erasures, and nothing more",
    "worker": "may deliver and settle. Partitions and retention belong to the owner of the tables:"
    " `postlude maintenance run` as that user",
    "viewer": "may look at everything but keys and what calls keep secret, payloads included, and change nothing",
    "redactor": "may take a data subject out of events and sagas. A worker needs it too where subjects are erased: without"
    " it, the calls to `call:postlude` fail and become dead letters",
}


def grants(part: str, role: str, quoted_schema: str) -> str:
    """Statements for the owner of the tables; they may be repeated."""
    if part not in PARTS:
        raise ConfigurationError(f"there is no part {part!r}", hint=f"One of: {', '.join(PARTS)}.")
    quoted = '"' + role.replace('"', '""') + '"'
    literal = "'" + role.replace("'", "''") + "'"
    make = (
        f"DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = {literal}) THEN"  # noqa: S608 - quoted above
        f" CREATE ROLE {quoted} NOLOGIN; END IF; END $$;"
    )
    lines = [f"-- {part}: {MEANING[part]}.", make, f"GRANT USAGE ON SCHEMA {quoted_schema} TO {quoted};"]
    lines += [f"GRANT {rights.format(s=quoted_schema)} TO {quoted};" for rights in PARTS[part]]
    return "\n".join([*lines, f"-- Then, for each user: GRANT {quoted} TO name;"])
