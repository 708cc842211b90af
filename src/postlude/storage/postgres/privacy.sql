-- Keys of data subjects, and sealing all over again.

-- name: subject_keys
SELECT subject, key_id, key, shredded_at IS NOT NULL FROM postlude.postlude_subject WHERE subject = ANY(:subjects::text[])

-- name: add_subject_keys
-- A tombstone of an erasure may be there already; a key never gives way to another, and a shredded subject gets none.
INSERT INTO postlude.postlude_subject AS s (subject, key_id, key)
SELECT r.subject, r.key_id, r.key
  FROM unnest(:subjects::text[], :key_ids::text[], :keys::bytea[]) AS r (subject, key_id, key) ORDER BY r.subject
ON CONFLICT (subject) DO UPDATE SET key_id = excluded.key_id, key = excluded.key
 WHERE s.key IS NULL AND s.shredded_at IS NULL

-- name: shred_subject
INSERT INTO postlude.postlude_subject AS s (subject, shredded_at) VALUES (:subject, clock_timestamp())
ON CONFLICT (subject) DO UPDATE SET key_id = NULL, key = NULL, shredded_at = excluded.shredded_at
 WHERE s.shredded_at IS NULL
RETURNING subject

-- name: subject_keys_of_others
-- Keys that another key of the ring has wrapped.
SELECT subject, key_id, key, false FROM postlude.postlude_subject
 WHERE subject > :after AND key IS NOT NULL AND key_id <> :key_id ORDER BY subject LIMIT :limit

-- name: rewrap_subject_keys
WITH changed AS (
    UPDATE postlude.postlude_subject s SET key_id = r.key_id, key = r.key
      FROM unnest(:subjects::text[], :key_ids::text[], :keys::bytea[], :was::bytea[]) AS r (subject, key_id, key, was)
     WHERE s.subject = r.subject AND s.key = r.was
    RETURNING s.subject
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, detail, trace_id)
    SELECT gen_random_uuid(), :actor, :action, :target, :reason,
           :detail::jsonb || jsonb_build_object('keys', count(*)), :trace_id
      FROM changed HAVING count(*) > 0
)
SELECT count(*) FROM changed

-- name: count_sealed
-- What a key of the ring other than the wanted one has sealed. :sealed and :wanted are how the header begins.
SELECT count(*) FROM postlude.postlude_event e
 WHERE starts_with(e.headers ->> 'postlude-sealed', :sealed)
   AND NOT starts_with(e.headers ->> 'postlude-sealed', :wanted)

-- name: sealed_page
SELECT e.event_id, e.type, e.version, e.source, e.entity, e.key, e.topic, e.content_type, e.payload,
       e.headers::text AS headers, e.correlation_id, e.causation_id, e.saga_id, e.created_at
  FROM postlude.postlude_event e
 WHERE e.event_id > :after AND starts_with(e.headers ->> 'postlude-sealed', :sealed)
   AND NOT starts_with(e.headers ->> 'postlude-sealed', :wanted)
 ORDER BY e.event_id LIMIT :limit

-- name: reseal
-- The only statement that gives an event other bytes; its content stays the same.
WITH page AS MATERIALIZED (
    SELECT id FROM postlude.postlude_operation
     WHERE id = :operation::uuid AND status = 'running' AND cursor = :was::text FOR UPDATE
), changed AS (
    UPDATE postlude.postlude_event e
       SET payload = r.payload, digest = r.digest,
           headers = e.headers || jsonb_build_object('postlude-sealed', r.header)
      FROM unnest(:event_ids::uuid[], :payloads::bytea[], :digests::bytea[], :headers::text[], :olds::text[])
           AS r (event_id, payload, digest, header, old)
     WHERE e.event_id = r.event_id AND e.headers ->> 'postlude-sealed' = r.old AND EXISTS (SELECT 1 FROM page)
    RETURNING e.event_id
), advanced AS (
    UPDATE postlude.postlude_operation o
       SET cursor = :cursor::text, done = o.done + (SELECT count(*) FROM changed), updated_at = clock_timestamp()
      FROM page WHERE o.id = page.id
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, trace_id, detail)
    SELECT gen_random_uuid(), :actor, 'reseal', page.id::text, :reason, :trace_id,
           jsonb_build_object('events', (SELECT count(*) FROM changed), 'key', :key::text)
      FROM page
)
SELECT event_id FROM changed UNION ALL SELECT NULL FROM page
