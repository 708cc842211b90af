-- Calls to foreign systems, in completion groups. Triggers end calls and complete groups (migration 0006).

-- name: lock_subject
-- Whoever else asks something about this subject waits here until the transaction ends.
INSERT INTO postlude.postlude_subject AS s (subject, erasures, erased_at)
VALUES (:subject, :erasures::integer, CASE WHEN :erasures::integer > 0 THEN clock_timestamp() + :ahead::interval END)
ON CONFLICT (subject) DO UPDATE
   SET erasures = s.erasures + excluded.erasures,
       erased_at = coalesce(excluded.erased_at, s.erased_at)

-- name: knows_subject
-- The names of sagas are walked along the index, one by one.
WITH RECURSIVE names AS (
    SELECT min(name) AS name FROM postlude.postlude_saga
    UNION ALL
    SELECT (SELECT min(s.name) FROM postlude.postlude_saga s WHERE s.name > n.name) FROM names n WHERE n.name IS NOT NULL
)
SELECT EXISTS (SELECT 1 FROM postlude.postlude_event WHERE subjects @> ARRAY[:subject_id::text])
    OR EXISTS (SELECT 1 FROM postlude.postlude_subject WHERE subject = :subject AND key IS NOT NULL)
    OR EXISTS (SELECT 1 FROM postlude.postlude_saga_subject WHERE subject = :subject_id)
    OR EXISTS (SELECT 1 FROM postlude.postlude_group WHERE subject = :subject AND operation = 'rectify' AND open > 0)
    OR EXISTS (SELECT 1 FROM names n JOIN postlude.postlude_saga s ON s.name = n.name AND s.process_id = :subject_id)

-- name: open_group
INSERT INTO postlude.postlude_group (id, subject, operation, generation, open, calls, tells, created_at, deadline, completed_at)
SELECT :id, :subject, :operation, coalesce(max(generation), 0) + 1, :calls::integer, :calls::integer, :tells,
       clock_timestamp() + :ahead::interval, clock_timestamp() + :ahead::interval + make_interval(secs => :deadline_seconds),
       CASE WHEN :calls::integer = 0 THEN clock_timestamp() + :ahead::interval END
  FROM postlude.postlude_group WHERE subject = :subject AND operation = :operation
RETURNING generation

-- name: append_call
INSERT INTO postlude.postlude_event (event_id, type, version, source, topic, content_type, payload, digest, headers,
                                     correlation_id, causation_id)
VALUES (:event_id, :type, :version, :source, :topic, :content_type, :payload, :digest, :headers::jsonb,
        :correlation_id, :causation_id)

-- name: append_call_2
INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, group_id)
VALUES (:event_id, :destination, :lane, :delivery_key, :group_id)

-- name: append_call_3
INSERT INTO postlude.postlude_secret (event_id, part, content) VALUES (:event_id, :part, :content)

-- name: park_call
-- A vendor's horizon: a fresh budget then, and at least a step of backoff away.
UPDATE postlude.postlude_delivery d
   SET status = 'scheduled', blocks = false, attempts = 0, starts = 0, last_error = NULL, token = NULL,
       available_at = greatest(:until::timestamptz, clock_timestamp() + :ahead::interval + make_interval(secs => :least))
  FROM postlude.postlude_lane l
 WHERE d.seq = :seq AND d.status = :status AND d.attempts = :attempts AND l.destination = d.destination
   AND l.lane = d.lane AND l.owner = :worker AND l.epoch = :epoch
RETURNING d.available_at, d.event_id

-- name: park_call_2
INSERT INTO postlude.postlude_secret (event_id, part, content) VALUES (:event_id, 'horizon', :horizon)
ON CONFLICT (event_id, part) DO UPDATE SET content = excluded.content

-- name: call_secrets
SELECT part, content FROM postlude.postlude_secret WHERE event_id = :event_id

-- name: secrets_but
SELECT event_id, part, content FROM postlude.postlude_secret
 WHERE (event_id, part) > (:after, :after_part) AND part <> 'horizon'
   AND substr(content, 1, length(:prefix::bytea)) <> :prefix::bytea
 ORDER BY event_id, part LIMIT :limit

-- name: reseal_secrets
WITH changed AS (
    UPDATE postlude.postlude_secret s SET content = r.content
      FROM unnest(:event_ids::uuid[], :parts::text[], :contents::bytea[], :was::bytea[]) AS r (event_id, part, content, was)
     WHERE s.event_id = r.event_id AND s.part = r.part AND s.content = r.was
    RETURNING s.part
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, detail, trace_id)
    SELECT gen_random_uuid(), :actor, :action, :target, :reason,
           :detail::jsonb || jsonb_build_object('secrets', count(*)), :trace_id
      FROM changed HAVING count(*) > 0
)
SELECT count(*) FROM changed

-- name: calls
SELECT d.event_id, d.destination, g.operation, g.subject, s.content, d.status, d.attempts, d.last_error, d.attempted_at,
       d.available_at, coalesce(e.created_at, g.created_at) AS created_at
  FROM postlude.postlude_delivery d
  JOIN postlude.postlude_group g ON g.id = d.group_id
  LEFT JOIN postlude.postlude_event e ON e.event_id = d.event_id
  LEFT JOIN postlude.postlude_secret s ON s.event_id = d.event_id AND s.part = 'subject'
 WHERE d.group_id IS NOT NULL AND (:status::text IS NULL OR d.status = :status)
   AND (:subject::text IS NULL OR g.subject = :subject) AND (:ids::uuid[] IS NULL OR d.event_id = ANY(:ids::uuid[]))
 ORDER BY CASE WHEN :status::text = 'scheduled' THEN d.available_at END, coalesce(e.created_at, g.created_at), d.event_id
 LIMIT :limit

-- name: calls_2
-- The same for a role that may not know whom calls are about.
SELECT d.event_id, d.destination, g.operation, g.subject, NULL::bytea, d.status, d.attempts, d.last_error, d.attempted_at,
       d.available_at, coalesce(e.created_at, g.created_at) AS created_at
  FROM postlude.postlude_delivery d
  JOIN postlude.postlude_group g ON g.id = d.group_id
  LEFT JOIN postlude.postlude_event e ON e.event_id = d.event_id
 WHERE d.group_id IS NOT NULL AND (:status::text IS NULL OR d.status = :status)
   AND (:subject::text IS NULL OR g.subject = :subject) AND (:ids::uuid[] IS NULL OR d.event_id = ANY(:ids::uuid[]))
 ORDER BY CASE WHEN :status::text = 'scheduled' THEN d.available_at END, coalesce(e.created_at, g.created_at), d.event_id
 LIMIT :limit

-- name: groups
-- A request is not overdue any more when a later one of its kind is complete.
SELECT id, subject, operation, generation, open, calls, discarded, created_at, deadline, completed_at, is_overdue
  FROM (SELECT g.*, g.completed_at IS NULL AND g.deadline < clock_timestamp() + :ahead::interval AND NOT EXISTS (
                        SELECT 1 FROM postlude.postlude_group n
                         WHERE n.subject = g.subject AND n.operation = g.operation AND n.generation > g.generation
                           AND n.completed_at IS NOT NULL) AS is_overdue
          FROM postlude.postlude_group g
         WHERE (:subject::text IS NULL OR g.subject = :subject)
           AND (NOT :overdue OR g.completed_at IS NULL)
           AND (:after::uuid IS NULL OR (g.created_at, g.id) < (
                    SELECT a.created_at, a.id FROM postlude.postlude_group a WHERE a.id = :after))) AS g
 WHERE is_overdue OR NOT :overdue
 ORDER BY CASE WHEN :overdue THEN deadline END, created_at DESC, id DESC LIMIT :limit

-- name: call_counts
SELECT status, count(*) FROM postlude.postlude_delivery WHERE group_id IS NOT NULL GROUP BY status
UNION ALL SELECT 'sent', coalesce(sum(calls - open - discarded), 0) FROM postlude.postlude_group
UNION ALL SELECT 'discarded', coalesce(sum(discarded), 0) FROM postlude.postlude_group

-- name: overdue_counts
SELECT count(*), coalesce(sum(g.open), 0)
  FROM postlude.postlude_group g
 WHERE g.completed_at IS NULL AND g.deadline < clock_timestamp() + :ahead::interval AND NOT EXISTS (
       SELECT 1 FROM postlude.postlude_group n
        WHERE n.subject = g.subject AND n.operation = g.operation AND n.generation > g.generation
          AND n.completed_at IS NOT NULL)

-- name: requeue_calls
WITH target AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.destination, d.attempts, d.last_error, g.subject, g.generation
      FROM postlude.postlude_delivery d JOIN postlude.postlude_group g ON g.id = d.group_id
     WHERE d.event_id = ANY(:ids::uuid[]) AND d.status = 'dead' AND g.operation = 'erase'
     ORDER BY d.seq FOR UPDATE OF d
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, old_status, new_status, detail)
    SELECT gen_random_uuid(), :actor, 'erasure_requeued', 'subject:' || subject, :reason, 'dead', 'failed',
           jsonb_build_object('entry_id', event_id, 'resolver', substr(destination, 6), 'prior_attempts', attempts,
                              'prior_error', coalesce(last_error::jsonb ->> 'kind', 'Unknown'), 'generation', generation)
      FROM target
), changed AS (
    UPDATE postlude.postlude_delivery d
       SET status = 'failed', blocks = d.key IS NOT NULL, attempts = 0, starts = 0, last_error = NULL,
           available_at = clock_timestamp() + :ahead::interval
      FROM target WHERE d.seq = target.seq
)
SELECT event_id FROM target ORDER BY seq
