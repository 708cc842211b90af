-- Bulk actions.

-- name: begin_operation
-- Nothing comes back when one of its kind is running.
INSERT INTO postlude.postlude_operation (id, action, filter, destination, actor, reason, last_seq, total)
VALUES (:id, :action, :filter::jsonb, :destination::text, :actor, :reason, :last_seq, :total)
ON CONFLICT DO NOTHING
RETURNING created_at, updated_at

-- name: running_operation
-- The one of its kind that is running.
SELECT id, action, filter::text AS filter, destination, actor, reason, status, cursor, last_seq, total, done,
       created_at, updated_at, ended_at
  FROM postlude.postlude_operation
 WHERE status = 'running' AND action = :action AND coalesce(destination, '') = coalesce(:destination::text, '')
   AND filter - 'since' - 'until' = :filter::jsonb - 'since' - 'until'

-- name: operation
SELECT id, action, filter::text AS filter, destination, actor, reason, status, cursor, last_seq, total, done,
       created_at, updated_at, ended_at
  FROM postlude.postlude_operation WHERE id = :id

-- name: operations
SELECT id, action, filter::text AS filter, destination, actor, reason, status, cursor, last_seq, total, done,
       created_at, updated_at, ended_at
  FROM postlude.postlude_operation WHERE :status::text IS NULL OR status = :status
 ORDER BY created_at DESC, id LIMIT :limit

-- name: open_page
-- The deliveries that an operation is aimed at, oldest first: those that were there when it began.
SELECT d.seq, d.event_id, d.destination, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts,
       d.available_at, d.blocks, d.last_error, e.type, e.correlation_id, e.created_at
  FROM postlude.postlude_delivery d LEFT JOIN postlude.postlude_event e USING (event_id)
 WHERE d.seq > :after AND d.seq <= :last_seq AND d.status = ANY(:statuses::text[])
   AND (:destination::text IS NULL OR d.destination = :destination)
   AND (:key::text IS NULL OR d.key = :key) AND (:type::text IS NULL OR e.type = :type)
   AND (:correlation::text IS NULL OR e.correlation_id = :correlation) AND (:saga::uuid IS NULL OR e.saga_id = :saga)
   AND (:since::timestamptz IS NULL OR e.created_at >= :since)
   AND (:until::timestamptz IS NULL OR e.created_at < :until)
 ORDER BY d.seq LIMIT :limit

-- name: count_open
SELECT count(*) FROM postlude.postlude_delivery d LEFT JOIN postlude.postlude_event e USING (event_id)
 WHERE d.seq > :after AND d.seq <= :last_seq AND d.status = ANY(:statuses::text[])
   AND (:destination::text IS NULL OR d.destination = :destination)
   AND (:key::text IS NULL OR d.key = :key) AND (:type::text IS NULL OR e.type = :type)
   AND (:correlation::text IS NULL OR e.correlation_id = :correlation) AND (:saga::uuid IS NULL OR e.saga_id = :saga)
   AND (:since::timestamptz IS NULL OR e.created_at >= :since)
   AND (:until::timestamptz IS NULL OR e.created_at < :until)

-- name: event_page
-- The stored events that a replay is aimed at, by id; the first seq tells the order of those made at the same time.
SELECT e.event_id, e.type, e.key, e.created_at,
       (SELECT min(r.seq) FROM postlude.postlude_receipt r WHERE r.event_id = e.event_id) AS seq
  FROM postlude.postlude_event e
 WHERE e.event_id > :after AND (:began::timestamptz IS NULL OR e.created_at <= :began)
   AND e.headers ->> 'postlude-redacted' IS NULL
   AND (:key::text IS NULL OR e.key = :key) AND (:type::text IS NULL OR e.type = :type)
   AND (:correlation::text IS NULL OR e.correlation_id = :correlation) AND (:saga::uuid IS NULL OR e.saga_id = :saga)
   AND (:since::timestamptz IS NULL OR e.created_at >= :since)
   AND (:until::timestamptz IS NULL OR e.created_at < :until)
   AND (:status::text IS NULL AND :destination::text IS NULL OR EXISTS (
        SELECT 1 FROM postlude.postlude_delivery d WHERE d.event_id = e.event_id
           AND (:status::text IS NULL OR d.status = :status)
           AND (:destination::text IS NULL OR d.destination = :destination)) OR EXISTS (
        SELECT 1 FROM postlude.postlude_receipt r WHERE r.event_id = e.event_id
           AND (:status::text IS NULL OR r.outcome = :status)
           AND (:destination::text IS NULL OR r.destination = :destination)))
 ORDER BY e.event_id LIMIT :limit

-- name: count_events
SELECT count(*) FROM postlude.postlude_event e
 WHERE e.event_id > :after AND (:began::timestamptz IS NULL OR e.created_at <= :began)
   AND e.headers ->> 'postlude-redacted' IS NULL
   AND (:key::text IS NULL OR e.key = :key) AND (:type::text IS NULL OR e.type = :type)
   AND (:correlation::text IS NULL OR e.correlation_id = :correlation) AND (:saga::uuid IS NULL OR e.saga_id = :saga)
   AND (:since::timestamptz IS NULL OR e.created_at >= :since)
   AND (:until::timestamptz IS NULL OR e.created_at < :until)
   AND (:status::text IS NULL AND :destination::text IS NULL OR EXISTS (
        SELECT 1 FROM postlude.postlude_delivery d WHERE d.event_id = e.event_id
           AND (:status::text IS NULL OR d.status = :status)
           AND (:destination::text IS NULL OR d.destination = :destination)) OR EXISTS (
        SELECT 1 FROM postlude.postlude_receipt r WHERE r.event_id = e.event_id
           AND (:status::text IS NULL OR r.outcome = :status)
           AND (:destination::text IS NULL OR r.destination = :destination)))

-- name: resume_operation
WITH resumed AS (
    UPDATE postlude.postlude_operation SET updated_at = clock_timestamp()
     WHERE id = :id AND status = 'running' RETURNING id, action
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, detail)
    SELECT gen_random_uuid(), :actor, 'resume_operation', id::text, :reason, jsonb_build_object('action', action)
      FROM resumed
)
SELECT id FROM resumed

-- name: end_operation
-- Done when every page was; only a cancellation is somebody's act.
WITH ended AS (
    UPDATE postlude.postlude_operation
       SET status = :status, updated_at = clock_timestamp(), ended_at = clock_timestamp()
     WHERE id = :id AND status = 'running' AND (:was::text IS NULL OR cursor = :was) RETURNING id, action, done
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, old_status, new_status, detail)
    SELECT gen_random_uuid(), :actor, 'cancel_operation', id::text, :reason, 'running', 'cancelled',
           jsonb_build_object('action', action, 'done', done)
      FROM ended WHERE :status = 'cancelled'
)
SELECT id FROM ended
