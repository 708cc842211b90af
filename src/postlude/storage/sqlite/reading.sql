-- What a relay reads.

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
