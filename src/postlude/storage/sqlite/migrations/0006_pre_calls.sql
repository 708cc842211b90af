-- Calls to foreign systems, erasure, the audit chain, keys of data subjects. Only adds.
-- Triggers do what must happen on every way that a call can end, whoever ends it: a settle, an operator, retention.

ALTER TABLE postlude_delivery ADD COLUMN group_id BLOB;
ALTER TABLE postlude_delivery ADD COLUMN attempted_at REAL;
CREATE INDEX postlude_delivery_group ON postlude_delivery (group_id) WHERE group_id IS NOT NULL;

-- One request about a data subject and how many of its calls are open, dead ones too. The subject is a keyed hash.
CREATE TABLE postlude_group (
    id           BLOB    PRIMARY KEY NOT NULL,
    subject      TEXT    NOT NULL,
    operation    TEXT    NOT NULL CHECK (operation IN ('erase', 'rectify')),
    generation   INTEGER NOT NULL CHECK (generation > 0),
    open         INTEGER NOT NULL,
    calls        INTEGER NOT NULL CHECK (open BETWEEN 0 AND calls),
    discarded    INTEGER NOT NULL DEFAULT 0,
    tells        INTEGER NOT NULL DEFAULT 0,
    created_at   REAL    NOT NULL,
    deadline     REAL    NOT NULL,
    completed_at REAL,
    UNIQUE (subject, operation, generation)
);
CREATE INDEX postlude_group_deadline ON postlude_group (deadline) WHERE completed_at IS NULL;

-- What a call needs and nobody may keep: the reference at the vendor, corrections. Gone when the call is over, or its
-- verification, if there is one: the delivery that follows the call's own, in no group.
CREATE TABLE postlude_secret (
    event_id BLOB NOT NULL,
    part     TEXT NOT NULL,
    content  BLOB NOT NULL,
    PRIMARY KEY (event_id, part)
) WITHOUT ROWID;

-- Data subjects by keyed hash: the mark of an erasure, and the key of its own.
CREATE TABLE postlude_subject (
    subject     TEXT    PRIMARY KEY NOT NULL,
    erasures    INTEGER NOT NULL DEFAULT 0,
    erased_at   REAL,
    key_id      TEXT,
    key         BLOB,
    shredded_at REAL
) WITHOUT ROWID;

-- Whom a saga is about, written when retention removes the events that say so. Gone with the saga, or when the subject is redacted.
CREATE TABLE postlude_saga_subject (
    subject TEXT NOT NULL,
    saga_id BLOB NOT NULL,
    PRIMARY KEY (subject, saga_id)
) WITHOUT ROWID;
CREATE INDEX postlude_saga_subject_saga ON postlude_saga_subject (saga_id);

CREATE TABLE postlude_key (
    name    TEXT PRIMARY KEY NOT NULL,
    content BLOB NOT NULL
) WITHOUT ROWID;
INSERT INTO postlude_key (name, content) VALUES ('pseudonym', randomblob(32));

ALTER TABLE postlude_audit ADD COLUMN trace_id TEXT;
ALTER TABLE postlude_audit ADD COLUMN old_status TEXT;
ALTER TABLE postlude_audit ADD COLUMN new_status TEXT;
ALTER TABLE postlude_audit_link ADD COLUMN row_hash BLOB;
CREATE INDEX postlude_audit_at ON postlude_audit (at, id);
INSERT INTO postlude_meta (name, value) VALUES ('audit_head', '0:');

CREATE TRIGGER postlude_audit_no_update BEFORE UPDATE ON postlude_audit
BEGIN SELECT RAISE(ABORT, 'postlude_audit is insert only'); END;
CREATE TRIGGER postlude_audit_no_delete BEFORE DELETE ON postlude_audit
BEGIN SELECT RAISE(ABORT, 'postlude_audit is insert only'); END;
-- INSERT OR REPLACE deletes without asking the trigger of deletions.
CREATE TRIGGER postlude_audit_no_replace BEFORE INSERT ON postlude_audit
    WHEN EXISTS (SELECT 1 FROM postlude_audit WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'postlude_audit is insert only'); END;
CREATE TRIGGER postlude_audit_link_no_replace BEFORE INSERT ON postlude_audit_link
    WHEN EXISTS (SELECT 1 FROM postlude_audit_link WHERE position = NEW.position OR audit_id = NEW.audit_id)
BEGIN SELECT RAISE(ABORT, 'postlude_audit_link is insert only'); END;
CREATE TRIGGER postlude_audit_link_no_update BEFORE UPDATE ON postlude_audit_link
BEGIN SELECT RAISE(ABORT, 'postlude_audit_link is insert only'); END;
CREATE TRIGGER postlude_audit_link_no_delete BEFORE DELETE ON postlude_audit_link
BEGIN SELECT RAISE(ABORT, 'postlude_audit_link is insert only'); END;

-- A call is over, however it ended: its secrets go, its group counts down, and the last one completes the group.
CREATE TRIGGER postlude_delivery_end_call AFTER DELETE ON postlude_delivery WHEN substr(OLD.destination, 1, 5) = 'call:'
BEGIN
    DELETE FROM postlude_secret WHERE event_id = OLD.event_id;
    UPDATE postlude_group
       SET open = open - 1,
           discarded = discarded + NOT EXISTS (SELECT 1 FROM postlude_receipt r WHERE r.event_id = OLD.event_id
                                                  AND r.seq = OLD.seq AND r.outcome = 'sent'),
           completed_at = CASE WHEN open = 1 THEN (julianday('now') - 2440587.5) * 86400.0 END
     WHERE id = OLD.group_id;
END;

-- A call is abandoned: corrections go, the audit record is there. This clock counts milliseconds: what follows another
-- record about the subject is put behind it.
CREATE TRIGGER postlude_delivery_abandon_call AFTER UPDATE OF status ON postlude_delivery
    WHEN NEW.group_id IS NOT NULL AND NEW.status = 'dead' AND OLD.status <> 'dead'
BEGIN
    DELETE FROM postlude_secret WHERE event_id = NEW.event_id AND part = 'corrections';
    INSERT INTO postlude_audit (id, at, actor, action, target, reason, old_status, new_status, detail)
    SELECT randomblob(16), max((julianday('now') - 2440587.5) * 86400.0,
               coalesce((SELECT max(at) + 0.000001 FROM postlude_audit WHERE target = 'subject:' || g.subject), 0.0)), 'postlude',
           CASE g.operation WHEN 'erase' THEN 'erasure' ELSE 'rectification' END || '_step_failed',
           'subject:' || g.subject, '', OLD.status, NEW.status,
           json_object('entry_id', (SELECT substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-' || substr(h, 13, 4) || '-' ||
                                           substr(h, 17, 4) || '-' || substr(h, 21)
                                      FROM (SELECT lower(hex(NEW.event_id)) AS h)),
                       'resolver', substr(NEW.destination, 6), 'abandoned', json('true'), 'attempts', NEW.attempts,
                       'error', coalesce(NEW.last_error ->> 'kind', 'Unknown'), 'generation', g.generation)
      FROM postlude_group g WHERE g.id = NEW.group_id;
END;

-- A group is complete, in the transaction of its last call: the trail says so, and whoever asked to be told gets an event.
CREATE VIEW postlude_completion AS
    SELECT id, tells, subject, 'postlude.' || CASE operation WHEN 'erase' THEN 'erasure' ELSE 'rectification' END || '.completed'
           AS type, json_object('group', substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-' || substr(h, 13, 4) || '-' ||
                                substr(h, 17, 4) || '-' || substr(h, 21), 'generation', generation, 'calls', calls,
                                'discarded', discarded) AS said
      FROM (SELECT *, lower(hex(id)) AS h FROM postlude_group);
CREATE TABLE postlude_completing (
    id       BLOB PRIMARY KEY NOT NULL,
    event_id BLOB NOT NULL DEFAULT (randomblob(16))
) WITHOUT ROWID;
CREATE TRIGGER postlude_group_completed AFTER UPDATE OF completed_at ON postlude_group
    WHEN OLD.completed_at IS NULL AND NEW.completed_at IS NOT NULL
BEGIN
    INSERT INTO postlude_completing (id) VALUES (NEW.id);
END;
CREATE TRIGGER postlude_group_born_complete AFTER INSERT ON postlude_group WHEN NEW.completed_at IS NOT NULL
BEGIN
    INSERT INTO postlude_completing (id) VALUES (NEW.id);
END;
CREATE TRIGGER postlude_completing_done AFTER INSERT ON postlude_completing
BEGIN
    INSERT INTO postlude_audit (id, at, actor, action, target, reason, detail)
    SELECT randomblob(16), max((julianday('now') - 2440587.5) * 86400.0,
               coalesce((SELECT max(at) + 0.000001 FROM postlude_audit WHERE target = 'subject:' || c.subject), 0.0)), 'postlude',
           replace(substr(c.type, 10), '.', '_'), 'subject:' || c.subject, '', c.said
      FROM postlude_completion c WHERE c.id = NEW.id;
    INSERT INTO postlude_event (event_id, type, source, topic, payload, correlation_id)
    SELECT NEW.event_id, type, 'postlude', 'events.' || type,
           CAST(json_patch(said, json_object('subject', subject)) AS BLOB), said ->> 'group'
      FROM postlude_completion WHERE id = NEW.id AND tells;
    INSERT INTO postlude_delivery (event_id, destination)
    SELECT NEW.event_id, 'route' FROM postlude_group WHERE id = NEW.id AND tells;
    DELETE FROM postlude_completing WHERE id = NEW.id;
END;

-- Sealing all over again is a bulk action too; SQLite changes a CHECK by making the table anew.
CREATE TABLE postlude_operation_new (
    id          BLOB    PRIMARY KEY,
    action      TEXT    NOT NULL CHECK (action IN ('requeue', 'discard', 'bury', 'replay', 'reseal')),
    filter      TEXT    NOT NULL DEFAULT '{}',
    destination TEXT,
    actor       TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    status      TEXT    NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'done', 'cancelled')),
    cursor      TEXT    NOT NULL DEFAULT '',
    last_seq    INTEGER NOT NULL DEFAULT 0,
    total       INTEGER NOT NULL DEFAULT 0,
    done        INTEGER NOT NULL DEFAULT 0,
    created_at  REAL    NOT NULL,
    updated_at  REAL    NOT NULL,
    ended_at    REAL
) WITHOUT ROWID;
INSERT INTO postlude_operation_new SELECT * FROM postlude_operation;
DROP TABLE postlude_operation;
ALTER TABLE postlude_operation_new RENAME TO postlude_operation;
CREATE UNIQUE INDEX postlude_operation_running
    ON postlude_operation (action, json_remove(filter, '$.since', '$.until'), coalesce(destination, ''))
    WHERE status = 'running';
