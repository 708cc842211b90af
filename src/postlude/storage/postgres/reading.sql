-- What a relay reads.

-- name: last_seq
-- The last seq handed out, committed or not.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM postlude.postlude_delivery_seq_seq

-- name: appenders
-- Transactions that may still commit a row: INSERT takes this lock before it takes its seq, and holds it to the end.
SELECT virtualtransaction FROM pg_locks
 WHERE locktype = 'relation' AND relation = 'postlude.postlude_delivery'::regclass
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND mode = 'RowExclusiveLock' AND granted

-- name: news
-- Which lanes have rows above a seq; bounded.
SELECT destination, lane, priority, status = 'pending' AS pending, count(*) AS entries
  FROM (SELECT destination, lane, priority, status FROM postlude.postlude_delivery
         WHERE seq > :after ORDER BY seq LIMIT :limit) AS recent
 GROUP BY 1, 2, 3, 4

-- name: read_pending
-- The hot read: at most :limit index rows of each lane, whatever is blocked. Usually nothing blocks at all: that is
-- asked once, and spares a probe for every row.
SELECT d.seq, d.event_id, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts, d.starts,
       d.key IS NOT NULL AND (SELECT EXISTS (
           SELECT 1 FROM postlude.postlude_delivery b WHERE b.destination = :destination AND b.blocks)) AND EXISTS (
           SELECT 1 FROM postlude.postlude_delivery b
            WHERE b.destination = :destination AND b.key = d.key AND b.seq < d.seq AND b.blocks) AS blocked
  FROM unnest(:lanes::smallint[], :priorities::smallint[], :floors::bigint[]) AS t (lane, priority, floor)
 CROSS JOIN LATERAL (
       SELECT seq, event_id, lane, key, priority, status, attempts, max_attempts, starts
         FROM postlude.postlude_delivery
        WHERE destination = :destination AND status = 'pending' AND lane = t.lane AND priority = t.priority
          AND seq > t.floor
        ORDER BY seq LIMIT :limit) AS d

-- name: read_due
-- What waited for its time, read where it waits. The time is fixed for the statement: with a volatile clock the index
-- could not stop at it, and everything that is scheduled would be walked.
SELECT d.seq, d.event_id, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts, d.starts,
       d.key IS NOT NULL AND EXISTS (
           SELECT 1 FROM postlude.postlude_delivery b
            WHERE b.destination = :destination AND b.key = d.key AND b.seq < d.seq AND b.blocks) AS blocked
  FROM unnest(:lanes::smallint[]) AS t (lane)
 CROSS JOIN LATERAL (
       SELECT seq, event_id, lane, key, priority, status, attempts, max_attempts, starts
         FROM postlude.postlude_delivery
        WHERE destination = :destination AND status IN ('failed', 'scheduled', 'claimed') AND lane = t.lane
          AND available_at <= statement_timestamp() + :ahead::interval AND seq <> ALL(:excluding::bigint[])
        ORDER BY available_at, seq LIMIT :limit) AS d

-- name: freed
-- Which of these keys have nothing before them any more that holds them.
SELECT k.key FROM unnest(:keys::text[], :seqs::bigint[]) AS k (key, seq)
 WHERE NOT EXISTS (SELECT 1 FROM postlude.postlude_delivery b
                    WHERE b.destination = :destination AND b.key = k.key AND b.seq < k.seq AND b.blocks)

-- name: events
-- Events by id; the bounds let the planner prune to the partitions of the batch. The inner SELECT hides the ids from
-- it: it would look up statistics for each of them, every time.
SELECT event_id, type, version, source, entity, key, topic, content_type, payload, headers, correlation_id,
       causation_id, saga_id, created_at
  FROM postlude.postlude_event
 WHERE event_id = ANY((SELECT :event_ids::uuid[])::uuid[]) AND event_id BETWEEN :low AND :high

-- name: has_due
-- Is there anything a worker could deliver now to these destinations?
SELECT EXISTS (
    SELECT 1 FROM postlude.postlude_delivery d
     WHERE d.destination = ANY(:destinations::text[])
       AND (d.status = 'pending' OR d.status IN ('failed', 'scheduled', 'claimed')
            AND d.available_at <= statement_timestamp() + :ahead::interval)
       AND NOT EXISTS (SELECT 1 FROM postlude.postlude_delivery b
                        WHERE b.destination = d.destination AND b.key = d.key AND b.seq < d.seq AND b.blocks))
