-- Duties, and what retention removes.

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
