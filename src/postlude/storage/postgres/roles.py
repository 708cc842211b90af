"""Least privilege: what a role needs to append, to work, or to look, and nothing more."""

from __future__ import annotations

from postlude.errors import ConfigurationError

# Appending reads nothing but whether an id is there already, and with what content; a start, what ran before.
_APP = (
    "SELECT ON {s}.postlude_meta, {s}.postlude_migration",
    "INSERT, SELECT (event_id, digest) ON {s}.postlude_event",
    "INSERT, SELECT (event_id) ON {s}.postlude_delivery",
    "INSERT, SELECT (event_id) ON {s}.postlude_inbox",
    "SELECT, INSERT ON {s}.postlude_saga",
    "INSERT ON {s}.postlude_saga_step",
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
    "INSERT ON {s}.postlude_audit",
)
_VIEWER = (
    "SELECT ON {s}.postlude_meta, {s}.postlude_migration, {s}.postlude_transition",
    "SELECT ON {s}.postlude_event, {s}.postlude_event_json, {s}.postlude_delivery, {s}.postlude_receipt",
    "SELECT ON {s}.postlude_worker, {s}.postlude_lane, {s}.postlude_destination, {s}.postlude_duty",
    "SELECT ON {s}.postlude_audit, {s}.postlude_audit_link, {s}.postlude_operation, {s}.postlude_inbox",
    "SELECT ON {s}.postlude_consumer",
    "SELECT ON {s}.postlude_saga, {s}.postlude_saga_step",
    "SELECT ON SEQUENCE {s}.postlude_delivery_seq_seq",
)
PARTS = {"app": _APP, "worker": _WORKER, "viewer": _VIEWER}
MEANING = {
    "app": "may append events and start sagas, and nothing more",
    "worker": "may deliver and settle. Partitions and retention belong to the owner of the tables:"
    " `postlude maintenance run` as that user",
    "viewer": "may look at everything, payloads included, and change nothing",
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
