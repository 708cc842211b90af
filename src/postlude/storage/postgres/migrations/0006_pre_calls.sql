-- Calls to foreign systems, erasure, the audit chain, keys of data subjects. Only adds.
-- Triggers do what must happen on every way that a call can end, whoever ends it: a settle, an operator, retention.

ALTER TABLE postlude.postlude_delivery ADD COLUMN group_id uuid, ADD COLUMN attempted_at timestamptz;
CREATE INDEX postlude_delivery_group ON postlude.postlude_delivery (group_id) WHERE group_id IS NOT NULL;

-- One request about a data subject and how many of its calls are open, dead ones too. The subject is a keyed hash.
CREATE TABLE postlude.postlude_group (
    id           uuid        PRIMARY KEY,
    subject      text        NOT NULL,
    operation    text        NOT NULL,
    generation   integer     NOT NULL,
    open         integer     NOT NULL,
    calls        integer     NOT NULL,
    discarded    integer     NOT NULL DEFAULT 0,
    tells        boolean     NOT NULL DEFAULT false,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    deadline     timestamptz NOT NULL,
    completed_at timestamptz,
    CONSTRAINT postlude_group_operation CHECK (operation IN ('erase', 'rectify')),
    CONSTRAINT postlude_group_numbers CHECK (open BETWEEN 0 AND calls AND generation > 0),
    UNIQUE (subject, operation, generation)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX postlude_group_deadline ON postlude.postlude_group (deadline) WHERE completed_at IS NULL;

-- What a call needs and nobody may keep: the reference at the vendor, corrections. Gone when the call is over, or its
-- verification, if there is one: the delivery that follows the call's own, in no group.
CREATE TABLE postlude.postlude_secret (
    event_id uuid  NOT NULL,
    part     text  NOT NULL,
    content  bytea NOT NULL,
    PRIMARY KEY (event_id, part)
);

-- Data subjects by keyed hash: the lock that makes erasures of one wait for each other, and the key of its own.
CREATE TABLE postlude.postlude_subject (
    subject     text        PRIMARY KEY,
    erasures    integer     NOT NULL DEFAULT 0,
    erased_at   timestamptz,
    key_id      text,
    key         bytea,
    shredded_at timestamptz
);

-- Whom a saga is about, written when retention removes the events that say so. Gone with the saga, or when the subject is redacted.
CREATE TABLE postlude.postlude_saga_subject (
    subject text NOT NULL,
    saga_id uuid NOT NULL,
    PRIMARY KEY (subject, saga_id)
);
CREATE INDEX postlude_saga_subject_saga ON postlude.postlude_saga_subject (saga_id);

-- Keys that belong to this installation; not for viewers.
CREATE TABLE postlude.postlude_key (
    name    text  PRIMARY KEY,
    content bytea NOT NULL
);
INSERT INTO postlude.postlude_key (name, content)
VALUES ('pseudonym', decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));

ALTER TABLE postlude.postlude_audit ADD COLUMN trace_id text, ADD COLUMN old_status text, ADD COLUMN new_status text;
ALTER TABLE postlude.postlude_audit_link ADD COLUMN row_hash bytea;
CREATE INDEX postlude_audit_at ON postlude.postlude_audit (at, id);
INSERT INTO postlude.postlude_meta (name, value) VALUES ('audit_head', '0:');

CREATE FUNCTION postlude.postlude_insert_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is insert only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER postlude_audit_insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON postlude.postlude_audit
    FOR EACH STATEMENT EXECUTE FUNCTION postlude.postlude_insert_only();
CREATE TRIGGER postlude_audit_link_insert_only BEFORE UPDATE OR DELETE OR TRUNCATE ON postlude.postlude_audit_link
    FOR EACH STATEMENT EXECUTE FUNCTION postlude.postlude_insert_only();

-- A call is over, however it ended: its secrets go, its group counts down, and the last one completes the group.
CREATE FUNCTION postlude.postlude_end_call() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    given_up integer := (NOT EXISTS (SELECT 1 FROM postlude.postlude_receipt r
                                      WHERE r.event_id = OLD.event_id AND r.seq = OLD.seq AND r.outcome = 'sent'))::integer;
BEGIN
    DELETE FROM postlude.postlude_secret WHERE event_id = OLD.event_id;
    UPDATE postlude.postlude_group
       SET open = open - 1, discarded = discarded + given_up,
           completed_at = CASE WHEN open = 1 THEN clock_timestamp() END
     WHERE id = OLD.group_id;
    RETURN NULL;
END $$;
CREATE TRIGGER postlude_delivery_end_call AFTER DELETE ON postlude.postlude_delivery
    FOR EACH ROW WHEN (starts_with(OLD.destination, 'call:')) EXECUTE FUNCTION postlude.postlude_end_call();

-- A call is abandoned: corrections go, the audit record is there.
CREATE FUNCTION postlude.postlude_abandon_call() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM postlude.postlude_secret WHERE event_id = NEW.event_id AND part = 'corrections';
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, old_status, new_status, detail)
    SELECT gen_random_uuid(), 'postlude', CASE g.operation WHEN 'erase' THEN 'erasure' ELSE 'rectification' END || '_step_failed',
           'subject:' || g.subject, '', OLD.status, NEW.status,
           jsonb_build_object('entry_id', NEW.event_id, 'resolver', substr(NEW.destination, 6), 'abandoned', true,
                              'attempts', NEW.attempts, 'error', coalesce(NEW.last_error::jsonb ->> 'kind', 'Unknown'),
                              'generation', g.generation)
      FROM postlude.postlude_group g WHERE g.id = NEW.group_id;
    RETURN NULL;
END $$;
CREATE TRIGGER postlude_delivery_abandon_call AFTER UPDATE OF status ON postlude.postlude_delivery
    FOR EACH ROW WHEN (NEW.group_id IS NOT NULL AND NEW.status = 'dead' AND OLD.status <> 'dead')
    EXECUTE FUNCTION postlude.postlude_abandon_call();

-- A group is complete, in the transaction of its last call: the trail says so, and whoever asked to be told gets an event.
CREATE FUNCTION postlude.postlude_complete_group() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    word text := CASE NEW.operation WHEN 'erase' THEN 'erasure' ELSE 'rectification' END;
    said jsonb := jsonb_build_object('group', NEW.id, 'generation', NEW.generation, 'calls', NEW.calls,
                                     'discarded', NEW.discarded);
    event uuid := gen_random_uuid();
BEGIN
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, detail)
    VALUES (gen_random_uuid(), 'postlude', word || '_completed', 'subject:' || NEW.subject, '', said);
    IF NEW.tells THEN
        INSERT INTO postlude.postlude_event (event_id, type, source, topic, payload, correlation_id)
        VALUES (event, 'postlude.' || word || '.completed', 'postlude', 'events.postlude.' || word || '.completed',
                convert_to((said || jsonb_build_object('subject', NEW.subject))::text, 'UTF8'), NEW.id::text);
        INSERT INTO postlude.postlude_delivery (event_id, destination) VALUES (event, 'route');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER postlude_group_completed AFTER UPDATE OF completed_at ON postlude.postlude_group
    FOR EACH ROW WHEN (OLD.completed_at IS NULL AND NEW.completed_at IS NOT NULL)
    EXECUTE FUNCTION postlude.postlude_complete_group();
CREATE TRIGGER postlude_group_born_complete AFTER INSERT ON postlude.postlude_group
    FOR EACH ROW WHEN (NEW.completed_at IS NOT NULL) EXECUTE FUNCTION postlude.postlude_complete_group();

-- Sealing all over again is a bulk action too.
ALTER TABLE postlude.postlude_operation DROP CONSTRAINT postlude_operation_action;
ALTER TABLE postlude.postlude_operation ADD CONSTRAINT postlude_operation_action
    CHECK (action IN ('requeue', 'discard', 'bury', 'replay', 'reseal'));
