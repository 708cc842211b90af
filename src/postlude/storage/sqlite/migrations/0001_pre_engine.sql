-- The engine: events are facts, deliveries are work, receipts are proof.
-- Times are seconds since 1970 (UTC) as REAL; ids are 16-byte blobs.

CREATE TABLE postlude_meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE postlude_event (
    event_id       BLOB    PRIMARY KEY NOT NULL CHECK (typeof(event_id) = 'blob' AND length(event_id) = 16),
    type           TEXT    NOT NULL,
    version        INTEGER NOT NULL DEFAULT 1 CHECK (version > 0),
    source         TEXT    NOT NULL DEFAULT 'sql',
    entity         TEXT,
    key            TEXT    CHECK (key <> ''),
    topic          TEXT    NOT NULL,
    content_type   TEXT    NOT NULL DEFAULT 'application/json',
    payload        BLOB    NOT NULL,
    digest         BLOB    NOT NULL DEFAULT x'',
    headers        TEXT    NOT NULL DEFAULT '{}',
    correlation_id TEXT    NOT NULL DEFAULT '',
    causation_id   BLOB,
    saga_id        BLOB,
    subjects       TEXT,
    created_at     REAL    NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0)
);
CREATE INDEX postlude_event_created ON postlude_event (created_at);
CREATE INDEX postlude_event_caused ON postlude_event (causation_id) WHERE causation_id IS NOT NULL;

CREATE TABLE postlude_event_subject (
    subject  TEXT NOT NULL,
    event_id BLOB NOT NULL,
    PRIMARY KEY (subject, event_id)
) WITHOUT ROWID;
CREATE TRIGGER postlude_event_subjects AFTER INSERT ON postlude_event WHEN NEW.subjects IS NOT NULL
BEGIN
    INSERT OR IGNORE INTO postlude_event_subject (subject, event_id)
        SELECT value, NEW.event_id FROM json_each(NEW.subjects);
END;
CREATE TRIGGER postlude_event_unsubjects AFTER DELETE ON postlude_event WHEN OLD.subjects IS NOT NULL
BEGIN
    DELETE FROM postlude_event_subject WHERE event_id = OLD.event_id
        AND subject IN (SELECT value FROM json_each(OLD.subjects));
END;

-- AUTOINCREMENT: a seq never goes back, even when the table was empty.
CREATE TABLE postlude_delivery (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id     BLOB    NOT NULL,
    destination  TEXT    NOT NULL,
    lane         INTEGER NOT NULL DEFAULT 0,
    key          TEXT,
    priority     INTEGER NOT NULL DEFAULT 1 CHECK (priority BETWEEN 0 AND 2 AND (priority = 1 OR key IS NULL)),
    status       TEXT    NOT NULL DEFAULT 'pending'
                 CHECK (status IN ('pending', 'claimed', 'failed', 'scheduled', 'dead')),
    blocks       INTEGER NOT NULL DEFAULT 0
                 CHECK (NOT blocks OR (key IS NOT NULL AND status IN ('claimed', 'failed', 'dead'))),
    attempts     INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    max_attempts INTEGER,
    starts       INTEGER NOT NULL DEFAULT 0,
    available_at REAL    NOT NULL DEFAULT ((julianday('now') - 2440587.5) * 86400.0),
    token        BLOB,
    last_error   TEXT
);
CREATE INDEX postlude_delivery_hot ON postlude_delivery (destination, lane, priority, seq) WHERE status = 'pending';
CREATE INDEX postlude_delivery_due ON postlude_delivery (destination, lane, available_at, seq)
    WHERE status IN ('failed', 'scheduled', 'claimed');
CREATE INDEX postlude_delivery_block ON postlude_delivery (destination, key, seq) WHERE blocks;
CREATE INDEX postlude_delivery_dead ON postlude_delivery (destination, seq) WHERE status = 'dead';
CREATE UNIQUE INDEX postlude_delivery_event ON postlude_delivery (event_id, destination);

-- The lifecycle, as in postlude.core.lifecycle: a test compares the two.
CREATE TABLE postlude_transition (
    was     TEXT NOT NULL,
    becomes TEXT NOT NULL,
    PRIMARY KEY (was, becomes)
) WITHOUT ROWID;
INSERT INTO postlude_transition (was, becomes) VALUES
    ('pending', 'claimed'), ('pending', 'failed'), ('pending', 'scheduled'), ('pending', 'dead'),
    ('claimed', 'claimed'), ('claimed', 'failed'), ('claimed', 'scheduled'), ('claimed', 'dead'),
    ('failed', 'claimed'), ('failed', 'failed'), ('failed', 'scheduled'), ('failed', 'dead'),
    ('scheduled', 'claimed'), ('scheduled', 'failed'), ('scheduled', 'scheduled'), ('scheduled', 'dead'),
    ('dead', 'failed');
CREATE TRIGGER postlude_delivery_lifecycle BEFORE UPDATE OF status ON postlude_delivery
    WHEN NOT EXISTS (SELECT 1 FROM postlude_transition WHERE was = OLD.status AND becomes = NEW.status)
BEGIN
    SELECT RAISE(ABORT, 'a delivery cannot change its status like this');
END;
CREATE TRIGGER postlude_delivery_birth BEFORE INSERT ON postlude_delivery WHEN NEW.status IN ('failed', 'dead')
BEGIN
    SELECT RAISE(ABORT, 'a delivery cannot be born like this');
END;

CREATE TABLE postlude_receipt (
    event_id    BLOB    NOT NULL,
    destination TEXT    NOT NULL,
    outcome     TEXT    NOT NULL DEFAULT 'sent' CHECK (outcome IN ('sent', 'discarded')),
    attempts    INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    worker      BLOB,
    actor       TEXT,
    settled_at  REAL    NOT NULL
);
CREATE INDEX postlude_receipt_event ON postlude_receipt (event_id, seq);
CREATE INDEX postlude_receipt_settled ON postlude_receipt (settled_at);

CREATE TABLE postlude_worker (
    id           BLOB    PRIMARY KEY,
    name         TEXT    NOT NULL,
    version      TEXT    NOT NULL,
    started_at   REAL    NOT NULL,
    lease_until  REAL    NOT NULL,
    stopping     INTEGER NOT NULL DEFAULT 0,
    destinations TEXT    NOT NULL
) WITHOUT ROWID;

CREATE TABLE postlude_lane (
    destination TEXT    NOT NULL,
    lane        INTEGER NOT NULL,
    owner       BLOB,
    epoch       INTEGER NOT NULL DEFAULT 0,
    crashes     INTEGER NOT NULL DEFAULT 0,
    cautious_to INTEGER,
    PRIMARY KEY (destination, lane)
) WITHOUT ROWID;

CREATE TABLE postlude_destination (
    name      TEXT PRIMARY KEY,
    kind      TEXT NOT NULL,
    seen_at   REAL NOT NULL,
    paused_at REAL,
    paused_by TEXT,
    reason    TEXT
) WITHOUT ROWID;

CREATE TABLE postlude_audit (
    id     BLOB PRIMARY KEY,
    at     REAL NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    reason TEXT NOT NULL,
    detail TEXT NOT NULL DEFAULT '{}'
) WITHOUT ROWID;
CREATE INDEX postlude_audit_target ON postlude_audit (target, at);
CREATE TABLE postlude_audit_link (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    audit_id BLOB NOT NULL UNIQUE,
    hash     BLOB NOT NULL
);

CREATE VIEW postlude_event_json AS
    SELECT hex(event_id) AS event_id, type, version, source, entity, key, topic, headers, correlation_id,
           hex(causation_id) AS causation_id, subjects, datetime(created_at, 'unixepoch') AS created_at,
           CASE WHEN content_type = 'application/json' THEN CAST(payload AS TEXT) END AS payload
      FROM postlude_event;
