-- The engine: events are facts, deliveries are work, receipts are proof.
-- The schema is written as "postlude" and replaced by the one in the settings.

CREATE TABLE postlude.postlude_meta (
    name  text PRIMARY KEY,
    value text NOT NULL
);

-- Wide rows, written once. Partitioned by range of the UUIDv7 id; ids that are no v7 live in the default partition.
CREATE TABLE postlude.postlude_event (
    event_id       uuid        NOT NULL,
    type           text        NOT NULL,
    version        smallint    NOT NULL DEFAULT 1,
    source         text        NOT NULL DEFAULT 'sql',
    entity         text,
    key            text,
    topic          text        NOT NULL,
    content_type   text        NOT NULL DEFAULT 'application/json',
    payload        bytea       NOT NULL,
    digest         bytea       NOT NULL DEFAULT ''::bytea,
    headers        jsonb       NOT NULL DEFAULT '{}'::jsonb,
    correlation_id text        NOT NULL DEFAULT '',
    causation_id   uuid,
    saga_id        uuid,
    subjects       text[],
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT postlude_event_version CHECK (version > 0),
    CONSTRAINT postlude_event_key CHECK (key <> ''),
    PRIMARY KEY (event_id)
) PARTITION BY RANGE (event_id);
CREATE TABLE postlude.postlude_event_default PARTITION OF postlude.postlude_event DEFAULT;
CREATE INDEX postlude_event_subject ON postlude.postlude_event USING gin (subjects) WHERE subjects IS NOT NULL;
CREATE INDEX postlude_event_caused ON postlude.postlude_event (causation_id) WHERE causation_id IS NOT NULL;

-- Narrow rows for open work only. CACHE 1: a cached sequence would break the order of a key.
CREATE TABLE postlude.postlude_delivery (
    seq          bigint      GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    event_id     uuid        NOT NULL,
    destination  text        NOT NULL,
    lane         smallint    NOT NULL DEFAULT 0,
    key          text,
    priority     smallint    NOT NULL DEFAULT 1,
    status       text        NOT NULL DEFAULT 'pending',
    blocks       boolean     NOT NULL DEFAULT false,
    attempts     integer     NOT NULL DEFAULT 0,
    max_attempts integer,
    starts       smallint    NOT NULL DEFAULT 0,
    available_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    token        uuid,
    last_error   text,
    CONSTRAINT postlude_delivery_status CHECK (status IN ('pending', 'claimed', 'failed', 'scheduled', 'dead')),
    CONSTRAINT postlude_delivery_blocks CHECK (NOT blocks OR (key IS NOT NULL AND status IN ('claimed', 'failed', 'dead'))),
    CONSTRAINT postlude_delivery_priority CHECK (priority BETWEEN 0 AND 2 AND (priority = 1 OR key IS NULL)),
    CONSTRAINT postlude_delivery_attempts CHECK (attempts >= 0)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000);
CREATE INDEX postlude_delivery_hot ON postlude.postlude_delivery (destination, lane, priority, seq)
    WHERE status = 'pending';
CREATE INDEX postlude_delivery_due ON postlude.postlude_delivery (destination, lane, available_at, seq)
    WHERE status IN ('failed', 'scheduled', 'claimed');
CREATE INDEX postlude_delivery_block ON postlude.postlude_delivery (destination, key, seq) WHERE blocks;
CREATE INDEX postlude_delivery_dead ON postlude.postlude_delivery (destination, seq) WHERE status = 'dead';
CREATE UNIQUE INDEX postlude_delivery_event ON postlude.postlude_delivery (event_id, destination);

-- The lifecycle, as in postlude.core.lifecycle: a test compares the two.
CREATE TABLE postlude.postlude_transition (
    was     text NOT NULL,
    becomes text NOT NULL,
    PRIMARY KEY (was, becomes)
);
INSERT INTO postlude.postlude_transition (was, becomes) VALUES
    ('pending', 'claimed'), ('pending', 'failed'), ('pending', 'scheduled'), ('pending', 'dead'),
    ('claimed', 'claimed'), ('claimed', 'failed'), ('claimed', 'scheduled'), ('claimed', 'dead'),
    ('failed', 'claimed'), ('failed', 'failed'), ('failed', 'scheduled'), ('failed', 'dead'),
    ('scheduled', 'claimed'), ('scheduled', 'failed'), ('scheduled', 'scheduled'), ('scheduled', 'dead'),
    ('dead', 'failed');
CREATE FUNCTION postlude.postlude_check_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM postlude.postlude_transition t WHERE t.was = OLD.status AND t.becomes = NEW.status) THEN
        RAISE EXCEPTION 'a % delivery cannot become %', OLD.status, NEW.status USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER postlude_delivery_lifecycle BEFORE UPDATE OF status ON postlude.postlude_delivery
    FOR EACH ROW EXECUTE FUNCTION postlude.postlude_check_transition();
CREATE FUNCTION postlude.postlude_check_birth() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a delivery cannot be born %', NEW.status USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER postlude_delivery_birth BEFORE INSERT ON postlude.postlude_delivery
    FOR EACH ROW WHEN (NEW.status IN ('failed', 'dead')) EXECUTE FUNCTION postlude.postlude_check_birth();

-- Proof, insert only, partitioned and retired like events.
CREATE TABLE postlude.postlude_receipt (
    event_id    uuid        NOT NULL,
    destination text        NOT NULL,
    outcome     text        NOT NULL DEFAULT 'sent',
    attempts    integer     NOT NULL,
    seq         bigint      NOT NULL,
    worker      uuid,
    actor       text,
    settled_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT postlude_receipt_outcome CHECK (outcome IN ('sent', 'discarded'))
) PARTITION BY RANGE (event_id);
CREATE TABLE postlude.postlude_receipt_default PARTITION OF postlude.postlude_receipt DEFAULT;
CREATE INDEX postlude_receipt_event ON postlude.postlude_receipt (event_id);

-- One row a live process; the lease is the worker's.
CREATE TABLE postlude.postlude_worker (
    id           uuid        PRIMARY KEY,
    name         text        NOT NULL,
    version      text        NOT NULL,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until  timestamptz NOT NULL,
    stopping     boolean     NOT NULL DEFAULT false,
    destinations text[]      NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 200);

-- Changes only when a lane changes hands.
CREATE TABLE postlude.postlude_lane (
    destination text     NOT NULL,
    lane        smallint NOT NULL,
    owner       uuid,
    epoch       bigint   NOT NULL DEFAULT 0,
    crashes     integer  NOT NULL DEFAULT 0,
    cautious_to bigint,
    PRIMARY KEY (destination, lane)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 200);

CREATE TABLE postlude.postlude_destination (
    name      text        PRIMARY KEY,
    kind      text        NOT NULL,
    seen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    paused_at timestamptz,
    paused_by text,
    reason    text
);

-- Who did what, when, why; the chain over it is linked apart.
CREATE TABLE postlude.postlude_audit (
    id     uuid        PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor  text        NOT NULL,
    action text        NOT NULL,
    target text        NOT NULL,
    reason text        NOT NULL,
    detail jsonb       NOT NULL DEFAULT '{}'::jsonb
);
CREATE INDEX postlude_audit_target ON postlude.postlude_audit (target, at);
CREATE TABLE postlude.postlude_audit_link (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    audit_id uuid   NOT NULL UNIQUE,
    hash     bytea  NOT NULL
);

-- Events for people: the payload as JSON where it is JSON.
CREATE VIEW postlude.postlude_event_json AS
    SELECT event_id, type, version, source, entity, key, topic, headers, correlation_id, causation_id, subjects,
           created_at,
           CASE WHEN content_type = 'application/json' THEN convert_from(payload, 'UTF8')::jsonb END AS payload
      FROM postlude.postlude_event;
