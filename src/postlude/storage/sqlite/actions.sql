-- What an operator does to deliveries and destinations.
--
-- The audit record is written first, from the rows as they were. uuid_text is ours; see connection.py.
-- A page of an operation ends with end_operation, in the same transaction, which says whether it counts.

-- name: requeue
-- Dead letters get a fresh budget; a rectification cannot, for its corrections are gone, nor what is redacted.
INSERT INTO postlude_audit (id, at, actor, action, target, reason, trace_id, old_status, new_status, detail)
SELECT randomblob(16), :now, :actor, 'requeue', uuid_text(d.event_id), :reason, :trace_id, d.status, 'failed',
       json_patch(json_patch(json_object('destination', d.destination, 'prior_attempts', d.attempts),
                             json_object('prior_error', CASE WHEN d.last_error IS NOT NULL
                                                             THEN coalesce(d.last_error ->> 'kind', 'Unknown') END)),
                  coalesce(:detail, '{}'))
  FROM postlude_delivery d
 WHERE d.event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places)) AND d.status = 'dead'
   AND (:destination IS NULL OR d.destination = :destination)
   AND (:status IS NULL OR d.status = :status)
   AND (:seqs IS NULL OR d.seq IN (SELECT value FROM json_each(:seqs)))
   AND EXISTS (SELECT 1 FROM postlude_event e
                WHERE e.event_id = d.event_id AND instr(e.headers, '"postlude-redacted"') = 0)
   AND NOT EXISTS (SELECT 1 FROM postlude_group g WHERE g.id = d.group_id AND g.operation = 'rectify')
RETURNING target

-- name: requeue_2
UPDATE postlude_delivery AS d
   SET status = 'failed', blocks = d.key IS NOT NULL, attempts = 0, starts = 0, available_at = :now
 WHERE d.event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places)) AND d.status = 'dead'
   AND (:destination IS NULL OR d.destination = :destination)
   AND (:status IS NULL OR d.status = :status)
   AND (:seqs IS NULL OR d.seq IN (SELECT value FROM json_each(:seqs)))
   AND EXISTS (SELECT 1 FROM postlude_event e
                WHERE e.event_id = d.event_id AND instr(e.headers, '"postlude-redacted"') = 0)
   AND NOT EXISTS (SELECT 1 FROM postlude_group g WHERE g.id = d.group_id AND g.operation = 'rectify')

-- name: discard
-- Given up by an operator: the receipt says so and by whom.
INSERT INTO postlude_audit (id, at, actor, action, target, reason, trace_id, old_status, new_status, detail)
SELECT randomblob(16), :now, :actor, 'discard', uuid_text(d.event_id), :reason, :trace_id, d.status, 'discarded',
       json_patch(json_object('destination', d.destination, 'status', d.status, 'prior_attempts', d.attempts),
                  coalesce(:detail, '{}'))
  FROM postlude_delivery d
 WHERE d.event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))
   AND d.status IN ('pending', 'failed', 'scheduled', 'dead')
   AND (:destination IS NULL OR d.destination = :destination)
   AND (:status IS NULL OR d.status = :status)
   AND (:seqs IS NULL OR d.seq IN (SELECT value FROM json_each(:seqs)))
RETURNING target

-- name: discard_2
INSERT INTO postlude_receipt (event_id, destination, outcome, attempts, seq, actor, settled_at)
SELECT d.event_id, d.destination, 'discarded', d.attempts, d.seq, :actor, :now FROM postlude_delivery d
 WHERE d.event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))
   AND d.status IN ('pending', 'failed', 'scheduled', 'dead')
   AND (:destination IS NULL OR d.destination = :destination)
   AND (:status IS NULL OR d.status = :status)
   AND (:seqs IS NULL OR d.seq IN (SELECT value FROM json_each(:seqs)))

-- name: discard_3
DELETE FROM postlude_delivery AS d
 WHERE d.event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))
   AND d.status IN ('pending', 'failed', 'scheduled', 'dead')
   AND (:destination IS NULL OR d.destination = :destination)
   AND (:status IS NULL OR d.status = :status)
   AND (:seqs IS NULL OR d.seq IN (SELECT value FROM json_each(:seqs)))

-- name: bury
-- Made a dead letter by an operator.
INSERT INTO postlude_audit (id, at, actor, action, target, reason, trace_id, old_status, new_status, detail)
SELECT randomblob(16), :now, :actor, 'bury', uuid_text(d.event_id), :reason, :trace_id, d.status, 'dead',
       json_patch(json_object('destination', d.destination, 'status', d.status, 'prior_attempts', d.attempts),
                  coalesce(:detail, '{}'))
  FROM postlude_delivery d
 WHERE d.event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))
   AND d.status IN ('pending', 'failed', 'scheduled')
   AND (:destination IS NULL OR d.destination = :destination)
   AND (:status IS NULL OR d.status = :status)
   AND (:seqs IS NULL OR d.seq IN (SELECT value FROM json_each(:seqs)))
RETURNING target

-- name: bury_2
UPDATE postlude_delivery AS d SET status = 'dead', blocks = false, last_error = :error
 WHERE d.event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))
   AND d.status IN ('pending', 'failed', 'scheduled')
   AND (:destination IS NULL OR d.destination = :destination)
   AND (:status IS NULL OR d.status = :status)
   AND (:seqs IS NULL OR d.seq IN (SELECT value FROM json_each(:seqs)))

-- name: replay
-- Settled events go to a destination again, as new work, redacted ones never: [id at, destination, lane, key].
INSERT INTO postlude_delivery (event_id, destination, lane, key, available_at)
SELECT e.event_id, r.value ->> 1, r.value ->> 2, r.value ->> 3, :now
  FROM json_each(:children) AS r CROSS JOIN postlude_event e
 WHERE e.event_id = substr(:ids, r.value ->> 0, 16) AND instr(e.headers, '"postlude-redacted"') = 0
 ORDER BY r.key
ON CONFLICT (event_id, destination) DO NOTHING
RETURNING seq

-- name: replay_2
INSERT INTO postlude_audit (id, at, actor, action, target, reason, trace_id, new_status, detail)
SELECT randomblob(16), :now, :actor, 'replay', uuid_text(event_id), :reason, :trace_id, 'pending',
       json_patch(json_object('destination', destination), coalesce(:detail, '{}'))
  FROM postlude_delivery WHERE seq IN (SELECT value FROM json_each(:seqs))
RETURNING target

-- name: pause
UPDATE postlude_destination SET paused_at = :now, paused_by = :actor, reason = :reason
 WHERE name = :destination AND paused_at IS NULL
RETURNING name

-- name: pause_2
INSERT INTO postlude_audit (id, at, actor, action, target, reason, trace_id)
VALUES (randomblob(16), :now, :actor, 'pause', :destination, :reason, :trace_id)

-- name: resume
UPDATE postlude_destination SET paused_at = NULL, paused_by = NULL, reason = NULL
 WHERE name = :destination AND paused_at IS NOT NULL
RETURNING name

-- name: resume_2
INSERT INTO postlude_audit (id, at, actor, action, target, reason, trace_id)
VALUES (randomblob(16), :now, :actor, 'resume', :destination, :reason, :trace_id)
