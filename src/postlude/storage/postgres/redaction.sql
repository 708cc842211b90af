-- Redacting a data subject: a page is one transaction of several statements. Each sees what was committed before it
-- began, so what happened while an event was waited for is seen by those that follow.

-- name: redact_find
-- By the index of subjects alone: with the order and the limit inside, every event might be walked.
WITH mine AS MATERIALIZED (
    SELECT event_id FROM postlude.postlude_event WHERE subjects @> ARRAY[:subject_id::text] AND event_id > :after
)
SELECT event_id FROM mine ORDER BY event_id LIMIT :limit

-- name: redact_lock
-- Requeue and replay lock the event too, and look whether it is redacted.
SELECT event_id FROM postlude.postlude_event
 WHERE event_id = ANY(:ids::uuid[]) AND event_id BETWEEN :low AND :high AND subjects @> ARRAY[:subject_id::text]
 ORDER BY event_id FOR UPDATE

-- name: redact_deliveries
-- Only what may be discarded: a worker that finds its row locked would take it for lost, and do its work again.
SELECT seq FROM postlude.postlude_delivery
 WHERE event_id = ANY(:ids::uuid[])
   AND (status = 'dead' OR :discards::boolean AND status IN ('pending', 'failed', 'scheduled'))
 ORDER BY seq FOR UPDATE SKIP LOCKED

-- name: redact_deliveries_again
-- Those that somebody else holds too.
SELECT seq, event_id, destination, status FROM postlude.postlude_delivery WHERE event_id = ANY(:ids::uuid[]) ORDER BY seq

-- name: redact_linked
-- The processes that an event was appended in, and those that it moved: what they appended then has it for its cause.
SELECT l.event_id, l.saga_id
  FROM (SELECT event_id, saga_id FROM postlude.postlude_event
         WHERE event_id = ANY(:ids::uuid[]) AND event_id BETWEEN :low AND :high AND saga_id IS NOT NULL
        UNION
        SELECT causation_id, saga_id FROM postlude.postlude_event
         WHERE causation_id = ANY(:ids::uuid[]) AND saga_id IS NOT NULL) AS l
  JOIN postlude.postlude_saga s ON s.id = l.saga_id

-- name: redact_processes
-- The names of sagas are walked along the index, one by one.
WITH RECURSIVE names AS (
    SELECT min(name) AS name FROM postlude.postlude_saga
    UNION ALL
    SELECT (SELECT min(s.name) FROM postlude.postlude_saga s WHERE s.name > n.name) FROM names n WHERE n.name IS NOT NULL
)
SELECT s.id FROM names n JOIN postlude.postlude_saga s ON s.name = n.name AND s.process_id = :subject_id
 ORDER BY s.id LIMIT :limit

-- name: redact_remembered
-- Sagas whose events are gone, and whether they are there themselves.
SELECT m.saga_id, s.id IS NOT NULL
  FROM postlude.postlude_saga_subject m LEFT JOIN postlude.postlude_saga s ON s.id = m.saga_id
 WHERE m.subject = :subject_id AND m.saga_id > :after ORDER BY m.saga_id LIMIT :limit

-- name: redact_rectifications
-- Calls with corrections that are not over, abandoned ones too. Erasures are kept: somebody has to finish them.
SELECT d.event_id FROM postlude.postlude_group g JOIN postlude.postlude_delivery d ON d.group_id = g.id
 WHERE g.subject = :subject AND g.operation = 'rectify' AND g.open > 0 ORDER BY d.event_id

-- name: redact_sagas
SELECT s.body, EXISTS (SELECT 1 FROM postlude.postlude_event e JOIN postlude.postlude_delivery d ON d.event_id = e.event_id
                        WHERE e.saga_id = s.id AND d.status <> 'dead' AND starts_with(d.destination, 'saga:')) AS is_busy
  FROM postlude.postlude_saga s WHERE s.id = ANY(:ids::uuid[]) ORDER BY s.id FOR UPDATE OF s SKIP LOCKED

-- name: redact_discard
WITH target AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.destination, d.status, d.attempts FROM postlude.postlude_delivery d
     WHERE d.seq = ANY(:seqs::bigint[]) ORDER BY d.seq
), changed AS (
    DELETE FROM postlude.postlude_delivery d USING target WHERE d.seq = target.seq
), receipt AS (
    INSERT INTO postlude.postlude_receipt (event_id, destination, outcome, attempts, seq, actor)
    SELECT event_id, destination, 'discarded', attempts, seq, :actor FROM target
)
INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, detail)
SELECT gen_random_uuid(), :actor, 'discard', event_id::text, :reason,
       jsonb_build_object('destination', destination, 'status', status, 'prior_attempts', attempts)
  FROM target

-- name: redact_events
UPDATE postlude.postlude_event
   SET entity = NULL, key = NULL, content_type = 'application/json', payload = '{}'::bytea, digest = ''::bytea,
       headers = jsonb_strip_nulls(jsonb_build_object('traceparent', headers -> 'traceparent', 'postlude-redacted', '1')),
       correlation_id = CASE WHEN correlation_id ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                              AND correlation_id <> :subject_id THEN correlation_id ELSE event_id::text END,
       subjects = nullif(array_remove(subjects, :subject_id), '{}')
 WHERE event_id = ANY(:ids::uuid[]) AND event_id BETWEEN :low AND :high

-- name: redact_saga
UPDATE postlude.postlude_saga
   SET name = :name, process_id = :process_id, generation = :generation, status = :status, version = :version,
       hash = :hash, step = :step, error = :error, body = :body, updated_at = :updated_at
 WHERE id = :id AND version = :was

-- name: redact_saga_2
-- The one exception from a history that is insert only.
UPDATE postlude.postlude_saga_step SET detail = NULL WHERE saga_id = :id AND detail IS NOT NULL

-- name: redact_forget
DELETE FROM postlude.postlude_saga_subject WHERE subject = :subject_id
   AND saga_id = ANY(:ids::uuid[])

-- name: redact_key
UPDATE postlude.postlude_subject SET key_id = NULL, key = NULL, shredded_at = clock_timestamp() + :ahead::interval
 WHERE subject = :subject AND key IS NOT NULL
RETURNING subject
