-- Sagas: one row a run, guarded by its version, and the history of its decisions. Only adds.

CREATE TABLE postlude_saga (
    id         BLOB    PRIMARY KEY NOT NULL,
    name       TEXT    NOT NULL,
    process_id TEXT    NOT NULL,
    generation INTEGER NOT NULL CHECK (generation > 0),
    status     TEXT    NOT NULL CHECK (status IN ('running', 'compensating', 'stuck', 'completed', 'compensated')),
    version    INTEGER NOT NULL CHECK (version > 0),
    hash       TEXT    NOT NULL,
    step       TEXT,
    error      TEXT,
    body       BLOB    NOT NULL,
    created_at REAL    NOT NULL,
    updated_at REAL    NOT NULL,
    ended_at   REAL,
    CHECK ((ended_at IS NOT NULL) = (status IN ('completed', 'compensated')))
);
CREATE UNIQUE INDEX postlude_saga_process ON postlude_saga (name, process_id, generation);
-- Never two at a time.
CREATE UNIQUE INDEX postlude_saga_live ON postlude_saga (name, process_id)
    WHERE status IN ('running', 'compensating', 'stuck');
CREATE INDEX postlude_saga_status ON postlude_saga (status, name, created_at, id);
CREATE INDEX postlude_saga_created ON postlude_saga (created_at, id);
CREATE INDEX postlude_saga_ended ON postlude_saga (ended_at) WHERE ended_at IS NOT NULL;

-- Insert only. A signal that changed nothing has a line too, so the version alone is no key.
CREATE TABLE postlude_saga_step (
    number  INTEGER PRIMARY KEY,
    saga_id BLOB    NOT NULL,
    version INTEGER NOT NULL,
    at      REAL    NOT NULL,
    what    TEXT    NOT NULL,
    step    TEXT,
    attempt INTEGER NOT NULL DEFAULT 0,
    detail  TEXT
);
CREATE INDEX postlude_saga_step_saga ON postlude_saga_step (saga_id, number);

-- What is on its way for a saga is found by its events.
CREATE INDEX postlude_event_saga ON postlude_event (saga_id) WHERE saga_id IS NOT NULL;
