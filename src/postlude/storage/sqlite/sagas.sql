-- Sagas and their history.
--
-- The body is the whole instance; the other columns are what is looked for.

-- name: saga
SELECT body FROM postlude_saga WHERE id = :id

-- name: saga_locked
-- Changes nothing and makes this transaction the writer, before it has seen anything that could be out of date.
UPDATE postlude_saga SET version = version WHERE false

-- name: saga_locked_2
SELECT body FROM postlude_saga WHERE id = :id

-- name: newest_saga
SELECT body FROM postlude_saga WHERE name = :name AND process_id = :process_id ORDER BY generation DESC LIMIT 1

-- name: newest_saga_locked
-- As saga_locked.
UPDATE postlude_saga SET version = version WHERE false

-- name: newest_saga_locked_2
SELECT body FROM postlude_saga WHERE name = :name AND process_id = :process_id ORDER BY generation DESC LIMIT 1

-- name: start_saga
-- No row: it is there already, or another run of its process has not ended.
INSERT INTO postlude_saga (id, name, process_id, generation, status, version, hash, step, error, body, created_at,
                           updated_at, ended_at)
VALUES (:id, :name, :process_id, :generation, :status, :version, :hash, :step, :error, :body, :created_at,
        :updated_at, :ended_at)
ON CONFLICT DO NOTHING
RETURNING id

-- name: write_saga
-- No row: somebody else was faster.
UPDATE postlude_saga
   SET status = :status, version = :version, hash = :hash, step = :step, error = :error, body = :body,
       updated_at = :updated_at, ended_at = :ended_at
 WHERE id = :id AND version = :was
RETURNING id

-- name: note_saga
-- [at, what, step, attempt, detail]; history without its saga would stay for ever.
INSERT INTO postlude_saga_step (saga_id, version, at, what, step, attempt, detail)
SELECT :id, :version, h.value ->> 0, h.value ->> 1, h.value ->> 2, h.value ->> 3, h.value ->> 4
  FROM json_each(:history) AS h WHERE EXISTS (SELECT 1 FROM postlude_saga WHERE id = :id) ORDER BY h.key

-- name: cancel_deliveries
-- Deadlines that nobody waits for any more.
INSERT INTO postlude_receipt (event_id, destination, outcome, attempts, seq, actor, settled_at)
SELECT d.event_id, d.destination, 'discarded', d.attempts, d.seq, 'saga', :now FROM postlude_delivery d
 WHERE d.event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places)) AND d.destination = :destination
   AND d.status = 'scheduled'
RETURNING seq

-- name: cancel_deliveries_2
DELETE FROM postlude_delivery WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: bury_delivery
-- A dead letter in the transaction that tells its saga; the same fence as settle_handled.
UPDATE postlude_delivery AS d
   SET status = 'dead', blocks = 0, attempts = d.attempts + (d.status <> 'claimed'), starts = 0, token = NULL,
       available_at = :now, last_error = :error
 WHERE d.seq = :seq AND d.destination = :destination AND d.status = :status AND d.attempts = :attempts
   AND EXISTS (SELECT 1 FROM postlude_lane l
                WHERE l.destination = d.destination AND l.lane = d.lane AND l.owner = :worker AND l.epoch = :epoch)
RETURNING seq

-- name: audit_saga
-- Joins the transaction that did it.
INSERT INTO postlude_audit (id, at, actor, action, target, reason, detail, trace_id, old_status, new_status)
VALUES (randomblob(16), :now, :actor, :action, :target, :reason, :detail, :trace_id, :old_status, :new_status)

-- name: list_sagas
-- Newest first. By the time they began, which never changes: what goes on meanwhile moves no row to another page.
SELECT id, name, process_id, generation, status, version, hash, step, error, created_at, updated_at, ended_at
  FROM postlude_saga
 WHERE (:name IS NULL OR name = :name) AND (:status IS NULL OR status = :status)
   AND (:process_id IS NULL OR process_id = :process_id)
   AND (:since IS NULL OR created_at >= :since) AND (:until IS NULL OR created_at < :until)
   AND (:after_at IS NULL OR (created_at, id) < (:after_at, :after_id))
 ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: saga_history
-- The last lines, oldest first.
SELECT at, what, step, attempt, detail
  FROM (SELECT number, at, what, step, attempt, detail FROM postlude_saga_step
         WHERE saga_id = :id ORDER BY number DESC LIMIT :limit)
 ORDER BY number

-- name: count_sagas
SELECT name, status, count(*) AS count FROM postlude_saga GROUP BY name, status ORDER BY name, status

-- name: live_sagas
SELECT body FROM postlude_saga
 WHERE name = :name AND process_id > :after AND status IN ('running', 'compensating', 'stuck')
 ORDER BY process_id LIMIT :limit

-- name: stalled_sagas
-- Nothing is on its way that could move them on; a dead letter could not.
SELECT s.body FROM postlude_saga s
 WHERE s.status IN ('running', 'compensating') AND s.updated_at < :now - :older_than
   AND NOT EXISTS (SELECT 1 FROM postlude_event e JOIN postlude_delivery d ON d.event_id = e.event_id
                    WHERE e.saga_id = s.id AND d.status <> 'dead')
 ORDER BY s.updated_at, s.id LIMIT :limit

-- name: prune_sagas
-- History first, while it can be told which.
DELETE FROM postlude_saga_step WHERE saga_id IN (
       SELECT id FROM postlude_saga WHERE ended_at < :before ORDER BY ended_at, id LIMIT :limit)

-- name: prune_sagas_2
DELETE FROM postlude_saga_subject WHERE saga_id IN (
       SELECT id FROM postlude_saga WHERE ended_at < :before ORDER BY ended_at, id LIMIT :limit)

-- name: prune_sagas_3
DELETE FROM postlude_saga WHERE id IN (
       SELECT id FROM postlude_saga WHERE ended_at < :before ORDER BY ended_at, id LIMIT :limit)
RETURNING 1
