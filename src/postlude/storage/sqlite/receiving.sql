-- The inbox, and consumers.

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
