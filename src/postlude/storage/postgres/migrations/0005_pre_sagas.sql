-- Sagas: one row a run, guarded by its version, and the history of its decisions. Only adds.

-- Half of a page stays free: a step changes no column that an index knows, so that its new version stays on the page.
CREATE TABLE postlude.postlude_saga (
    id         uuid        PRIMARY KEY,
    name       text        NOT NULL,
    process_id text        NOT NULL,
    generation integer     NOT NULL,
    status     text        NOT NULL,
    version    integer     NOT NULL,
    hash       text        NOT NULL,
    step       text,
    error      text,
    body       bytea       NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    ended_at   timestamptz,
    CONSTRAINT postlude_saga_known CHECK (status IN ('running', 'compensating', 'stuck', 'completed', 'compensated')),
    CONSTRAINT postlude_saga_end CHECK ((ended_at IS NOT NULL) = (status IN ('completed', 'compensated'))),
    CONSTRAINT postlude_saga_numbers CHECK (generation > 0 AND version > 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);
CREATE UNIQUE INDEX postlude_saga_process ON postlude.postlude_saga (name, process_id, generation);
-- Never two at a time.
CREATE UNIQUE INDEX postlude_saga_live ON postlude.postlude_saga (name, process_id)
    WHERE status IN ('running', 'compensating', 'stuck');
CREATE INDEX postlude_saga_status ON postlude.postlude_saga (status, name, created_at, id);
CREATE INDEX postlude_saga_created ON postlude.postlude_saga (created_at, id);
CREATE INDEX postlude_saga_ended ON postlude.postlude_saga (ended_at) WHERE ended_at IS NOT NULL;

-- Insert only. A signal that changed nothing has a line too, so the version alone is no key.
CREATE TABLE postlude.postlude_saga_step (
    saga_id uuid        NOT NULL,
    number  bigint      GENERATED ALWAYS AS IDENTITY,
    version integer     NOT NULL,
    at      timestamptz NOT NULL,
    what    text        NOT NULL,
    step    text,
    attempt integer     NOT NULL DEFAULT 0,
    detail  text,
    PRIMARY KEY (saga_id, number)
);

-- What is on its way for a saga is found by its events.
CREATE INDEX postlude_event_saga ON postlude.postlude_event (saga_id) WHERE saga_id IS NOT NULL;
