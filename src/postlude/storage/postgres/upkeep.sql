-- Duties, and what retention removes.

-- name: duties
-- Every duty a worker ever had, who has it now, and what came of it last.
SELECT d.name, w.name AS owner, u.ran_at, u.next_at, u.rows, u.seconds, u.error
  FROM postlude.postlude_destination d
  LEFT JOIN postlude.postlude_lane l ON l.destination = d.name
  LEFT JOIN postlude.postlude_worker w ON w.id = l.owner AND w.lease_until > clock_timestamp() + :ahead::interval
  LEFT JOIN postlude.postlude_duty u ON u.name = d.name
 WHERE d.kind = 'duty' ORDER BY d.name

-- name: record_duty
INSERT INTO postlude.postlude_duty (name, ran_at, next_at, rows, seconds, error)
VALUES (:name, clock_timestamp() + :ahead::interval,
        clock_timestamp() + :ahead::interval + make_interval(secs => :next_in), :rows, :seconds, :error::text)
ON CONFLICT (name) DO UPDATE
   SET ran_at = excluded.ran_at, next_at = excluded.next_at, rows = excluded.rows, seconds = excluded.seconds,
       error = excluded.error

-- name: disk_use
-- Bytes with indexes, rows as the planner estimates them, and partitions, of every table of ours.
SELECT c.relname AS name, sum(pg_total_relation_size(p.oid))::bigint AS bytes,
       sum(greatest(p.reltuples, 0))::bigint AS rows, count(*) FILTER (WHERE p.oid <> c.oid) AS partitions
  FROM pg_class c
  JOIN pg_class p ON p.oid = c.oid AND c.relkind = 'r'
    OR p.oid IN (SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = c.oid)
 WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'postlude.postlude_meta'::regclass)
   AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname LIKE 'postlude\_%'
 GROUP BY c.oid, c.relname ORDER BY 2 DESC, 1

-- name: prune_events
-- Settled events of the default partition (ids that are not ours), in bounded batches. Whom sagas are about is remembered,
-- as partitions.py does for a whole day: by an event of the saga, by the cause of one, and by what an event has caused.
-- A cause is locked, so that no redaction is overtaken.
WITH old AS MATERIALIZED (
    SELECT e.event_id, e.saga_id, e.causation_id, e.subjects FROM postlude.postlude_event_default e
     WHERE e.created_at < clock_timestamp() + :ahead::interval - make_interval(hours => :hours)
       AND NOT EXISTS (SELECT 1 FROM postlude.postlude_delivery d WHERE d.event_id = e.event_id)
     LIMIT :limit FOR UPDATE OF e SKIP LOCKED
), cause AS MATERIALIZED (
    SELECT t.subjects, o.saga_id FROM old o JOIN postlude.postlude_event t ON t.event_id = o.causation_id
     WHERE o.saga_id IS NOT NULL AND t.subjects IS NOT NULL AND NOT EXISTS (SELECT 1 FROM old WHERE old.event_id = t.event_id)
     ORDER BY t.event_id FOR SHARE OF t
), remembered AS (
    INSERT INTO postlude.postlude_saga_subject (subject, saga_id)
    SELECT DISTINCT n.subject, l.saga_id
      FROM (SELECT subjects, saga_id FROM old WHERE subjects IS NOT NULL
            UNION ALL
            SELECT subjects, saga_id FROM cause
            UNION ALL
            SELECT o.subjects, c.saga_id FROM old o JOIN postlude.postlude_event c ON c.causation_id = o.event_id
             WHERE o.subjects IS NOT NULL AND c.saga_id IS NOT NULL) AS l
      JOIN postlude.postlude_saga s ON s.id = l.saga_id
     CROSS JOIN LATERAL unnest(l.subjects) AS n (subject)
     ORDER BY 1, 2
    ON CONFLICT DO NOTHING
), gone AS (
    DELETE FROM postlude.postlude_event_default e USING old WHERE e.event_id = old.event_id RETURNING e.event_id
)
SELECT count(*) FROM gone

-- name: prune_receipts
WITH old AS (
    SELECT r.ctid FROM postlude.postlude_receipt_default r
     WHERE r.settled_at < clock_timestamp() + :ahead::interval - make_interval(hours => :hours)
       AND NOT EXISTS (SELECT 1 FROM postlude.postlude_delivery d WHERE d.event_id = r.event_id)
     LIMIT :limit
), gone AS (
    DELETE FROM postlude.postlude_receipt_default r WHERE r.ctid IN (SELECT ctid FROM old) RETURNING 1
)
SELECT count(*) FROM gone

-- name: prune_inbox
WITH old AS (
    SELECT consumer, event_id FROM postlude.postlude_inbox
     WHERE received_at < clock_timestamp() + :ahead::interval - make_interval(hours => :hours)
     ORDER BY received_at LIMIT :limit FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM postlude.postlude_inbox i USING old
     WHERE i.consumer = old.consumer AND i.event_id = old.event_id RETURNING 1
)
SELECT count(*) FROM gone

-- name: prune_dead
-- Dead letters older than the retention of dead letters; off by default. Abandoned calls stay: nobody but a person may
-- say that a subject need not be erased there. Audited as a discard by the duty.
WITH target AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.destination, d.attempts FROM postlude.postlude_delivery d
     WHERE d.status = 'dead' AND d.group_id IS NULL
       AND d.available_at < clock_timestamp() + :ahead::interval - make_interval(hours => :hours)
     ORDER BY d.seq LIMIT :limit FOR UPDATE OF d SKIP LOCKED
), changed AS (
    DELETE FROM postlude.postlude_delivery d USING target WHERE d.seq = target.seq
), receipt AS (
    INSERT INTO postlude.postlude_receipt (event_id, destination, outcome, attempts, seq, actor)
    SELECT event_id, destination, 'discarded', attempts, seq, 'duty:retention' FROM target
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, old_status, new_status, detail)
    SELECT gen_random_uuid(), 'duty:retention', 'discard', event_id::text, 'retention.dead_hours', 'dead', 'discarded',
           jsonb_build_object('destination', destination, 'prior_attempts', attempts)
      FROM target
)
SELECT count(*) FROM target
