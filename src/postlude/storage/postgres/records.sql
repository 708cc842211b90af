-- What insight shows.

-- name: counts
SELECT status, count(*) FROM postlude.postlude_delivery GROUP BY status

-- name: stats
-- Open work by destination and status, with the age of the oldest that is due.
SELECT destination, status, count(*) AS entries,
       max(extract(epoch FROM clock_timestamp() + :ahead::interval - available_at))
           FILTER (WHERE available_at <= clock_timestamp() + :ahead::interval)::float8 AS oldest_due_seconds,
       count(DISTINCT key) FILTER (WHERE blocks) AS blocked_keys
  FROM postlude.postlude_delivery GROUP BY destination, status ORDER BY destination, status

-- name: list_open
SELECT d.seq, d.event_id, d.destination, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts,
       d.available_at, d.blocks, d.last_error, e.type, e.correlation_id, e.created_at
  FROM postlude.postlude_delivery d LEFT JOIN postlude.postlude_event e USING (event_id)
 WHERE d.seq > :after
   AND (:status::text IS NULL OR d.status = :status) AND (:destination::text IS NULL OR d.destination = :destination)
   AND (:key::text IS NULL OR d.key = :key) AND (:type::text IS NULL OR e.type = :type)
   AND (:correlation::text IS NULL OR e.correlation_id = :correlation) AND (:saga::uuid IS NULL OR e.saga_id = :saga)
   AND (:since::timestamptz IS NULL OR e.created_at >= :since)
   AND (:until::timestamptz IS NULL OR e.created_at < :until)
 ORDER BY d.seq LIMIT :limit

-- name: list_settled
SELECT r.seq, r.event_id, r.destination, r.outcome, r.attempts, r.settled_at, r.worker, r.actor,
       e.key, e.type, e.correlation_id, e.created_at
  FROM postlude.postlude_receipt r LEFT JOIN postlude.postlude_event e USING (event_id)
 WHERE (r.event_id, r.seq) > (:after_event, :after)
   AND (:status::text IS NULL OR r.outcome = :status) AND (:destination::text IS NULL OR r.destination = :destination)
   AND (:key::text IS NULL OR e.key = :key) AND (:type::text IS NULL OR e.type = :type)
   AND (:correlation::text IS NULL OR e.correlation_id = :correlation) AND (:saga::uuid IS NULL OR e.saga_id = :saga)
   AND (:since::timestamptz IS NULL OR e.created_at >= :since)
   AND (:until::timestamptz IS NULL OR e.created_at < :until)
 ORDER BY r.event_id, r.seq LIMIT :limit

-- name: deliveries_of
SELECT d.seq, d.event_id, d.destination, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts,
       d.available_at, d.blocks, d.last_error
  FROM postlude.postlude_delivery d WHERE d.event_id = :event_id ORDER BY d.seq

-- name: receipts_of
SELECT seq, event_id, destination, outcome, attempts, settled_at, worker, actor
  FROM postlude.postlude_receipt WHERE event_id = :event_id ORDER BY seq

-- name: caused_by
SELECT event_id FROM postlude.postlude_event WHERE causation_id = :event_id ORDER BY event_id LIMIT 100

-- name: destinations
SELECT name, kind, seen_at, paused_at, paused_by, reason FROM postlude.postlude_destination ORDER BY name

-- name: lane_owners
SELECT l.destination, count(*) AS lanes, count(w.id) AS owned, sum(l.crashes)::bigint AS crashes
  FROM postlude.postlude_lane l
  LEFT JOIN postlude.postlude_worker w ON w.id = l.owner AND w.lease_until > clock_timestamp() + :ahead::interval
 GROUP BY l.destination ORDER BY l.destination

-- name: unserved
-- Open work whose destination no live worker serves.
SELECT d.destination, count(*) AS entries FROM postlude.postlude_delivery d
 WHERE d.status <> 'dead' AND NOT EXISTS (
       SELECT 1 FROM postlude.postlude_worker w
        WHERE w.lease_until > clock_timestamp() + :ahead::interval AND d.destination = ANY(w.destinations))
 GROUP BY d.destination ORDER BY d.destination

-- name: database_time
SELECT clock_timestamp() + :ahead::interval

-- name: export_events
SELECT event_id, type, version, source, entity, key, topic, content_type, payload, headers, correlation_id,
       causation_id, saga_id, created_at
  FROM postlude.postlude_event e
 WHERE event_id > :after AND (:since::timestamptz IS NULL OR created_at >= :since)
   AND (:until::timestamptz IS NULL OR created_at < :until) AND (:type::text IS NULL OR type = :type)
   AND (:key::text IS NULL OR key = :key) AND (:correlation::text IS NULL OR correlation_id = :correlation)
   AND (:saga::uuid IS NULL OR saga_id = :saga)
   AND (:status::text IS NULL AND :destination::text IS NULL OR EXISTS (
        SELECT 1 FROM postlude.postlude_delivery d WHERE d.event_id = e.event_id
           AND (:status::text IS NULL OR d.status = :status)
           AND (:destination::text IS NULL OR d.destination = :destination)) OR EXISTS (
        SELECT 1 FROM postlude.postlude_receipt r WHERE r.event_id = e.event_id
           AND (:status::text IS NULL OR r.outcome = :status)
           AND (:destination::text IS NULL OR r.destination = :destination)))
 ORDER BY event_id LIMIT :limit

-- name: audits
SELECT id, at, actor, action, target, reason, detail, trace_id, old_status, new_status FROM postlude.postlude_audit
 WHERE (:target::text IS NULL OR target = :target) AND (:actor::text IS NULL OR actor = :actor)
   AND (:action::text IS NULL OR action = :action)
   AND (:since::timestamptz IS NULL OR at >= :since) AND (:until::timestamptz IS NULL OR at < :until)
   AND (:after::uuid IS NULL OR (at, id) < (SELECT at, id FROM postlude.postlude_audit WHERE id = :after))
 ORDER BY at DESC, id DESC LIMIT :limit
