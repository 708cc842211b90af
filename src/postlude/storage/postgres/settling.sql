-- What became of deliveries.

-- name: start
-- Commit an attempt before it begins; only what is still as it was read, in lanes that are still ours. Rows that a
-- frozen process still holds are skipped: waiting for them would hold up every other key.
WITH alive AS MATERIALIZED (SELECT id FROM postlude.postlude_worker WHERE id = :worker FOR KEY SHARE),
free AS MATERIALIZED (
    SELECT d.seq
      FROM unnest(:seqs::bigint[], :was_statuses::text[], :was_attempts::integer[]) AS v (seq, status, attempts)
      JOIN postlude.postlude_delivery d ON d.seq = v.seq AND d.status = v.status AND d.attempts = v.attempts
     WHERE d.seq = ANY(:seqs::bigint[])  -- said twice: without it, stale statistics make this a scan of the backlog
       AND d.destination = :destination AND EXISTS (SELECT 1 FROM alive)
       AND d.lane = ANY(ARRAY(
           SELECT l.lane FROM unnest(:lanes::smallint[], :epochs::bigint[]) AS f (lane, epoch)
             JOIN postlude.postlude_lane l ON l.lane = f.lane AND l.epoch = f.epoch
            WHERE l.destination = :destination AND l.owner = :worker))
       FOR UPDATE OF d SKIP LOCKED
)
UPDATE postlude.postlude_delivery d
   SET status = 'claimed', blocks = d.key IS NOT NULL, attempts = d.attempts + 1, starts = d.starts + 1,
       attempted_at = clock_timestamp() + :ahead::interval,
       available_at = clock_timestamp() + :ahead::interval + make_interval(secs => :lease)
  FROM free WHERE d.seq = free.seq
RETURNING d.seq

-- name: forgive
-- Attempts that were lost to an outage: their worker did not die of them. Rows that somebody holds are left alone.
UPDATE postlude.postlude_delivery SET starts = starts - 1
 WHERE seq IN (SELECT seq FROM postlude.postlude_delivery
                WHERE destination = :destination AND seq = ANY(:seqs::bigint[]) AND starts > 0
                ORDER BY seq FOR UPDATE SKIP LOCKED)

-- name: settle_sent
-- Sent: the work is gone, the proof is there. A settle that starts after a burial finds no worker and changes nothing.
WITH alive AS MATERIALIZED (SELECT id FROM postlude.postlude_worker WHERE id = :worker FOR KEY SHARE),
done AS (
    DELETE FROM postlude.postlude_delivery d
     WHERE d.seq = ANY(:seqs::bigint[]) AND d.destination = :destination AND EXISTS (SELECT 1 FROM alive)
       AND d.lane = ANY(ARRAY(
           SELECT l.lane FROM unnest(:lanes::smallint[], :epochs::bigint[]) AS f (lane, epoch)
             JOIN postlude.postlude_lane l ON l.lane = f.lane AND l.epoch = f.epoch
            WHERE l.destination = :destination AND l.owner = :worker))
    RETURNING d.event_id, d.attempts, d.status, d.seq
), receipt AS (
    INSERT INTO postlude.postlude_receipt (event_id, destination, attempts, seq, worker)
    SELECT event_id, :destination, attempts + (status <> 'claimed')::integer, seq, :worker FROM done
)
SELECT count(*) FROM done

-- name: record
-- Failed, dead or scheduled: the same fence, and only if the row is still as it was read.
WITH alive AS MATERIALIZED (SELECT id FROM postlude.postlude_worker WHERE id = :worker FOR KEY SHARE)
UPDATE postlude.postlude_delivery d
   SET status = v.status, blocks = v.blocks, attempts = v.attempts, starts = v.starts, token = NULL,
       available_at = coalesce(v.until, clock_timestamp() + :ahead::interval + make_interval(secs => v.delay)),
       last_error = coalesce(v.error, d.last_error)
  FROM unnest(:seqs::bigint[], :was_statuses::text[], :was_attempts::integer[], :statuses::text[], :blocks::boolean[],
              :attempts::integer[], :starts::smallint[], :delays::float8[], :untils::timestamptz[], :errors::text[])
       AS v (seq, was_status, was_attempts, status, blocks, attempts, starts, delay, until, error)
 WHERE d.seq = v.seq AND d.status = v.was_status AND d.attempts = v.was_attempts AND d.destination = :destination
   AND d.seq = ANY(:seqs::bigint[])  -- said twice, as in start
   AND EXISTS (SELECT 1 FROM alive) AND d.lane = ANY(ARRAY(
       SELECT l.lane FROM unnest(:lanes::smallint[], :epochs::bigint[]) AS f (lane, epoch)
         JOIN postlude.postlude_lane l ON l.lane = f.lane AND l.epoch = f.epoch
        WHERE l.destination = :destination AND l.owner = :worker))
RETURNING d.seq

-- name: open_seqs
-- Which of these rows are still there.
SELECT seq FROM postlude.postlude_delivery WHERE seq = ANY(:seqs::bigint[])

-- name: settle_handled
-- The first statement of a handler's transaction: lock, delete and receipt at once; a rollback undoes all three.
-- No row: somebody else holds it, or it is not ours any more. A frozen process loses its session after :idle ms.
-- What follows in the transaction is planned as the server likes: plans made anew each time are for our reads.
WITH mine AS (
    SELECT d.seq FROM postlude.postlude_delivery d
      JOIN postlude.postlude_lane l ON l.destination = d.destination AND l.lane = d.lane
       AND l.owner = :worker AND l.epoch = :epoch
     WHERE d.seq = :seq AND d.status = :status AND d.attempts = :attempts
       FOR UPDATE OF d SKIP LOCKED
), done AS (
    DELETE FROM postlude.postlude_delivery d USING mine WHERE d.seq = mine.seq
    RETURNING d.event_id, d.destination, d.attempts, d.status, d.seq
), receipt AS (
    INSERT INTO postlude.postlude_receipt (event_id, destination, attempts, seq, worker)
    SELECT event_id, destination, attempts + (status <> 'claimed')::integer, seq, :worker FROM done
)
SELECT seq, set_config('idle_in_transaction_session_timeout', :idle, true), set_config('plan_cache_mode', 'auto', true)
  FROM done

-- name: settle_handled_2
-- The same for the work of a saga, which is read on the way.
WITH mine AS (
    SELECT d.seq FROM postlude.postlude_delivery d
      JOIN postlude.postlude_lane l ON l.destination = d.destination AND l.lane = d.lane
       AND l.owner = :worker AND l.epoch = :epoch
     WHERE d.seq = :seq AND d.status = :status AND d.attempts = :attempts
       FOR UPDATE OF d SKIP LOCKED
), done AS (
    DELETE FROM postlude.postlude_delivery d USING mine WHERE d.seq = mine.seq
    RETURNING d.event_id, d.destination, d.attempts, d.status, d.seq
), receipt AS (
    INSERT INTO postlude.postlude_receipt (event_id, destination, attempts, seq, worker)
    SELECT event_id, destination, attempts + (status <> 'claimed')::integer, seq, :worker FROM done
)
SELECT seq, (SELECT body FROM postlude.postlude_saga WHERE id = :id::uuid),
       set_config('idle_in_transaction_session_timeout', :idle, true), set_config('plan_cache_mode', 'auto', true)
  FROM done

-- name: condemn
-- A delivery that is gone comes back as a dead letter: born far from due, then buried, in one transaction.
INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, status, attempts, available_at)
VALUES (:event_id, :destination, :lane, :key, 'scheduled', :attempts, clock_timestamp() + interval '1 hour')
ON CONFLICT DO NOTHING
RETURNING seq

-- name: condemn_2
UPDATE postlude.postlude_delivery SET status = 'dead', last_error = :error, available_at = clock_timestamp()
 WHERE seq = :seq

-- name: expand
-- A raw SQL producer's row becomes one row for each destination, in one statement and in order.
WITH alive AS MATERIALIZED (SELECT id FROM postlude.postlude_worker WHERE id = :worker FOR KEY SHARE),
gone AS (
    DELETE FROM postlude.postlude_delivery d
     WHERE d.seq = ANY(:seqs::bigint[]) AND d.destination = 'route' AND EXISTS (SELECT 1 FROM alive)
       AND EXISTS (SELECT 1 FROM postlude.postlude_lane l
                    WHERE l.destination = 'route' AND l.lane = 0 AND l.owner = :worker AND l.epoch = :epoch)
    RETURNING d.event_id, d.seq, d.max_attempts
), child AS (
    INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, max_attempts)
    SELECT c.event_id, c.destination, c.lane, c.key, gone.max_attempts
      FROM unnest(:of_events::uuid[], :destinations::text[], :lanes::smallint[], :keys::text[])
           WITH ORDINALITY AS c (event_id, destination, lane, key, position)
      JOIN gone USING (event_id)
     ORDER BY c.position
    ON CONFLICT DO NOTHING
)
SELECT seq FROM gone
