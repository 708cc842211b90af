-- Bulk actions.

-- name: begin_operation
-- Nothing comes back when one of its kind is running.
INSERT INTO postlude_operation (id, action, filter, destination, actor, reason, last_seq, total, created_at, updated_at)
VALUES (:id, :action, :filter, :destination, :actor, :reason, :last_seq, :total, :now, :now)
ON CONFLICT DO NOTHING
RETURNING created_at

-- name: running_operation
-- The one of its kind that is running.
SELECT id, action, filter, destination, actor, reason, status, cursor, last_seq, total, done, created_at, updated_at,
       ended_at
  FROM postlude_operation
 WHERE status = 'running' AND action = :action AND coalesce(destination, '') = coalesce(:destination, '')
   AND json_remove(filter, '$.since', '$.until') = json_remove(:filter, '$.since', '$.until')

-- name: operation
SELECT id, action, filter, destination, actor, reason, status, cursor, last_seq, total, done, created_at, updated_at,
       ended_at
  FROM postlude_operation WHERE id = :id

-- name: operations
SELECT id, action, filter, destination, actor, reason, status, cursor, last_seq, total, done, created_at, updated_at,
       ended_at
  FROM postlude_operation WHERE :status IS NULL OR status = :status ORDER BY created_at DESC, id LIMIT :limit

-- name: open_page
-- The deliveries that an operation is aimed at, oldest first: those that were there when it began.
SELECT d.seq, d.event_id, d.destination, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts,
       d.available_at, d.blocks, d.last_error, e.type, e.correlation_id, e.created_at
  FROM postlude_delivery d LEFT JOIN postlude_event e USING (event_id)
 WHERE d.seq > :after AND d.seq <= :last_seq AND d.status IN (SELECT value FROM json_each(:statuses))
   AND (:destination IS NULL OR d.destination = :destination)
   AND (:key IS NULL OR d.key = :key) AND (:type IS NULL OR e.type = :type)
   AND (:correlation IS NULL OR e.correlation_id = :correlation) AND (:saga IS NULL OR e.saga_id = :saga)
   AND (:since IS NULL OR e.created_at >= :since) AND (:until IS NULL OR e.created_at < :until)
 ORDER BY d.seq LIMIT :limit

-- name: count_open
SELECT count(*) FROM postlude_delivery d LEFT JOIN postlude_event e USING (event_id)
 WHERE d.seq > :after AND d.seq <= :last_seq AND d.status IN (SELECT value FROM json_each(:statuses))
   AND (:destination IS NULL OR d.destination = :destination)
   AND (:key IS NULL OR d.key = :key) AND (:type IS NULL OR e.type = :type)
   AND (:correlation IS NULL OR e.correlation_id = :correlation) AND (:saga IS NULL OR e.saga_id = :saga)
   AND (:since IS NULL OR e.created_at >= :since) AND (:until IS NULL OR e.created_at < :until)

-- name: event_page
-- The stored events that a replay is aimed at, in the order in which they were written.
SELECT e.rowid AS position, e.event_id, e.type, e.key, e.created_at FROM postlude_event e
 WHERE e.rowid > :after AND (:began IS NULL OR e.created_at <= :began) AND instr(e.headers, '"postlude-redacted"') = 0
   AND (:key IS NULL OR e.key = :key) AND (:type IS NULL OR e.type = :type)
   AND (:correlation IS NULL OR e.correlation_id = :correlation) AND (:saga IS NULL OR e.saga_id = :saga)
   AND (:since IS NULL OR e.created_at >= :since) AND (:until IS NULL OR e.created_at < :until)
   AND (:status IS NULL AND :destination IS NULL OR EXISTS (
        SELECT 1 FROM postlude_delivery d WHERE d.event_id = e.event_id
           AND (:status IS NULL OR d.status = :status)
           AND (:destination IS NULL OR d.destination = :destination)) OR EXISTS (
        SELECT 1 FROM postlude_receipt r WHERE r.event_id = e.event_id
           AND (:status IS NULL OR r.outcome = :status)
           AND (:destination IS NULL OR r.destination = :destination)))
 ORDER BY e.rowid LIMIT :limit

-- name: count_events
SELECT count(*) FROM postlude_event e
 WHERE e.rowid > :after AND (:began IS NULL OR e.created_at <= :began) AND instr(e.headers, '"postlude-redacted"') = 0
   AND (:key IS NULL OR e.key = :key) AND (:type IS NULL OR e.type = :type)
   AND (:correlation IS NULL OR e.correlation_id = :correlation) AND (:saga IS NULL OR e.saga_id = :saga)
   AND (:since IS NULL OR e.created_at >= :since) AND (:until IS NULL OR e.created_at < :until)
   AND (:status IS NULL AND :destination IS NULL OR EXISTS (
        SELECT 1 FROM postlude_delivery d WHERE d.event_id = e.event_id
           AND (:status IS NULL OR d.status = :status)
           AND (:destination IS NULL OR d.destination = :destination)) OR EXISTS (
        SELECT 1 FROM postlude_receipt r WHERE r.event_id = e.event_id
           AND (:status IS NULL OR r.outcome = :status)
           AND (:destination IS NULL OR r.destination = :destination)))

-- name: resume_operation
UPDATE postlude_operation SET updated_at = :now WHERE id = :id AND status = 'running'
RETURNING action

-- name: resume_operation_2
INSERT INTO postlude_audit (id, at, actor, action, target, reason, detail)
VALUES (randomblob(16), :now, :actor, 'resume_operation', uuid_text(:id), :reason, json_object('action', :action))

-- name: end_operation
-- The end of a page (it goes on running, at another cursor) or of all of it; only if it still stands at :was.
UPDATE postlude_operation
   SET status = :status, cursor = coalesce(:cursor, cursor), done = done + :changed, updated_at = :now,
       ended_at = CASE WHEN :status <> 'running' THEN :now END
 WHERE id = :id AND status = 'running' AND (:was IS NULL OR cursor = :was)
RETURNING action, done

-- name: end_operation_2
-- Only a cancellation is somebody's act.
INSERT INTO postlude_audit (id, at, actor, action, target, reason, old_status, new_status, detail)
VALUES (randomblob(16), :now, :actor, 'cancel_operation', uuid_text(:id), :reason, 'running', 'cancelled',
        json_object('action', :action, 'done', :done))
