-- Keys of data subjects, and sealing all over again.

-- name: subject_keys
SELECT subject, key_id, key, shredded_at IS NOT NULL FROM postlude_subject
 WHERE subject IN (SELECT value FROM json_each(:subjects))

-- name: add_subject_keys
-- A tombstone of an erasure may be there already; a key never gives way to another, and a shredded subject gets none.
INSERT INTO postlude_subject (subject, key_id, key) VALUES (:subject, :key_id, :key)
ON CONFLICT (subject) DO UPDATE SET key_id = excluded.key_id, key = excluded.key
 WHERE postlude_subject.key IS NULL AND postlude_subject.shredded_at IS NULL

-- name: shred_subject
INSERT INTO postlude_subject (subject, shredded_at) VALUES (:subject, :now)
ON CONFLICT (subject) DO UPDATE SET key_id = NULL, key = NULL, shredded_at = excluded.shredded_at
 WHERE postlude_subject.shredded_at IS NULL
RETURNING subject

-- name: subject_keys_of_others
-- Keys that another key of the ring has wrapped.
SELECT subject, key_id, key, 0 FROM postlude_subject
 WHERE subject > :after AND key IS NOT NULL AND key_id <> :key_id ORDER BY subject LIMIT :limit

-- name: rewrap_subject_keys
UPDATE postlude_subject SET key_id = :key_id, key = :key WHERE subject = :subject AND key = :was
RETURNING subject

-- name: count_sealed
-- What a key of the ring other than the wanted one has sealed. :sealed and :wanted are how the header begins.
SELECT count(*) FROM (
    SELECT CASE WHEN json_valid(headers) THEN headers ->> '$."postlude-sealed"' END AS said FROM postlude_event)
 WHERE substr(said, 1, length(:sealed)) = :sealed AND substr(said, 1, length(:wanted)) <> :wanted

-- name: sealed_page
SELECT position, event_id, type, version, source, entity, key, topic, content_type, payload, headers, correlation_id,
       causation_id, saga_id, created_at
  FROM (SELECT rowid AS position, *, CASE WHEN json_valid(headers) THEN headers ->> '$."postlude-sealed"' END AS said
          FROM postlude_event)
 WHERE position > :after AND substr(said, 1, length(:sealed)) = :sealed AND substr(said, 1, length(:wanted)) <> :wanted
 ORDER BY position LIMIT :limit

-- name: reseal
-- The only statement that gives an event other bytes; its content stays the same.
UPDATE postlude_event
   SET payload = :payload, digest = :digest, headers = json_set(headers, '$."postlude-sealed"', :header)
 WHERE event_id = :event_id AND headers ->> '$."postlude-sealed"' = :old
RETURNING event_id
