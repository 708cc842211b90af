-- What an operator does to deliveries and destinations.
--
-- As a page of an operation (:operation is not null) an action changes something only if the operation still stands
-- at :was; then it stands at :cursor, in the same statement, and a row without an event says so. :seqs and :status say
-- which deliveries were meant.

-- name: requeue
-- Dead letters get a fresh budget; a rectification cannot, for its corrections are gone,
-- nor what is redacted. The lock on the event keeps retention and redaction away until this commits.
WITH page AS MATERIALIZED (
    SELECT id FROM postlude.postlude_operation
     WHERE id = :operation::uuid AND status = 'running' AND cursor = :was::text FOR UPDATE
), kept AS (
    SELECT event_id FROM postlude.postlude_event
     WHERE event_id = ANY(:event_ids::uuid[]) AND headers ->> 'postlude-redacted' IS NULL FOR KEY SHARE
), target AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.destination, d.attempts, d.last_error FROM postlude.postlude_delivery d
     WHERE d.event_id IN (SELECT event_id FROM kept) AND d.status = 'dead'
       AND NOT EXISTS (SELECT 1 FROM postlude.postlude_group g WHERE g.id = d.group_id AND g.operation = 'rectify')
       AND (:destination::text IS NULL OR d.destination = :destination)
       AND (:status::text IS NULL OR d.status = :status) AND (:seqs::bigint[] IS NULL OR d.seq = ANY(:seqs))
       AND (:operation::uuid IS NULL OR EXISTS (SELECT 1 FROM page))
     ORDER BY d.seq FOR UPDATE OF d
), advanced AS (
    UPDATE postlude.postlude_operation o
       SET cursor = :cursor::text, done = o.done + (SELECT count(*) FROM target), updated_at = clock_timestamp()
      FROM page WHERE o.id = page.id
), changed AS (
    UPDATE postlude.postlude_delivery d
       SET status = 'failed', blocks = d.key IS NOT NULL, attempts = 0, starts = 0, available_at = clock_timestamp()
      FROM target WHERE d.seq = target.seq
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, trace_id, old_status, new_status, detail)
    SELECT gen_random_uuid(), :actor, 'requeue', event_id::text, :reason, :trace_id, 'dead', 'failed',
           jsonb_build_object('destination', destination, 'prior_attempts', attempts)
           || CASE WHEN last_error IS NULL THEN '{}'
                   ELSE jsonb_build_object('prior_error', coalesce(last_error::jsonb ->> 'kind', 'Unknown')) END
           || CASE WHEN :operation::uuid IS NULL THEN '{}' ELSE jsonb_build_object('operation', :operation::uuid) END
      FROM target
)
SELECT event_id, seq FROM target UNION ALL SELECT NULL, 0 FROM page ORDER BY seq

-- name: discard
-- Given up by an operator: the receipt says so and by whom.
WITH page AS MATERIALIZED (
    SELECT id FROM postlude.postlude_operation
     WHERE id = :operation::uuid AND status = 'running' AND cursor = :was::text FOR UPDATE
), target AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.destination, d.status, d.attempts, d.last_error FROM postlude.postlude_delivery d
     WHERE d.event_id = ANY(:event_ids::uuid[]) AND d.status IN ('pending', 'failed', 'scheduled', 'dead')
       AND (:destination::text IS NULL OR d.destination = :destination)
       AND (:status::text IS NULL OR d.status = :status) AND (:seqs::bigint[] IS NULL OR d.seq = ANY(:seqs))
       AND (:operation::uuid IS NULL OR EXISTS (SELECT 1 FROM page))
     ORDER BY d.seq FOR UPDATE OF d
), advanced AS (
    UPDATE postlude.postlude_operation o
       SET cursor = :cursor::text, done = o.done + (SELECT count(*) FROM target), updated_at = clock_timestamp()
      FROM page WHERE o.id = page.id
), changed AS (
    DELETE FROM postlude.postlude_delivery d USING target WHERE d.seq = target.seq
), receipt AS (
    INSERT INTO postlude.postlude_receipt (event_id, destination, outcome, attempts, seq, actor)
    SELECT event_id, destination, 'discarded', attempts, seq, :actor FROM target
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, trace_id, old_status, new_status, detail)
    SELECT gen_random_uuid(), :actor, 'discard', event_id::text, :reason, :trace_id, status, 'discarded',
           jsonb_build_object('destination', destination, 'status', status, 'prior_attempts', attempts)
           || CASE WHEN :operation::uuid IS NULL THEN '{}' ELSE jsonb_build_object('operation', :operation::uuid) END
      FROM target
)
SELECT event_id, seq FROM target UNION ALL SELECT NULL, 0 FROM page ORDER BY seq

-- name: bury
-- Made a dead letter by an operator.
WITH page AS MATERIALIZED (
    SELECT id FROM postlude.postlude_operation
     WHERE id = :operation::uuid AND status = 'running' AND cursor = :was::text FOR UPDATE
), target AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.destination, d.status, d.attempts FROM postlude.postlude_delivery d
     WHERE d.event_id = ANY(:event_ids::uuid[]) AND d.status IN ('pending', 'failed', 'scheduled')
       AND (:destination::text IS NULL OR d.destination = :destination)
       AND (:status::text IS NULL OR d.status = :status) AND (:seqs::bigint[] IS NULL OR d.seq = ANY(:seqs))
       AND (:operation::uuid IS NULL OR EXISTS (SELECT 1 FROM page))
     ORDER BY d.seq FOR UPDATE OF d
), advanced AS (
    UPDATE postlude.postlude_operation o
       SET cursor = :cursor::text, done = o.done + (SELECT count(*) FROM target), updated_at = clock_timestamp()
      FROM page WHERE o.id = page.id
), changed AS (
    UPDATE postlude.postlude_delivery d SET status = 'dead', blocks = false, last_error = :error
      FROM target WHERE d.seq = target.seq
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, trace_id, old_status, new_status, detail)
    SELECT gen_random_uuid(), :actor, 'bury', event_id::text, :reason, :trace_id, status, 'dead',
           jsonb_build_object('destination', destination, 'status', status, 'prior_attempts', attempts)
           || CASE WHEN :operation::uuid IS NULL THEN '{}' ELSE jsonb_build_object('operation', :operation::uuid) END
      FROM target
)
SELECT event_id, seq FROM target UNION ALL SELECT NULL, 0 FROM page ORDER BY seq

-- name: replay
-- Stored events go to one destination again, as new work; redacted ones never.
WITH page AS MATERIALIZED (
    SELECT id FROM postlude.postlude_operation
     WHERE id = :operation::uuid AND status = 'running' AND cursor = :was::text FOR UPDATE
), kept AS (
    SELECT event_id FROM postlude.postlude_event
     WHERE event_id = ANY(:event_ids::uuid[]) AND headers ->> 'postlude-redacted' IS NULL FOR KEY SHARE
), added AS (
    INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key)
    SELECT r.event_id, r.destination, r.lane, r.key
      FROM unnest(:event_ids::uuid[], :destinations::text[], :lanes::smallint[], :keys::text[])
           WITH ORDINALITY AS r (event_id, destination, lane, key, position)
      JOIN kept USING (event_id)
     WHERE :operation::uuid IS NULL OR EXISTS (SELECT 1 FROM page)
     ORDER BY r.position
    ON CONFLICT DO NOTHING
    RETURNING event_id, destination, seq
), advanced AS (
    UPDATE postlude.postlude_operation o
       SET cursor = :cursor::text, done = o.done + (SELECT count(*) FROM added), updated_at = clock_timestamp()
      FROM page WHERE o.id = page.id
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, trace_id, new_status, detail)
    SELECT gen_random_uuid(), :actor, 'replay', event_id::text, :reason, :trace_id, 'pending',
           jsonb_build_object('destination', destination)
           || CASE WHEN :operation::uuid IS NULL THEN '{}' ELSE jsonb_build_object('operation', :operation::uuid) END
      FROM added
)
SELECT event_id, seq FROM added UNION ALL SELECT NULL, 0 FROM page ORDER BY seq

-- name: pause
WITH changed AS (
    UPDATE postlude.postlude_destination SET paused_at = clock_timestamp(), paused_by = :actor, reason = :reason
     WHERE name = :destination AND paused_at IS NULL RETURNING name
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, trace_id)
    SELECT gen_random_uuid(), :actor, 'pause', name, :reason, :trace_id FROM changed
)
SELECT name FROM changed

-- name: resume
WITH changed AS (
    UPDATE postlude.postlude_destination SET paused_at = NULL, paused_by = NULL, reason = NULL
     WHERE name = :destination AND paused_at IS NOT NULL RETURNING name
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, trace_id)
    SELECT gen_random_uuid(), :actor, 'resume', name, :reason, :trace_id FROM changed
)
SELECT name FROM changed
