-- Sagas and their history.
--
-- The body is the whole instance; the other columns are what is looked for. History comes as arrays of text, for the
-- reason that append_2 gives.

-- name: saga
SELECT body FROM postlude.postlude_saga WHERE id = :id::uuid

-- name: saga_locked
SELECT body FROM postlude.postlude_saga WHERE id = :id::uuid FOR UPDATE

-- name: newest_saga
SELECT body FROM postlude.postlude_saga WHERE name = :name AND process_id = :process_id
 ORDER BY generation DESC LIMIT 1

-- name: newest_saga_locked
SELECT body FROM postlude.postlude_saga WHERE name = :name AND process_id = :process_id
 ORDER BY generation DESC LIMIT 1 FOR UPDATE

-- name: start_saga
-- No row: it is there already, or another run of its process has not ended.
WITH saved AS (
    INSERT INTO postlude.postlude_saga (id, name, process_id, generation, status, version, hash, step, error, body,
                                        created_at, updated_at, ended_at)
    VALUES (:id, :name, :process_id, :generation, :status, :version, :hash, :step, :error, :body,
            :created_at, :updated_at, :ended_at)
    ON CONFLICT DO NOTHING
    RETURNING id, version
), noted AS (
    INSERT INTO postlude.postlude_saga_step (saga_id, version, at, what, step, attempt, detail)
    SELECT saved.id, saved.version, h.at::timestamptz, h.what, h.step, h.attempt::integer, h.detail
      FROM saved, unnest(:ats::text[], :whats::text[], :steps::text[], :attempts::text[], :details::text[])
                  WITH ORDINALITY AS h (at, what, step, attempt, detail, position)
     ORDER BY h.position
)
SELECT id FROM saved

-- name: start_saga_2
-- Both at once, which is the usual case: its first work has one destination.
WITH saved AS (
    INSERT INTO postlude.postlude_saga (id, name, process_id, generation, status, version, hash, step, error, body,
                                        created_at, updated_at, ended_at)
    VALUES (:id, :name, :process_id, :generation, :status, :version, :hash, :step, :error, :body,
            :created_at, :updated_at, :ended_at)
    ON CONFLICT DO NOTHING
    RETURNING id, version
), noted AS (
    INSERT INTO postlude.postlude_saga_step (saga_id, version, at, what, step, attempt, detail)
    SELECT saved.id, saved.version, h.at::timestamptz, h.what, h.step, h.attempt::integer, h.detail
      FROM saved, unnest(:ats::text[], :whats::text[], :steps::text[], :attempts::text[], :details::text[])
                  WITH ORDINALITY AS h (at, what, step, attempt, detail, position)
     ORDER BY h.position
), event AS (
    INSERT INTO postlude.postlude_event (event_id, type, version, source, entity, key, topic, content_type, payload,
                                         digest, headers, correlation_id, causation_id, saga_id, subjects)
    SELECT :event_id::uuid, :type::text, :event_version::smallint, :source::text, :entity::text, :key::text,
           :topic::text, :content_type::text, :payload::bytea, :digest::bytea, :headers::jsonb, :correlation_id::text,
           :causation_id::uuid, :saga_id::uuid, :subjects::text[]
      FROM saved
    RETURNING event_id, created_at
), delivery AS (
    INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts,
                                            available_at)
    SELECT event_id, :destination::text, :lane::smallint, :delivery_key::text, :priority::smallint,
           :delivery_status::text, :max_attempts::integer, coalesce(:available_at::timestamptz, clock_timestamp())
      FROM event
    RETURNING seq
)
SELECT saved.id, delivery.seq, event.created_at FROM saved, event, delivery

-- name: write_saga
-- No row: somebody else was faster.
WITH saved AS (
    UPDATE postlude.postlude_saga
       SET status = :status, version = :version, hash = :hash, step = :step, error = :error, body = :body,
           updated_at = :updated_at, ended_at = :ended_at
     WHERE id = :id AND version = :was
    RETURNING id, version
), noted AS (
    INSERT INTO postlude.postlude_saga_step (saga_id, version, at, what, step, attempt, detail)
    SELECT saved.id, saved.version, h.at::timestamptz, h.what, h.step, h.attempt::integer, h.detail
      FROM saved, unnest(:ats::text[], :whats::text[], :steps::text[], :attempts::text[], :details::text[])
                  WITH ORDINALITY AS h (at, what, step, attempt, detail, position)
     ORDER BY h.position
)
SELECT id FROM saved

-- name: write_saga_2
-- Both at once, likewise.
WITH saved AS (
    UPDATE postlude.postlude_saga
       SET status = :status, version = :version, hash = :hash, step = :step, error = :error, body = :body,
           updated_at = :updated_at, ended_at = :ended_at
     WHERE id = :id AND version = :was
    RETURNING id, version
), noted AS (
    INSERT INTO postlude.postlude_saga_step (saga_id, version, at, what, step, attempt, detail)
    SELECT saved.id, saved.version, h.at::timestamptz, h.what, h.step, h.attempt::integer, h.detail
      FROM saved, unnest(:ats::text[], :whats::text[], :steps::text[], :attempts::text[], :details::text[])
                  WITH ORDINALITY AS h (at, what, step, attempt, detail, position)
     ORDER BY h.position
), event AS (
    INSERT INTO postlude.postlude_event (event_id, type, version, source, entity, key, topic, content_type, payload,
                                         digest, headers, correlation_id, causation_id, saga_id, subjects)
    SELECT :event_id::uuid, :type::text, :event_version::smallint, :source::text, :entity::text, :key::text,
           :topic::text, :content_type::text, :payload::bytea, :digest::bytea, :headers::jsonb, :correlation_id::text,
           :causation_id::uuid, :saga_id::uuid, :subjects::text[]
      FROM saved
    RETURNING event_id, created_at
), delivery AS (
    INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts,
                                            available_at)
    SELECT event_id, :destination::text, :lane::smallint, :delivery_key::text, :priority::smallint,
           :delivery_status::text, :max_attempts::integer, coalesce(:available_at::timestamptz, clock_timestamp())
      FROM event
    RETURNING seq
)
SELECT saved.id, delivery.seq, event.created_at FROM saved, event, delivery

-- name: note_saga
-- The lock keeps retention away until this commits: history without its saga would stay for ever.
WITH kept AS (SELECT id FROM postlude.postlude_saga WHERE id = :id::uuid FOR KEY SHARE)
INSERT INTO postlude.postlude_saga_step (saga_id, version, at, what, step, attempt, detail)
SELECT kept.id, :version::integer, h.at::timestamptz, h.what, h.step, h.attempt::integer, h.detail
  FROM kept, unnest(:ats::text[], :whats::text[], :steps::text[], :attempts::text[], :details::text[])
             WITH ORDINALITY AS h (at, what, step, attempt, detail, position)
 ORDER BY h.position

-- name: cancel_deliveries
-- Deadlines that nobody waits for any more. Whoever cancels holds the saga's row, and whoever delivers one waits for that
-- row: what is being delivered is skipped, and ignored by the saga.
WITH target AS MATERIALIZED (
    SELECT d.seq FROM postlude.postlude_delivery d
     WHERE d.event_id = ANY(:event_ids::text[]::uuid[]) AND d.destination = :destination AND d.status = 'scheduled'
     ORDER BY d.seq FOR UPDATE OF d SKIP LOCKED
), gone AS (
    DELETE FROM postlude.postlude_delivery d USING target WHERE d.seq = target.seq
    RETURNING d.event_id, d.destination, d.attempts, d.seq
), receipt AS (
    INSERT INTO postlude.postlude_receipt (event_id, destination, outcome, attempts, seq, actor)
    SELECT event_id, destination, 'discarded', attempts, seq, 'saga' FROM gone
)
SELECT count(*) FROM gone

-- name: bury_delivery
-- A dead letter in the transaction that tells its saga; the same fence as settle_handled.
WITH mine AS (
    SELECT d.seq FROM postlude.postlude_delivery d
      JOIN postlude.postlude_lane l ON l.destination = d.destination AND l.lane = d.lane
       AND l.owner = :worker AND l.epoch = :epoch
     WHERE d.seq = :seq AND d.destination = :destination AND d.status = :status AND d.attempts = :attempts
       FOR UPDATE OF d SKIP LOCKED
)
UPDATE postlude.postlude_delivery d
   SET status = 'dead', blocks = false, attempts = d.attempts + (d.status <> 'claimed')::integer, starts = 0,
       token = NULL, available_at = clock_timestamp(), last_error = :error
  FROM mine WHERE d.seq = mine.seq
RETURNING d.seq

-- name: audit_saga
-- Joins the transaction that did it.
INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, detail, trace_id, old_status, new_status)
VALUES (gen_random_uuid(), :actor, :action, :target, :reason, :detail::text::jsonb, :trace_id, :old_status, :new_status)

-- name: list_sagas
-- Newest first. By the time they began, which never changes: what goes on meanwhile moves no row to another page.
SELECT id, name, process_id, generation, status, version, hash, step, error, created_at, updated_at, ended_at
  FROM postlude.postlude_saga
 WHERE (:name::text IS NULL OR name = :name) AND (:status::text IS NULL OR status = :status)
   AND (:process_id::text IS NULL OR process_id = :process_id)
   AND (:since::timestamptz IS NULL OR created_at >= :since) AND (:until::timestamptz IS NULL OR created_at < :until)
   AND (:after_at::timestamptz IS NULL OR (created_at, id) < (:after_at, :after_id::uuid))
 ORDER BY created_at DESC, id DESC LIMIT :limit

-- name: saga_history
-- The last lines, oldest first.
SELECT at, what, step, attempt, detail
  FROM (SELECT number, at, what, step, attempt, detail FROM postlude.postlude_saga_step
         WHERE saga_id = :id::uuid ORDER BY number DESC LIMIT :limit) AS last
 ORDER BY number

-- name: count_sagas
SELECT name, status, count(*) AS count FROM postlude.postlude_saga GROUP BY name, status ORDER BY name, status

-- name: live_sagas
SELECT body FROM postlude.postlude_saga
 WHERE name = :name AND process_id > :after AND status IN ('running', 'compensating', 'stuck')
 ORDER BY process_id LIMIT :limit

-- name: stalled_sagas
-- Nothing is on its way that could move them on; a dead letter could not.
SELECT s.body FROM postlude.postlude_saga s
 WHERE s.status IN ('running', 'compensating')
   AND s.updated_at < statement_timestamp() + :ahead::interval - make_interval(secs => :older_than)
   AND NOT EXISTS (SELECT 1 FROM postlude.postlude_event e JOIN postlude.postlude_delivery d ON d.event_id = e.event_id
                    WHERE e.saga_id = s.id AND d.status <> 'dead')
 ORDER BY s.updated_at, s.id LIMIT :limit

-- name: prune_sagas
-- Ended ones with their history.
WITH old AS MATERIALIZED (
    SELECT id FROM postlude.postlude_saga
     WHERE ended_at < clock_timestamp() + :ahead::interval - make_interval(hours => :hours)
     ORDER BY ended_at LIMIT :limit FOR UPDATE SKIP LOCKED
), history AS (
    DELETE FROM postlude.postlude_saga_step h USING old WHERE h.saga_id = old.id
), subjects AS (
    DELETE FROM postlude.postlude_saga_subject m USING old WHERE m.saga_id = old.id
), gone AS (
    DELETE FROM postlude.postlude_saga s USING old WHERE s.id = old.id RETURNING 1
)
SELECT count(*) FROM gone
