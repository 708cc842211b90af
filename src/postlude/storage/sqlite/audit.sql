-- The audit trail.

-- name: audit
INSERT INTO postlude_audit (id, at, actor, action, target, reason, detail, trace_id, old_status, new_status)
VALUES (randomblob(16), :now, :actor, :action, :target, :reason, :detail, :trace_id, :old_status, :new_status)

-- name: installation_key
SELECT content FROM postlude_key WHERE name = :name

-- ---------------------------------------------------------------- the chain
-- Linking is apart from writing: records come in any order, links under the lock of the head, which is taken last.

-- name: audit_last
-- When the last linked record was written, if it was not in the future; nothing without a link.
SELECT min(coalesce(a.at, :now), :now)
  FROM (SELECT audit_id FROM postlude_audit_link ORDER BY position DESC LIMIT 1) l
  LEFT JOIN postlude_audit a ON a.id = l.audit_id

-- name: audit_recent
SELECT a.id FROM postlude_audit a
 WHERE a.at >= :since
   AND NOT EXISTS (SELECT 1 FROM postlude_audit_link l WHERE l.audit_id = a.id)
 ORDER BY a.at, a.id LIMIT :limit

-- name: audit_look
-- A bounded stretch of all history, and which of its records have a link.
SELECT a.at, a.id, EXISTS (SELECT 1 FROM postlude_audit_link l WHERE l.audit_id = a.id) AS is_linked,
       a.at <= :now - :older_than AS is_old
  FROM (SELECT at, id FROM postlude_audit
         WHERE (at, id) > (:at, :id) ORDER BY at, id LIMIT :limit) a
 ORDER BY a.at, a.id

-- name: audit_lock_head
-- The transaction is IMMEDIATE: nobody else writes.
SELECT value FROM postlude_meta WHERE name = 'audit_head'

-- name: audit_last_link
SELECT position, hash FROM postlude_audit_link ORDER BY position DESC LIMIT 1

-- name: audit_to_link
SELECT a.id, a.at, a.actor, a.action, a.target, a.reason, a.detail, a.trace_id, a.old_status, a.new_status
  FROM postlude_audit a
 WHERE a.id IN (SELECT substr(:ids, value, 16) FROM json_each(:places))
   AND NOT EXISTS (SELECT 1 FROM postlude_audit_link l WHERE l.audit_id = a.id)
 ORDER BY a.at, a.id

-- name: audit_add_links
-- [position, id at, hashes at].
INSERT INTO postlude_audit_link (position, audit_id, row_hash, hash)
SELECT r.value ->> 0, substr(:ids, r.value ->> 1, 16), substr(:rows, r.value ->> 2, 32), substr(:hashes, r.value ->> 2, 32)
  FROM json_each(:links) AS r

-- name: audit_set_head
UPDATE postlude_meta SET value = :head WHERE name = 'audit_head'

-- name: audit_chain
SELECT l.position, l.audit_id, coalesce(l.row_hash, x'') AS row_hash, l.hash, a.id, a.at, a.actor, a.action, a.target,
       a.reason, a.detail, a.trace_id, a.old_status, a.new_status
  FROM (SELECT position, audit_id, row_hash, hash FROM postlude_audit_link
         WHERE position > :after ORDER BY position LIMIT :limit) l
  LEFT JOIN postlude_audit a ON a.id = l.audit_id
 ORDER BY l.position

-- name: audit_end
SELECT (SELECT value FROM postlude_meta WHERE name = 'audit_head'),
       (SELECT coalesce(max(position), 0) FROM postlude_audit_link)

-- name: audit_records
SELECT a.id, a.at, a.actor, a.action, a.target, a.reason, a.detail, a.trace_id, a.old_status, a.new_status,
       l.position, l.hash
  FROM (SELECT * FROM postlude_audit
         WHERE (:target IS NULL OR target = :target) AND (:actor IS NULL OR actor = :actor)
           AND (:action IS NULL OR action = :action)
           AND (:since IS NULL OR at >= :since) AND (:until IS NULL OR at < :until)
           AND (:after IS NULL OR (at, id) < (SELECT at, id FROM postlude_audit WHERE id = :after))
         ORDER BY at DESC, id DESC LIMIT :limit) a
  LEFT JOIN postlude_audit_link l ON l.audit_id = a.id
 ORDER BY a.at DESC, a.id DESC

-- name: audit_shipped
SELECT value FROM postlude_meta WHERE name = :name

-- name: audit_set_shipped
INSERT INTO postlude_meta (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
