-- Workers, and the lanes they own.

-- name: register_worker
INSERT INTO postlude.postlude_worker (id, name, version, lease_until, destinations)
VALUES (:worker, :name, :version, clock_timestamp() + :ahead::interval + make_interval(secs => :lease), :destinations)

-- name: register_destinations
-- Known destinations and their lanes; safe to repeat.
WITH known AS (
    INSERT INTO postlude.postlude_destination (name, kind)
    SELECT * FROM unnest(:names::text[], :kinds::text[]) ON CONFLICT DO NOTHING
)
INSERT INTO postlude.postlude_lane (destination, lane)
SELECT d.name, g.lane FROM unnest(:names::text[], :lanes::integer[]) AS d (name, lanes)
 CROSS JOIN LATERAL generate_series(0, d.lanes - 1) AS g (lane)
ON CONFLICT DO NOTHING

-- name: renew
-- No row: this worker is buried.
UPDATE postlude.postlude_worker SET lease_until = clock_timestamp() + :ahead::interval + make_interval(secs => :lease)
 WHERE id = :worker RETURNING stopping

-- name: bury_workers
-- The only way a live-looking owner loses its lanes. Skips a worker while one of its settles runs.
WITH corpse AS (
    DELETE FROM postlude.postlude_worker WHERE id IN (
        SELECT id FROM postlude.postlude_worker WHERE lease_until < clock_timestamp() + :ahead::interval
         ORDER BY id FOR UPDATE SKIP LOCKED)
    RETURNING id
)
UPDATE postlude.postlude_lane
   SET owner = NULL, epoch = epoch + 1, crashes = crashes + 1,
       cautious_to = (SELECT last_value FROM postlude.postlude_delivery_seq_seq)
 WHERE owner IN (SELECT id FROM corpse)
RETURNING destination, lane

-- name: live_workers
SELECT id, name, version, started_at, stopping, destinations, lease_until FROM postlude.postlude_worker
 WHERE lease_until > clock_timestamp() + :ahead::interval ORDER BY started_at, id

-- name: owned_lanes
-- What a worker owns by the database's word: an answer that was lost on the way leaves it knowing less.
SELECT destination, lane, epoch FROM postlude.postlude_lane WHERE owner = :worker

-- name: claim_lanes
-- Up to :count free lanes; a lane whose owner is gone is free.
WITH me AS MATERIALIZED (
    SELECT id FROM postlude.postlude_worker
     WHERE id = :worker AND NOT stopping AND lease_until > clock_timestamp() + :ahead::interval FOR KEY SHARE
), free AS MATERIALIZED (
    SELECT l.lane FROM postlude.postlude_lane l
     WHERE l.destination = :destination
       AND (l.owner IS NULL OR NOT EXISTS (SELECT 1 FROM postlude.postlude_worker w WHERE w.id = l.owner))
     ORDER BY random() LIMIT :count FOR UPDATE OF l SKIP LOCKED
)
UPDATE postlude.postlude_lane l SET owner = me.id, epoch = l.epoch + 1 FROM free, me
 WHERE l.destination = :destination AND l.lane = free.lane
RETURNING l.lane, l.epoch, l.cautious_to

-- name: release_lanes
UPDATE postlude.postlude_lane l SET owner = NULL, epoch = l.epoch + 1
  FROM unnest(:lanes::smallint[], :epochs::bigint[]) AS f (lane, epoch)
 WHERE l.destination = :destination AND l.lane = f.lane AND l.owner = :worker AND l.epoch = f.epoch

-- name: leave
-- A clean end: lanes are free at once and nobody needs to be cautious.
WITH gone AS (DELETE FROM postlude.postlude_worker WHERE id = :worker RETURNING id)
UPDATE postlude.postlude_lane SET owner = NULL, epoch = epoch + 1 WHERE owner = :worker

-- name: paused
SELECT name FROM postlude.postlude_destination WHERE paused_at IS NOT NULL
