-- What insight shows.

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
