-- The audit trail.

-- name: audit
INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, detail, trace_id, old_status, new_status)
VALUES (gen_random_uuid(), :actor, :action, :target, :reason, :detail::jsonb, :trace_id, :old_status, :new_status)

-- name: installation_key
SELECT content FROM postlude.postlude_key WHERE name = :name

-- ---------------------------------------------------------------- the chain
-- Linking is apart from writing: records come in any order, links under the lock of the head, which is taken last.

-- name: audit_last
-- When the last linked record was written, if it was not in the future; nothing without a link.
SELECT least(coalesce(a.at, clock_timestamp()), clock_timestamp() + :ahead::interval)
  FROM (SELECT audit_id FROM postlude.postlude_audit_link ORDER BY position DESC LIMIT 1) l
  LEFT JOIN postlude.postlude_audit a ON a.id = l.audit_id

-- name: audit_recent
-- LATERAL with a LIMIT, here and below: what the planner may turn around it may also hash, which reads every link.
SELECT a.id FROM postlude.postlude_audit a
  LEFT JOIN LATERAL (SELECT audit_id FROM postlude.postlude_audit_link WHERE audit_id = a.id LIMIT 1) l ON true
 WHERE a.at >= :since AND l.audit_id IS NULL
 ORDER BY a.at, a.id LIMIT :limit

-- name: audit_look
-- A bounded stretch of all history, and which of its records have a link.
SELECT a.at, a.id, l.audit_id IS NOT NULL AS is_linked,
       a.at <= clock_timestamp() + :ahead::interval - :older_than::interval AS is_old
  FROM (SELECT at, id FROM postlude.postlude_audit
         WHERE (at, id) > (:at, :id) ORDER BY at, id LIMIT :limit) a
  LEFT JOIN LATERAL (SELECT audit_id FROM postlude.postlude_audit_link WHERE audit_id = a.id LIMIT 1) l ON true
 ORDER BY a.at, a.id

-- name: audit_lock_head
SELECT value FROM postlude.postlude_meta WHERE name = 'audit_head' FOR UPDATE

-- name: audit_last_link
SELECT position, hash FROM postlude.postlude_audit_link ORDER BY position DESC LIMIT 1

-- name: audit_to_link
SELECT a.id, a.at, a.actor, a.action, a.target, a.reason, a.detail::text AS detail, a.trace_id, a.old_status, a.new_status
  FROM unnest(:ids::uuid[]) AS w (id)
  JOIN LATERAL (SELECT * FROM postlude.postlude_audit WHERE id = w.id LIMIT 1) a ON true
  LEFT JOIN LATERAL (SELECT audit_id FROM postlude.postlude_audit_link WHERE audit_id = a.id LIMIT 1) l ON true
 WHERE l.audit_id IS NULL
 ORDER BY a.at, a.id

-- name: audit_add_links
INSERT INTO postlude.postlude_audit_link (position, audit_id, row_hash, hash) OVERRIDING SYSTEM VALUE
SELECT * FROM unnest(:positions::bigint[], :ids::uuid[], :rows::bytea[], :hashes::bytea[])

-- name: audit_set_head
UPDATE postlude.postlude_meta SET value = :head WHERE name = 'audit_head'

-- name: audit_chain
SELECT l.position, l.audit_id, coalesce(l.row_hash, '') AS row_hash, l.hash, a.id, a.at, a.actor, a.action, a.target,
       a.reason, a.detail::text AS detail, a.trace_id, a.old_status, a.new_status
  FROM (SELECT position, audit_id, row_hash, hash FROM postlude.postlude_audit_link
         WHERE position > :after ORDER BY position LIMIT :limit) l
  LEFT JOIN LATERAL (SELECT * FROM postlude.postlude_audit WHERE id = l.audit_id LIMIT 1) a ON true
 ORDER BY l.position

-- name: audit_end
SELECT (SELECT value FROM postlude.postlude_meta WHERE name = 'audit_head'),
       (SELECT coalesce(max(position), 0) FROM postlude.postlude_audit_link)

-- name: audit_records
SELECT a.id, a.at, a.actor, a.action, a.target, a.reason, a.detail::text AS detail, a.trace_id, a.old_status, a.new_status,
       l.position, l.hash
  FROM (SELECT * FROM postlude.postlude_audit
         WHERE (:target::text IS NULL OR target = :target) AND (:actor::text IS NULL OR actor = :actor)
           AND (:action::text IS NULL OR action = :action)
           AND (:since::timestamptz IS NULL OR at >= :since) AND (:until::timestamptz IS NULL OR at < :until)
           AND (:after::uuid IS NULL OR (at, id) < (SELECT at, id FROM postlude.postlude_audit WHERE id = :after))
         ORDER BY at DESC, id DESC LIMIT :limit) a
  LEFT JOIN LATERAL (SELECT position, hash FROM postlude.postlude_audit_link WHERE audit_id = a.id LIMIT 1) l ON true
 ORDER BY a.at DESC, a.id DESC

-- name: audit_shipped
SELECT value FROM postlude.postlude_meta WHERE name = :name

-- name: audit_set_shipped
INSERT INTO postlude.postlude_meta (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
