-- Redacting a data subject. Whoever writes has the file to itself: there is nothing to lock, and nobody to wait for.

-- name: redact_find
SELECT event_id FROM postlude_event_subject WHERE subject = :subject_id AND event_id > :after ORDER BY event_id LIMIT :limit

-- name: redact_lock
SELECT event_id FROM postlude_event
 WHERE event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places)) ORDER BY event_id

-- name: redact_deliveries
SELECT seq FROM postlude_delivery
 WHERE event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))
   AND (status = 'dead' OR :discards AND status IN ('pending', 'failed', 'scheduled'))
 ORDER BY seq

-- name: redact_deliveries_again
SELECT seq, event_id, destination, status FROM postlude_delivery
 WHERE event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places)) ORDER BY seq

-- name: redact_linked
-- The processes that an event was appended in, and those that it moved: what they appended then has it for its cause.
SELECT l.event_id, l.saga_id
  FROM (SELECT event_id, saga_id FROM postlude_event
         WHERE event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places)) AND saga_id IS NOT NULL
        UNION
        SELECT causation_id, saga_id FROM postlude_event
         WHERE causation_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places)) AND saga_id IS NOT NULL) AS l
  JOIN postlude_saga s ON s.id = l.saga_id

-- name: redact_processes
-- The names of sagas are walked along the index, one by one.
WITH RECURSIVE names AS (
    SELECT min(name) AS name FROM postlude_saga
    UNION ALL
    SELECT (SELECT min(s.name) FROM postlude_saga s WHERE s.name > n.name) FROM names n WHERE n.name IS NOT NULL
)
SELECT s.id FROM names n JOIN postlude_saga s ON s.name = n.name AND s.process_id = :subject_id
 ORDER BY s.id LIMIT :limit

-- name: redact_remembered
-- Sagas whose events are gone, and whether they are there themselves.
SELECT m.saga_id, s.id IS NOT NULL
  FROM postlude_saga_subject m LEFT JOIN postlude_saga s ON s.id = m.saga_id
 WHERE m.subject = :subject_id AND m.saga_id > :after ORDER BY m.saga_id LIMIT :limit

-- name: redact_rectifications
-- Calls with corrections that are not over, abandoned ones too. Erasures are kept: somebody has to finish them.
SELECT d.event_id FROM postlude_group g JOIN postlude_delivery d ON d.group_id = g.id
 WHERE g.subject = :subject AND g.operation = 'rectify' AND g.open > 0 ORDER BY d.event_id

-- name: redact_sagas
SELECT s.body, EXISTS (SELECT 1 FROM postlude_event e JOIN postlude_delivery d ON d.event_id = e.event_id
                        WHERE e.saga_id = s.id AND d.status <> 'dead' AND substr(d.destination, 1, 5) = 'saga:')
  FROM postlude_saga s WHERE s.id IN (SELECT substr(:ids, value, 16) FROM json_each(:places)) ORDER BY s.id

-- name: redact_discard
INSERT INTO postlude_receipt (event_id, destination, outcome, attempts, seq, actor, settled_at)
SELECT d.event_id, d.destination, 'discarded', d.attempts, d.seq, :actor, :now FROM postlude_delivery d
 WHERE d.seq IN (SELECT value FROM json_each(:seqs))

-- name: redact_discard_2
INSERT INTO postlude_audit (id, at, actor, action, target, reason, detail)
SELECT randomblob(16), :now, :actor, 'discard', uuid_text(d.event_id), :reason,
       json_object('destination', d.destination, 'status', d.status, 'prior_attempts', d.attempts)
  FROM postlude_delivery d WHERE d.seq IN (SELECT value FROM json_each(:seqs))

-- name: redact_discard_3
DELETE FROM postlude_delivery WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: redact_events
UPDATE postlude_event
   SET entity = NULL, key = NULL, content_type = 'application/json', payload = CAST('{}' AS BLOB), digest = x'',
       headers = CASE WHEN json_valid(headers) AND json_type(headers, '$.traceparent') = 'text'
                      THEN json_object('traceparent', headers ->> 'traceparent', 'postlude-redacted', '1')
                      ELSE json_object('postlude-redacted', '1') END,
       correlation_id = CASE WHEN length(correlation_id) = 36 AND length(replace(correlation_id, '-', '')) = 32
                              AND replace(correlation_id, '-', '') NOT GLOB '*[^0-9A-Fa-f]*'
                              AND correlation_id <> :subject_id THEN correlation_id ELSE uuid_text(event_id) END,
       subjects = (SELECT nullif(json_group_array(value), '[]') FROM json_each(subjects) WHERE value <> :subject_id)
 WHERE event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))

-- name: redact_events_2
DELETE FROM postlude_event_subject WHERE subject = :subject_id
   AND event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))

-- name: redact_saga
UPDATE postlude_saga
   SET name = :name, process_id = :process_id, generation = :generation, status = :status, version = :version,
       hash = :hash, step = :step, error = :error, body = :body, updated_at = :updated_at
 WHERE id = :id AND version = :was

-- name: redact_saga_2
-- The one exception from a history that is insert only.
UPDATE postlude_saga_step SET detail = NULL WHERE saga_id = :id AND detail IS NOT NULL

-- name: redact_forget
DELETE FROM postlude_saga_subject WHERE subject = :subject_id
   AND saga_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))

-- name: redact_key
UPDATE postlude_subject SET key_id = NULL, key = NULL, shredded_at = :now WHERE subject = :subject AND key IS NOT NULL
RETURNING subject
