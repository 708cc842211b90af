-- Events with their deliveries.

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
