-- Calls to foreign systems, in completion groups. Triggers end calls and complete groups (migration 0006).

-- name: lock_subject
-- Whoever writes has the file to itself: there is nobody to wait for, only a mark to leave.
INSERT INTO postlude_subject AS s (subject, erasures, erased_at) VALUES (:subject, :erasures, CASE WHEN :erasures > 0 THEN :now END)
ON CONFLICT (subject) DO UPDATE
   SET erasures = s.erasures + excluded.erasures,
       erased_at = coalesce(excluded.erased_at, s.erased_at)

-- name: knows_subject
-- The names of sagas are walked along the index, one by one.
WITH RECURSIVE names AS (
    SELECT min(name) AS name FROM postlude_saga
    UNION ALL
    SELECT (SELECT min(s.name) FROM postlude_saga s WHERE s.name > n.name) FROM names n WHERE n.name IS NOT NULL
)
SELECT EXISTS (SELECT 1 FROM postlude_event_subject WHERE subject = :subject_id)
    OR EXISTS (SELECT 1 FROM postlude_subject WHERE subject = :subject AND key IS NOT NULL)
    OR EXISTS (SELECT 1 FROM postlude_saga_subject WHERE subject = :subject_id)
    OR EXISTS (SELECT 1 FROM postlude_group WHERE subject = :subject AND operation = 'rectify' AND open > 0)
    OR EXISTS (SELECT 1 FROM names n JOIN postlude_saga s ON s.name = n.name AND s.process_id = :subject_id)

-- name: open_group
INSERT INTO postlude_group (id, subject, operation, generation, open, calls, tells, created_at, deadline, completed_at)
SELECT :id, :subject, :operation, coalesce(max(generation), 0) + 1, :calls, :calls, :tells, :now, :now + :deadline_seconds,
       CASE WHEN :calls = 0 THEN :now END
  FROM postlude_group WHERE subject = :subject AND operation = :operation
RETURNING generation

-- name: append_call
INSERT INTO postlude_event (event_id, type, version, source, topic, content_type, payload, digest, headers,
                            correlation_id, causation_id, created_at)
VALUES (:event_id, :type, :version, :source, :topic, :content_type, :payload, :digest, :headers,
        :correlation_id, :causation_id, :now)

-- name: append_call_2
INSERT INTO postlude_delivery (event_id, destination, lane, key, group_id, available_at)
VALUES (:event_id, :destination, :lane, :delivery_key, :group_id, :now)

-- name: append_call_3
INSERT INTO postlude_secret (event_id, part, content) VALUES (:event_id, :part, :content)

-- name: park_call
-- A vendor's horizon: a fresh budget then, and at least a step of backoff away.
UPDATE postlude_delivery AS d
   SET status = 'scheduled', blocks = 0, attempts = 0, starts = 0, last_error = NULL, token = NULL,
       available_at = max(:until, :now + :least)
 WHERE d.seq = :seq AND d.status = :status AND d.attempts = :attempts
   AND EXISTS (SELECT 1 FROM postlude_lane l WHERE l.destination = d.destination AND l.lane = d.lane
                  AND l.owner = :worker AND l.epoch = :epoch)
RETURNING available_at, event_id

-- name: park_call_2
INSERT INTO postlude_secret (event_id, part, content) VALUES (:event_id, 'horizon', :horizon)
ON CONFLICT (event_id, part) DO UPDATE SET content = excluded.content

-- name: call_secrets
SELECT part, content FROM postlude_secret WHERE event_id = :event_id

-- name: secrets_but
SELECT event_id, part, content FROM postlude_secret
 WHERE (event_id, part) > (:after, :after_part) AND part <> 'horizon' AND substr(content, 1, length(:prefix)) <> :prefix
 ORDER BY event_id, part LIMIT :limit

-- name: reseal_secrets
UPDATE postlude_secret SET content = :content WHERE event_id = :event_id AND part = :part AND content = :was
RETURNING part

-- name: calls
SELECT d.event_id, d.destination, g.operation, g.subject, s.content, d.status, d.attempts, d.last_error, d.attempted_at,
       d.available_at, coalesce(e.created_at, g.created_at) AS created_at
  FROM postlude_delivery d
  JOIN postlude_group g ON g.id = d.group_id
  LEFT JOIN postlude_event e ON e.event_id = d.event_id
  LEFT JOIN postlude_secret s ON s.event_id = d.event_id AND s.part = 'subject'
 WHERE d.group_id IS NOT NULL AND (:status IS NULL OR d.status = :status)
   AND (:subject IS NULL OR g.subject = :subject)
   AND (:places IS NULL OR d.event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places)))
 ORDER BY CASE WHEN :status = 'scheduled' THEN d.available_at END, coalesce(e.created_at, g.created_at), d.event_id
 LIMIT :limit

-- name: groups
-- A request is not overdue any more when a later one of its kind is complete.
SELECT id, subject, operation, generation, open, calls, discarded, created_at, deadline, completed_at, is_overdue
  FROM (SELECT g.*, g.completed_at IS NULL AND g.deadline < :now AND NOT EXISTS (
                        SELECT 1 FROM postlude_group n
                         WHERE n.subject = g.subject AND n.operation = g.operation AND n.generation > g.generation
                           AND n.completed_at IS NOT NULL) AS is_overdue
          FROM postlude_group g
         WHERE (:subject IS NULL OR g.subject = :subject)
           AND (NOT :overdue OR g.completed_at IS NULL)
           AND (:after IS NULL OR (g.created_at, g.id) < (
                    SELECT a.created_at, a.id FROM postlude_group a WHERE a.id = :after))) AS g
 WHERE is_overdue OR NOT :overdue
 ORDER BY CASE WHEN :overdue THEN deadline END, created_at DESC, id DESC LIMIT :limit

-- name: call_counts
SELECT status, count(*) FROM postlude_delivery WHERE group_id IS NOT NULL GROUP BY status
UNION ALL SELECT 'sent', coalesce(sum(calls - open - discarded), 0) FROM postlude_group
UNION ALL SELECT 'discarded', coalesce(sum(discarded), 0) FROM postlude_group

-- name: overdue_counts
SELECT count(*), coalesce(sum(g.open), 0)
  FROM postlude_group g
 WHERE g.completed_at IS NULL AND g.deadline < :now AND NOT EXISTS (
       SELECT 1 FROM postlude_group n
        WHERE n.subject = g.subject AND n.operation = g.operation AND n.generation > g.generation
          AND n.completed_at IS NOT NULL)

-- name: requeue_calls
INSERT INTO postlude_audit (id, at, actor, action, target, reason, old_status, new_status, detail)
SELECT randomblob(16), :now, :actor, 'erasure_requeued', 'subject:' || g.subject, :reason, 'dead', 'failed',
       json_object('entry_id', uuid_text(d.event_id), 'resolver', substr(d.destination, 6), 'prior_attempts', d.attempts,
                   'prior_error', coalesce(d.last_error ->> 'kind', 'Unknown'), 'generation', g.generation)
  FROM postlude_delivery d JOIN postlude_group g ON g.id = d.group_id
 WHERE d.event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places)) AND d.status = 'dead'
   AND g.operation = 'erase'

-- name: requeue_calls_2
UPDATE postlude_delivery AS d
   SET status = 'failed', blocks = d.key IS NOT NULL, attempts = 0, starts = 0, last_error = NULL, available_at = :now
 WHERE d.event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places)) AND d.status = 'dead'
   AND d.group_id IN (SELECT id FROM postlude_group WHERE operation = 'erase')
RETURNING event_id
