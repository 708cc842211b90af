-- The inbox, and consumers.

-- name: once
-- The first to commit has it. A second one waits for the first to end, and then sees it, or is the first itself.
INSERT INTO postlude.postlude_inbox (consumer, event_id) VALUES (:consumer, :event_id)
ON CONFLICT DO NOTHING
RETURNING event_id

-- name: receive
-- A batch from a broker: what this consumer has not seen, its events where they are new, and its deliveries. Inbox rows
-- and events are written in the order of their ids, so that consumers of the same messages cannot deadlock; deliveries in
-- the order in which the messages came. Gives the ids that were new to the consumer, and whether their events were.
WITH given AS (
    SELECT * FROM unnest(:event_ids::uuid[], :types::text[], :versions::smallint[], :sources::text[], :entities::text[],
                         :keys::text[], :topics::text[], :content_types::text[], :payloads::bytea[], :digests::bytea[],
                         :headers::text[], :correlation_ids::text[], :causation_ids::uuid[], :saga_ids::uuid[],
                         :subjects::text[])
        AS g (event_id, type, version, source, entity, key, topic, content_type, payload, digest,
              headers, correlation_id, causation_id, saga_id, subjects)
), seen AS (
    INSERT INTO postlude.postlude_inbox (consumer, event_id, topic)
    SELECT :consumer, event_id, topic FROM given ORDER BY event_id
    ON CONFLICT DO NOTHING
    RETURNING event_id
), event AS (
    INSERT INTO postlude.postlude_event (event_id, type, version, source, entity, key, topic, content_type, payload,
                                         digest, headers, correlation_id, causation_id, saga_id, subjects)
    SELECT event_id, type, version, source, entity, key, topic, content_type, payload,
           digest, headers::jsonb, correlation_id, causation_id, saga_id,
           (SELECT array_agg(s) FROM jsonb_array_elements_text(subjects::jsonb) AS s)
      FROM given JOIN seen USING (event_id) ORDER BY event_id
    ON CONFLICT DO NOTHING
    RETURNING event_id
), delivery AS (
    INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts, available_at)
    SELECT d.event_id, d.destination, d.lane, d.key, d.priority, d.status, d.max_attempts,
           coalesce(d.available_at, clock_timestamp())
      FROM unnest(:of_events::uuid[], :destinations::text[], :lanes::smallint[], :delivery_keys::text[],
                  :priorities::smallint[], :statuses::text[], :max_attempts::integer[], :available_ats::timestamptz[])
           WITH ORDINALITY AS d (event_id, destination, lane, key, priority, status, max_attempts, available_at, position)
      JOIN seen USING (event_id)
     ORDER BY d.position
    ON CONFLICT DO NOTHING -- open there already: the inbox has forgotten what an operator has not settled
)
SELECT seen.event_id, event.event_id IS NOT NULL FROM seen LEFT JOIN event USING (event_id)

-- name: contents
-- What is stored under ids whose digests differ: a digest also covers the key, which a route may change on the way.
-- A redacted event has none: whatever comes under its id is taken for it.
SELECT event_id, type, version, CASE WHEN headers ->> 'postlude-redacted' IS NULL THEN payload END
  FROM postlude.postlude_event WHERE event_id = ANY(:event_ids::uuid[])

-- name: count_received
INSERT INTO postlude.postlude_consumer AS c (consumer, received, duplicates, ignored, unreadable, last_at)
VALUES (:consumer, :received, :duplicates, :ignored, :unreadable, clock_timestamp())
ON CONFLICT (consumer) DO UPDATE
   SET received = c.received + excluded.received, duplicates = c.duplicates + excluded.duplicates,
       ignored = c.ignored + excluded.ignored, unreadable = c.unreadable + excluded.unreadable,
       last_at = excluded.last_at

-- name: begin_consumer
-- Since when a consumer exists, and what time it is.
INSERT INTO postlude.postlude_consumer AS c (consumer) VALUES (:consumer)
ON CONFLICT (consumer) DO UPDATE SET consumer = c.consumer
RETURNING first_at, clock_timestamp() + :ahead::interval

-- name: record_lag
UPDATE postlude.postlude_consumer SET lag = :lag::bigint, lag_at = clock_timestamp() WHERE consumer = :consumer

-- name: open_entries
-- How much work is open at these destinations, counted up to a limit. Dead letters wait for a person.
SELECT count(*) FROM (
    (SELECT 1 FROM postlude.postlude_delivery
      WHERE destination = ANY(:destinations::text[]) AND status = 'pending' LIMIT :limit)
    UNION ALL
    (SELECT 1 FROM postlude.postlude_delivery
      WHERE destination = ANY(:destinations::text[]) AND status IN ('failed', 'claimed') LIMIT :limit)) AS open

-- name: consumers
SELECT consumer, received, duplicates, ignored, unreadable, lag, lag_at, first_at, last_at
  FROM postlude.postlude_consumer ORDER BY consumer

-- name: list_inbox
-- Newest first.
SELECT consumer, event_id, topic, received_at FROM postlude.postlude_inbox
 WHERE (:consumer::text IS NULL OR consumer = :consumer) AND (:topic::text IS NULL OR topic = :topic)
   AND (:since::timestamptz IS NULL OR received_at >= :since)
   AND (:until::timestamptz IS NULL OR received_at < :until)
 ORDER BY received_at DESC, consumer, event_id LIMIT :limit
