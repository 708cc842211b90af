-- Every statement the engine runs on SQLite, by name. `:name` is a parameter; the same names stand in the PostgreSQL
-- file. Where PostgreSQL needs one statement and SQLite several, the next ones end in _2 and _3 and run in the same
-- transaction.
--
-- Lists come as JSON. JSON cannot carry bytes: ids and payloads come end to end in one blob, and the JSON says where
-- each begins. A fence is a JSON object from lane to epoch. Times are seconds since 1970; `:now` is the store's clock.

-- ---------------------------------------------------------------- appending

-- name: append
-- One event; gives the id back when it was new. INSERT comes first, so that Python's sqlite3 begins by itself.
INSERT INTO postlude_event (event_id, type, version, source, entity, key, topic, content_type, payload, digest, headers,
                            correlation_id, causation_id, saga_id, subjects, created_at)
VALUES (:event_id, :type, :version, :source, :entity, :key, :topic, :content_type, :payload, :digest, :headers,
        :correlation_id, :causation_id, :saga_id, :subjects, :now)
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id

-- name: append_2
-- The deliveries of a new event: [destination, lane, key].
INSERT INTO postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts, available_at)
SELECT :event_id, d.value ->> 0, d.value ->> 1, d.value ->> 2, :priority, :status, :max_attempts,
       coalesce(:available_at, :now)
  FROM json_each(:routes) AS d ORDER BY d.key

-- name: append_many
-- Many events in the order given: [id at, type, version, source, entity, key, topic, content type, payload at, its
-- length, digest at, its length, headers, correlation, causation at, saga at, subjects].
INSERT INTO postlude_event (event_id, type, version, source, entity, key, topic, content_type, payload, digest, headers,
                            correlation_id, causation_id, saga_id, subjects, created_at)
SELECT substr(:bytes, e.value ->> 0, 16), e.value ->> 1, e.value ->> 2, e.value ->> 3, e.value ->> 4, e.value ->> 5,
       e.value ->> 6, e.value ->> 7, substr(:bytes, e.value ->> 8, e.value ->> 9),
       substr(:bytes, e.value ->> 10, e.value ->> 11), e.value ->> 12, e.value ->> 13,
       substr(:bytes, e.value ->> 14, 16), substr(:bytes, e.value ->> 15, 16), e.value ->> 16, :now
  FROM json_each(:events) AS e WHERE true ORDER BY e.key
ON CONFLICT (event_id) DO NOTHING
RETURNING event_id

-- name: append_many_2
-- The deliveries of the new ones: [id at, destination, lane, key, priority, status, max attempts, available at].
INSERT INTO postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts, available_at)
SELECT substr(:bytes, d.value ->> 0, 16), d.value ->> 1, d.value ->> 2, d.value ->> 3, d.value ->> 4, d.value ->> 5,
       d.value ->> 6, coalesce(d.value ->> 7, :now)
  FROM json_each(:deliveries) AS d ORDER BY d.key

-- name: installed_lanes
-- The number of lanes, fixed when the schema was installed.
SELECT value FROM postlude_meta WHERE name = 'lanes'

-- name: digests
-- What is stored under ids that were not new.
SELECT event_id, digest FROM postlude_event WHERE event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))

-- ---------------------------------------------------------------- reading

-- name: last_seq
-- The last seq handed out.
SELECT seq FROM sqlite_sequence WHERE name = 'postlude_delivery'

-- name: appenders
-- Nobody: there is one writer at a time, so seq order is commit order.
SELECT '' WHERE false

-- name: news
-- Which lanes have rows above a seq; bounded.
SELECT destination, lane, priority, status = 'pending' AS pending, count(*) AS entries
  FROM (SELECT destination, lane, priority, status FROM postlude_delivery WHERE seq > :after ORDER BY seq LIMIT :limit)
 GROUP BY 1, 2, 3, 4

-- name: read_pending
-- The hot read: at most :limit index rows of each track [lane, priority, floor], whatever is blocked.
-- CROSS JOIN fixes the order of the loops.
SELECT d.seq, d.event_id, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts, d.starts,
       d.key IS NOT NULL AND EXISTS (
           SELECT 1 FROM postlude_delivery b
            WHERE b.destination = :destination AND b.key = d.key AND b.seq < d.seq AND b.blocks) AS blocked
  FROM json_each(:tracks) AS t CROSS JOIN postlude_delivery d
 WHERE d.seq IN (
       SELECT p.seq FROM postlude_delivery p
        WHERE p.destination = :destination AND p.status = 'pending' AND p.lane = t.value ->> 0
          AND p.priority = t.value ->> 1 AND p.seq > t.value ->> 2
        ORDER BY p.seq LIMIT :limit)
 ORDER BY d.seq

-- name: read_due
-- What waited for its time, read where it waits.
SELECT d.seq, d.event_id, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts, d.starts,
       d.key IS NOT NULL AND EXISTS (
           SELECT 1 FROM postlude_delivery b
            WHERE b.destination = :destination AND b.key = d.key AND b.seq < d.seq AND b.blocks) AS blocked
  FROM json_each(:lanes) AS t CROSS JOIN postlude_delivery d
 WHERE d.seq IN (
       SELECT p.seq FROM postlude_delivery p
        WHERE p.destination = :destination AND p.status IN ('failed', 'scheduled', 'claimed') AND p.lane = t.value
          AND p.available_at <= :now AND p.seq NOT IN (SELECT value FROM json_each(:excluding))
        ORDER BY p.available_at, p.seq LIMIT :limit)
 ORDER BY d.seq

-- name: freed
-- Which of these keys [key, seq] have nothing before them any more that holds them.
SELECT k.value ->> 0 FROM json_each(:keys) AS k
 WHERE NOT EXISTS (SELECT 1 FROM postlude_delivery b
                    WHERE b.destination = :destination AND b.key = k.value ->> 0 AND b.seq < k.value ->> 1 AND b.blocks)

-- name: events
-- Events by id. A raw SQL producer may have written the payload as text.
SELECT event_id, type, version, source, entity, key, topic, content_type, CAST(payload AS BLOB), headers,
       correlation_id, causation_id, saga_id, created_at
  FROM postlude_event WHERE event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))

-- name: has_due
-- Is there anything a worker could deliver now to these destinations?
SELECT EXISTS (
    SELECT 1 FROM postlude_delivery d
     WHERE d.destination IN (SELECT value FROM json_each(:destinations))
       AND (d.status = 'pending' OR d.status IN ('failed', 'scheduled', 'claimed') AND d.available_at <= :now)
       AND NOT EXISTS (SELECT 1 FROM postlude_delivery b
                        WHERE b.destination = d.destination AND b.key = d.key AND b.seq < d.seq AND b.blocks))

-- ---------------------------------------------------------------- settling

-- name: start
-- Commit an attempt before it begins; only what is still as it was read [seq, status, attempts], in lanes that are
-- still ours.
UPDATE postlude_delivery AS d
   SET status = 'claimed', blocks = d.key IS NOT NULL, attempts = d.attempts + 1, starts = d.starts + 1,
       attempted_at = :now, available_at = :now + :lease
  FROM json_each(:deliveries) AS v
 WHERE d.seq = v.value ->> 0 AND d.status = v.value ->> 1 AND d.attempts = v.value ->> 2
   AND d.destination = :destination AND EXISTS (SELECT 1 FROM postlude_worker WHERE id = :worker)
   AND d.lane IN (
       SELECT l.lane FROM json_each(:fence) AS f CROSS JOIN postlude_lane l
        WHERE l.destination = :destination AND l.lane = CAST(f.key AS INTEGER) AND l.epoch = f.value
          AND l.owner = :worker)
RETURNING seq

-- name: forgive
-- Attempts that were lost to an outage: their worker did not die of them.
UPDATE postlude_delivery SET starts = max(starts - 1, 0)
 WHERE destination = :destination AND seq IN (SELECT value FROM json_each(:seqs))

-- name: settle_sent
-- Sent: the proof is there. A settle that starts after a burial finds no worker and changes nothing.
INSERT INTO postlude_receipt (event_id, destination, attempts, seq, worker, settled_at)
SELECT d.event_id, d.destination, d.attempts + (d.status <> 'claimed'), d.seq, :worker, :now FROM postlude_delivery d
 WHERE d.seq IN (SELECT value FROM json_each(:seqs)) AND d.destination = :destination
   AND EXISTS (SELECT 1 FROM postlude_worker WHERE id = :worker)
   AND d.lane IN (
       SELECT l.lane FROM json_each(:fence) AS f CROSS JOIN postlude_lane l
        WHERE l.destination = :destination AND l.lane = CAST(f.key AS INTEGER) AND l.epoch = f.value
          AND l.owner = :worker)
RETURNING seq

-- name: settle_sent_2
-- And the work is gone: exactly what has its receipt.
DELETE FROM postlude_delivery WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: record
-- Failed, dead or scheduled: the same fence, and only if the row is still as it was read. [seq, was status, was
-- attempts, status, blocks, attempts, starts, delay, until, error].
UPDATE postlude_delivery AS d
   SET status = v.value ->> 3, blocks = v.value ->> 4, attempts = v.value ->> 5, starts = v.value ->> 6, token = NULL,
       available_at = coalesce(v.value ->> 8, :now + (v.value ->> 7)), last_error = coalesce(v.value ->> 9, d.last_error)
  FROM json_each(:verdicts) AS v
 WHERE d.seq = v.value ->> 0 AND d.status = v.value ->> 1 AND d.attempts = v.value ->> 2
   AND d.destination = :destination AND EXISTS (SELECT 1 FROM postlude_worker WHERE id = :worker)
   AND d.lane IN (
       SELECT l.lane FROM json_each(:fence) AS f CROSS JOIN postlude_lane l
        WHERE l.destination = :destination AND l.lane = CAST(f.key AS INTEGER) AND l.epoch = f.value
          AND l.owner = :worker)
RETURNING seq

-- name: open_seqs
-- Which of these rows are still there.
SELECT seq FROM postlude_delivery WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: settle_handled
-- The first statement of a handler's transaction: the receipt; a rollback undoes it. No row: it is gone, changed, or
-- not ours any more.
INSERT INTO postlude_receipt (event_id, destination, attempts, seq, worker, settled_at)
SELECT d.event_id, d.destination, d.attempts + (d.status <> 'claimed'), d.seq, :worker, :now
  FROM postlude_delivery d
  JOIN postlude_lane l ON l.destination = d.destination AND l.lane = d.lane AND l.owner = :worker AND l.epoch = :epoch
 WHERE d.seq = :seq AND d.status = :status AND d.attempts = :attempts
RETURNING seq

-- name: settle_handled_2
DELETE FROM postlude_delivery WHERE seq = :seq

-- name: condemn
-- A delivery that is gone comes back as a dead letter: born far from due, then buried, in one transaction.
INSERT INTO postlude_delivery (event_id, destination, lane, key, status, attempts, available_at)
VALUES (:event_id, :destination, :lane, :key, 'scheduled', :attempts, :now + 3600)
ON CONFLICT DO NOTHING
RETURNING seq

-- name: condemn_2
UPDATE postlude_delivery SET status = 'dead', last_error = :error, available_at = :now WHERE seq = :seq

-- name: expand
-- A raw SQL producer's row becomes one row for each destination, in order: [id at, destination, lane, key].
INSERT INTO postlude_delivery (event_id, destination, lane, key, max_attempts, available_at)
SELECT d.event_id, c.value ->> 1, c.value ->> 2, c.value ->> 3, d.max_attempts, :now
  FROM json_each(:children) AS c CROSS JOIN postlude_delivery d
 WHERE d.event_id = substr(:ids, c.value ->> 0, 16) AND d.destination = 'route'
   AND d.seq IN (SELECT value FROM json_each(:seqs)) AND EXISTS (SELECT 1 FROM postlude_worker WHERE id = :worker)
   AND EXISTS (SELECT 1 FROM postlude_lane l
                WHERE l.destination = 'route' AND l.lane = 0 AND l.owner = :worker AND l.epoch = :epoch)
 ORDER BY c.key
ON CONFLICT (event_id, destination) DO NOTHING

-- name: expand_2
DELETE FROM postlude_delivery
 WHERE seq IN (SELECT value FROM json_each(:seqs)) AND destination = 'route'
   AND EXISTS (SELECT 1 FROM postlude_worker WHERE id = :worker)
   AND EXISTS (SELECT 1 FROM postlude_lane l
                WHERE l.destination = 'route' AND l.lane = 0 AND l.owner = :worker AND l.epoch = :epoch)
RETURNING seq

-- ---------------------------------------------------------------- ownership

-- name: register_worker
INSERT INTO postlude_worker (id, name, version, started_at, lease_until, destinations)
VALUES (:worker, :name, :version, :now, :now + :lease, :destinations)

-- name: register_destinations
-- Known destinations [name, kind, lanes] and their lanes; safe to repeat.
INSERT INTO postlude_destination (name, kind, seen_at)
SELECT d.value ->> 0, d.value ->> 1, :now FROM json_each(:destinations) AS d WHERE true
ON CONFLICT (name) DO NOTHING

-- name: register_destinations_2
WITH RECURSIVE wanted (destination, lane, lanes) AS (
    SELECT d.value ->> 0, 0, d.value ->> 2 FROM json_each(:destinations) AS d
    UNION ALL
    SELECT destination, lane + 1, lanes FROM wanted WHERE lane + 1 < lanes
)
INSERT INTO postlude_lane (destination, lane) SELECT destination, lane FROM wanted WHERE true
ON CONFLICT (destination, lane) DO NOTHING

-- name: renew
-- No row: this worker is buried.
UPDATE postlude_worker SET lease_until = :now + :lease WHERE id = :worker RETURNING stopping

-- name: bury_workers
-- The only way a live-looking owner loses its lanes.
UPDATE postlude_lane
   SET owner = NULL, epoch = epoch + 1, crashes = crashes + 1,
       cautious_to = coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'postlude_delivery'), 0)
 WHERE owner IN (SELECT id FROM postlude_worker WHERE lease_until < :now)
RETURNING destination, lane

-- name: bury_workers_2
DELETE FROM postlude_worker WHERE lease_until < :now

-- name: live_workers
SELECT id, name, version, started_at, stopping, destinations, lease_until FROM postlude_worker
 WHERE lease_until > :now ORDER BY started_at, id

-- name: owned_lanes
-- What a worker owns by the database's word: an answer that was lost on the way leaves it knowing less.
SELECT destination, lane, epoch FROM postlude_lane WHERE owner = :worker

-- name: claim_lanes
-- Up to :count free lanes; a lane whose owner is gone is free.
UPDATE postlude_lane SET owner = :worker, epoch = epoch + 1
 WHERE destination = :destination
   AND EXISTS (SELECT 1 FROM postlude_worker WHERE id = :worker AND NOT stopping AND lease_until > :now)
   AND lane IN (
       SELECT l.lane FROM postlude_lane l
        WHERE l.destination = :destination
          AND (l.owner IS NULL OR NOT EXISTS (SELECT 1 FROM postlude_worker w WHERE w.id = l.owner))
        ORDER BY random() LIMIT :count)
RETURNING lane, epoch, cautious_to

-- name: release_lanes
UPDATE postlude_lane AS l SET owner = NULL, epoch = l.epoch + 1 FROM json_each(:fence) AS f
 WHERE l.destination = :destination AND l.lane = CAST(f.key AS INTEGER) AND l.owner = :worker AND l.epoch = f.value

-- name: leave
-- A clean end: lanes are free at once and nobody needs to be cautious.
UPDATE postlude_lane SET owner = NULL, epoch = epoch + 1 WHERE owner = :worker

-- name: leave_2
DELETE FROM postlude_worker WHERE id = :worker

-- name: paused
SELECT name FROM postlude_destination WHERE paused_at IS NOT NULL

-- ---------------------------------------------------------------- insight

-- name: counts
SELECT status, count(*) FROM postlude_delivery GROUP BY status

-- name: stats
-- Open work by destination and status, with the age of the oldest that is due.
SELECT destination, status, count(*) AS entries,
       max(:now - available_at) FILTER (WHERE available_at <= :now) AS oldest_due_seconds,
       count(DISTINCT key) FILTER (WHERE blocks) AS blocked_keys
  FROM postlude_delivery GROUP BY destination, status ORDER BY destination, status

-- name: list_open
SELECT d.seq, d.event_id, d.destination, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts,
       d.available_at, d.blocks, d.last_error, e.type, e.correlation_id, e.created_at
  FROM postlude_delivery d LEFT JOIN postlude_event e USING (event_id)
 WHERE d.seq > :after
   AND (:status IS NULL OR d.status = :status) AND (:destination IS NULL OR d.destination = :destination)
   AND (:key IS NULL OR d.key = :key) AND (:type IS NULL OR e.type = :type)
   AND (:correlation IS NULL OR e.correlation_id = :correlation) AND (:saga IS NULL OR e.saga_id = :saga)
   AND (:since IS NULL OR e.created_at >= :since) AND (:until IS NULL OR e.created_at < :until)
 ORDER BY d.seq LIMIT :limit

-- name: list_settled
SELECT r.seq, r.event_id, r.destination, r.outcome, r.attempts, r.settled_at, r.worker, r.actor,
       e.key, e.type, e.correlation_id, e.created_at
  FROM postlude_receipt r LEFT JOIN postlude_event e USING (event_id)
 WHERE (r.event_id, r.seq) > (:after_event, :after)
   AND (:status IS NULL OR r.outcome = :status) AND (:destination IS NULL OR r.destination = :destination)
   AND (:key IS NULL OR e.key = :key) AND (:type IS NULL OR e.type = :type)
   AND (:correlation IS NULL OR e.correlation_id = :correlation) AND (:saga IS NULL OR e.saga_id = :saga)
   AND (:since IS NULL OR e.created_at >= :since) AND (:until IS NULL OR e.created_at < :until)
 ORDER BY r.event_id, r.seq LIMIT :limit

-- name: deliveries_of
SELECT seq, event_id, destination, lane, key, priority, status, attempts, max_attempts, available_at, blocks, last_error
  FROM postlude_delivery WHERE event_id = :event_id ORDER BY seq

-- name: receipts_of
SELECT seq, event_id, destination, outcome, attempts, settled_at, worker, actor
  FROM postlude_receipt WHERE event_id = :event_id ORDER BY seq

-- name: caused_by
SELECT event_id FROM postlude_event WHERE causation_id = :event_id ORDER BY event_id LIMIT 100

-- name: destinations
SELECT name, kind, seen_at, paused_at, paused_by, reason FROM postlude_destination ORDER BY name

-- name: lane_owners
SELECT l.destination, count(*) AS lanes, count(w.id) AS owned, sum(l.crashes) AS crashes
  FROM postlude_lane l LEFT JOIN postlude_worker w ON w.id = l.owner AND w.lease_until > :now
 GROUP BY l.destination ORDER BY l.destination

-- name: unserved
-- Open work whose destination no live worker serves.
SELECT destination, count(*) AS entries FROM postlude_delivery
 WHERE status <> 'dead' AND destination NOT IN (
       SELECT s.value FROM postlude_worker w, json_each(w.destinations) AS s WHERE w.lease_until > :now)
 GROUP BY destination ORDER BY destination

-- name: database_time
SELECT (julianday('now') - 2440587.5) * 86400.0

-- name: export_events
SELECT event_id, type, version, source, entity, key, topic, content_type, CAST(payload AS BLOB), headers,
       correlation_id, causation_id, saga_id, created_at
  FROM postlude_event e
 WHERE event_id > :after AND (:type IS NULL OR type = :type) AND (:key IS NULL OR key = :key)
   AND (:correlation IS NULL OR correlation_id = :correlation) AND (:saga IS NULL OR saga_id = :saga)
   AND (:since IS NULL OR created_at >= :since) AND (:until IS NULL OR created_at < :until)
   AND (:status IS NULL AND :destination IS NULL OR EXISTS (
        SELECT 1 FROM postlude_delivery d WHERE d.event_id = e.event_id
           AND (:status IS NULL OR d.status = :status)
           AND (:destination IS NULL OR d.destination = :destination)) OR EXISTS (
        SELECT 1 FROM postlude_receipt r WHERE r.event_id = e.event_id
           AND (:status IS NULL OR r.outcome = :status)
           AND (:destination IS NULL OR r.destination = :destination)))
 ORDER BY event_id LIMIT :limit

-- name: audits
SELECT id, at, actor, action, target, reason, detail, trace_id, old_status, new_status FROM postlude_audit
 WHERE (:target IS NULL OR target = :target) AND (:actor IS NULL OR actor = :actor)
   AND (:action IS NULL OR action = :action) AND (:since IS NULL OR at >= :since) AND (:until IS NULL OR at < :until)
   AND (:after IS NULL OR (at, id) < (SELECT at, id FROM postlude_audit WHERE id = :after))
 ORDER BY at DESC, id DESC LIMIT :limit

-- ---------------------------------------------------------------- actions
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

-- ---------------------------------------------------------------- operations

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

-- ---------------------------------------------------------------- duties

-- name: duties
-- Every duty a worker ever had, who has it now, and what came of it last.
SELECT d.name, w.name AS owner, u.ran_at, u.next_at, u.rows, u.seconds, u.error
  FROM postlude_destination d
  LEFT JOIN postlude_lane l ON l.destination = d.name
  LEFT JOIN postlude_worker w ON w.id = l.owner AND w.lease_until > :now
  LEFT JOIN postlude_duty u ON u.name = d.name
 WHERE d.kind = 'duty' ORDER BY d.name

-- name: record_duty
INSERT INTO postlude_duty (name, ran_at, next_at, rows, seconds, error)
VALUES (:name, :now, :now + :next_in, :rows, :seconds, :error)
ON CONFLICT (name) DO UPDATE
   SET ran_at = excluded.ran_at, next_at = excluded.next_at, rows = excluded.rows, seconds = excluded.seconds,
       error = excluded.error

-- name: disk_use
-- Bytes of every table of ours with its indexes; needs the table dbstat, which some builds lack.
SELECT m.tbl_name AS name, sum(s.pgsize) AS bytes
  FROM sqlite_master m JOIN dbstat s ON s.name = m.name AND s.aggregate = TRUE
 WHERE m.tbl_name LIKE 'postlude!_%' ESCAPE '!' AND m.type IN ('table', 'index')
 GROUP BY m.tbl_name ORDER BY 2 DESC, 1

-- ---------------------------------------------------------------- retention

-- name: prune_events
-- Settled events, in bounded batches. First it is remembered whom sagas are about, while events can tell: by an event of
-- the saga, by the cause of one, and by what an event has caused.
WITH old AS MATERIALIZED (
    SELECT e.event_id, e.saga_id, e.causation_id, e.subjects FROM postlude_event e
     WHERE e.created_at < :before
       AND NOT EXISTS (SELECT 1 FROM postlude_delivery d WHERE d.event_id = e.event_id)
     ORDER BY e.created_at, e.event_id LIMIT :limit
)
INSERT OR IGNORE INTO postlude_saga_subject (subject, saga_id)
SELECT n.value, l.saga_id
  FROM (SELECT subjects, saga_id FROM old WHERE saga_id IS NOT NULL
        UNION ALL
        SELECT t.subjects, o.saga_id FROM old o JOIN postlude_event t ON t.event_id = o.causation_id
         WHERE o.saga_id IS NOT NULL
        UNION ALL
        SELECT o.subjects, c.saga_id FROM old o JOIN postlude_event c ON c.causation_id = o.event_id
         WHERE o.subjects IS NOT NULL AND c.saga_id IS NOT NULL) AS l
  JOIN postlude_saga s ON s.id = l.saga_id, json_each(l.subjects) AS n

-- name: prune_events_2
DELETE FROM postlude_event WHERE event_id IN (
       SELECT e.event_id FROM postlude_event e
        WHERE e.created_at < :before
          AND NOT EXISTS (SELECT 1 FROM postlude_delivery d WHERE d.event_id = e.event_id)
        ORDER BY e.created_at, e.event_id LIMIT :limit)
RETURNING 1

-- name: prune_receipts
DELETE FROM postlude_receipt WHERE rowid IN (
       SELECT r.rowid FROM postlude_receipt r
        WHERE r.settled_at < :before
          AND NOT EXISTS (SELECT 1 FROM postlude_delivery d WHERE d.event_id = r.event_id)
        ORDER BY r.settled_at LIMIT :limit)
RETURNING 1

-- name: prune_inbox
DELETE FROM postlude_inbox WHERE (consumer, event_id) IN (
       SELECT consumer, event_id FROM postlude_inbox WHERE received_at < :before ORDER BY received_at LIMIT :limit)
RETURNING 1

-- name: prune_dead
-- Dead letters older than the retention of dead letters; off by default. Abandoned calls stay: nobody but a person may
-- say that a subject need not be erased there. The receipt says the duty gave them up.
INSERT INTO postlude_receipt (event_id, destination, outcome, attempts, seq, actor, settled_at)
SELECT d.event_id, d.destination, 'discarded', d.attempts, d.seq, 'duty:retention', :now FROM postlude_delivery d
 WHERE d.status = 'dead' AND d.group_id IS NULL AND d.available_at < :before ORDER BY d.destination, d.seq LIMIT :limit
RETURNING seq

-- name: prune_dead_2
INSERT INTO postlude_audit (id, at, actor, action, target, reason, old_status, new_status, detail)
SELECT randomblob(16), :now, 'duty:retention', 'discard', uuid_text(event_id), 'retention.dead_hours', 'dead', 'discarded',
       json_object('destination', destination, 'prior_attempts', attempts)
  FROM postlude_delivery WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: prune_dead_3
DELETE FROM postlude_delivery WHERE seq IN (SELECT value FROM json_each(:seqs))

-- ---------------------------------------------------------------- inbox

-- name: once
-- INSERT comes first, so that Python's sqlite3 begins by itself.
INSERT INTO postlude_inbox (consumer, event_id, received_at) VALUES (:consumer, :event_id, :now)
ON CONFLICT DO NOTHING
RETURNING event_id

-- name: receive
-- Messages from a broker that this consumer has not seen: [id at, topic].
INSERT INTO postlude_inbox (consumer, event_id, topic, received_at)
SELECT :consumer, substr(:bytes, m.value ->> 0, 16), m.value ->> 1, :now FROM json_each(:messages) AS m WHERE true
ON CONFLICT DO NOTHING
RETURNING event_id

-- name: receive_2
-- Their deliveries, as in append_many_2. One that is open there already stays: the inbox has forgotten what an operator
-- has not settled.
INSERT INTO postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts, available_at)
SELECT substr(:bytes, d.value ->> 0, 16), d.value ->> 1, d.value ->> 2, d.value ->> 3, d.value ->> 4, d.value ->> 5,
       d.value ->> 6, coalesce(d.value ->> 7, :now)
  FROM json_each(:deliveries) AS d WHERE true ORDER BY d.key
ON CONFLICT DO NOTHING

-- name: contents
-- What is stored under ids whose digests differ: a digest also covers the key, which a route may change on the way.
-- A redacted event has none: whatever comes under its id is taken for it.
SELECT event_id, type, version,
       CASE WHEN json_valid(headers) AND headers ->> '$."postlude-redacted"' IS NOT NULL THEN NULL ELSE payload END
  FROM postlude_event WHERE event_id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))

-- name: count_received
INSERT INTO postlude_consumer (consumer, received, duplicates, ignored, unreadable, first_at, last_at)
VALUES (:consumer, :received, :duplicates, :ignored, :unreadable, :now, :now)
ON CONFLICT (consumer) DO UPDATE
   SET received = received + excluded.received, duplicates = duplicates + excluded.duplicates,
       ignored = ignored + excluded.ignored, unreadable = unreadable + excluded.unreadable, last_at = excluded.last_at

-- name: begin_consumer
-- Since when a consumer exists, and what time it is.
INSERT INTO postlude_consumer (consumer, first_at) VALUES (:consumer, :now)
ON CONFLICT (consumer) DO UPDATE SET consumer = excluded.consumer
RETURNING first_at, :now

-- name: record_lag
UPDATE postlude_consumer SET lag = :lag, lag_at = :now WHERE consumer = :consumer

-- name: open_entries
-- How much work is open at these destinations, counted up to a limit. Dead letters wait for a person.
SELECT min(:limit, sum(n)) FROM (
    SELECT count(*) AS n FROM (SELECT 1 FROM postlude_delivery
     WHERE destination IN (SELECT value FROM json_each(:destinations)) AND status = 'pending' LIMIT :limit)
    UNION ALL
    SELECT count(*) FROM (SELECT 1 FROM postlude_delivery
     WHERE destination IN (SELECT value FROM json_each(:destinations)) AND status IN ('failed', 'claimed') LIMIT :limit))

-- name: consumers
SELECT consumer, received, duplicates, ignored, unreadable, lag, lag_at, first_at, last_at
  FROM postlude_consumer ORDER BY consumer

-- name: list_inbox
-- Newest first.
SELECT consumer, event_id, topic, received_at FROM postlude_inbox
 WHERE (:consumer IS NULL OR consumer = :consumer) AND (:topic IS NULL OR topic = :topic)
   AND (:since IS NULL OR received_at >= :since)
   AND (:until IS NULL OR received_at < :until)
 ORDER BY received_at DESC, consumer, event_id LIMIT :limit

-- ---------------------------------------------------------------- sagas
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
