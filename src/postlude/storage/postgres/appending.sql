-- Events with their deliveries.

-- name: append
-- One event with one destination, which is the usual case: no arrays to pack and unpack. Gives the id back when it was new.
WITH event AS (
    INSERT INTO postlude.postlude_event (event_id, type, version, source, entity, key, topic, content_type, payload,
                                         digest, headers, correlation_id, causation_id, saga_id, subjects)
    VALUES (:event_id, :type, :version, :source, :entity, :key, :topic, :content_type, :payload,
            :digest, :headers::jsonb, :correlation_id, :causation_id, :saga_id, :subjects::text[])
    ON CONFLICT DO NOTHING
    RETURNING event_id
)
INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts, available_at)
SELECT event_id, :destination, :lane, :delivery_key, :priority::smallint, :status, :max_attempts::integer,
       coalesce(:available_at::timestamptz, clock_timestamp())
  FROM event
RETURNING event_id

-- name: append_2
-- The same with any number of destinations. Lanes come as text: asyncpg asks the server about most other
-- arrays first, three round trips on every new connection.
WITH event AS (
    INSERT INTO postlude.postlude_event (event_id, type, version, source, entity, key, topic, content_type, payload,
                                         digest, headers, correlation_id, causation_id, saga_id, subjects)
    VALUES (:event_id, :type, :version, :source, :entity, :key, :topic, :content_type, :payload,
            :digest, :headers::jsonb, :correlation_id, :causation_id, :saga_id, :subjects::text[])
    ON CONFLICT DO NOTHING
    RETURNING event_id
), delivery AS (
    INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts, available_at)
    SELECT event.event_id, d.destination, d.lane::smallint, d.key, :priority::smallint, :status::text, :max_attempts::integer,
           coalesce(:available_at::timestamptz, clock_timestamp())
      FROM event, unnest(:destinations::text[], :lanes::text[], :keys::text[])
                  WITH ORDINALITY AS d (destination, lane, key, position)
     ORDER BY d.position
)
SELECT event_id FROM event

-- name: append_many
-- Many events in the order given; the ids that were new come back.
WITH given AS (
    SELECT * FROM unnest(:event_ids::uuid[], :types::text[], :versions::smallint[], :sources::text[], :entities::text[],
                         :keys::text[], :topics::text[], :content_types::text[], :payloads::bytea[], :digests::bytea[],
                         :headers::text[], :correlation_ids::text[], :causation_ids::uuid[], :saga_ids::uuid[],
                         :subjects::text[])
        AS g (event_id, type, version, source, entity, key, topic, content_type, payload, digest,
              headers, correlation_id, causation_id, saga_id, subjects)
), event AS (
    INSERT INTO postlude.postlude_event (event_id, type, version, source, entity, key, topic, content_type, payload,
                                         digest, headers, correlation_id, causation_id, saga_id, subjects)
    SELECT event_id, type, version, source, entity, key, topic, content_type, payload,
           digest, headers::jsonb, correlation_id, causation_id, saga_id,
           (SELECT array_agg(s) FROM jsonb_array_elements_text(subjects::jsonb) AS s)
      FROM given
    ON CONFLICT DO NOTHING
    RETURNING event_id
), delivery AS (
    INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts, available_at)
    SELECT d.event_id, d.destination, d.lane, d.key, d.priority, d.status, d.max_attempts,
           coalesce(d.available_at, clock_timestamp())
      FROM unnest(:of_events::uuid[], :destinations::text[], :lanes::smallint[], :delivery_keys::text[],
                  :priorities::smallint[], :statuses::text[], :max_attempts::integer[], :available_ats::timestamptz[])
           WITH ORDINALITY AS d (event_id, destination, lane, key, priority, status, max_attempts, available_at, position)
      JOIN event USING (event_id)
     ORDER BY d.position
)
SELECT event_id FROM event

-- name: installed_lanes
-- The number of lanes, fixed when the schema was installed.
SELECT value FROM postlude.postlude_meta WHERE name = 'lanes'

-- name: digests
-- What is stored under ids that were not new.
SELECT event_id, digest FROM postlude.postlude_event WHERE event_id = ANY(:event_ids::uuid[])
