-- Workers, and the lanes they own.

-- name: register_worker
INSERT INTO postlude_worker (id, name, version, started_at, lease_until, destinations)
VALUES (:worker, :name, :version, :now, :now + :lease, :destinations)

-- name: register_destinations
-- Known destinations [name, kind, lanes] and their lanes; safe to repeat.
INSERT INTO postlude_destination (name, kind, seen_at)
SELECT d.value ->> 0, d.value ->> 1, :now FROM json_each(:destinations) AS d WHERE true
ON CONFLICT (name) DO NOTHING

-- name: register_destinations_2
WITH RECURSIVE wanted (destination, lane, lanes) AS (
    SELECT d.value ->> 0, 0, d.value ->> 2 FROM json_each(:destinations) AS d
    UNION ALL
    SELECT destination, lane + 1, lanes FROM wanted WHERE lane + 1 < lanes
)
INSERT INTO postlude_lane (destination, lane) SELECT destination, lane FROM wanted WHERE true
ON CONFLICT (destination, lane) DO NOTHING

-- name: renew
-- No row: this worker is buried.
UPDATE postlude_worker SET lease_until = :now + :lease WHERE id = :worker RETURNING stopping

-- name: bury_workers
-- The only way a live-looking owner loses its lanes.
UPDATE postlude_lane
   SET owner = NULL, epoch = epoch + 1, crashes = crashes + 1,
       cautious_to = coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'postlude_delivery'), 0)
 WHERE owner IN (SELECT id FROM postlude_worker WHERE lease_until < :now)
RETURNING destination, lane

-- name: bury_workers_2
DELETE FROM postlude_worker WHERE lease_until < :now

-- name: live_workers
SELECT id, name, version, started_at, stopping, destinations, lease_until FROM postlude_worker
 WHERE lease_until > :now ORDER BY started_at, id

-- name: owned_lanes
-- What a worker owns by the database's word: an answer that was lost on the way leaves it knowing less.
SELECT destination, lane, epoch FROM postlude_lane WHERE owner = :worker

-- name: claim_lanes
-- Up to :count free lanes; a lane whose owner is gone is free.
UPDATE postlude_lane SET owner = :worker, epoch = epoch + 1
 WHERE destination = :destination
   AND EXISTS (SELECT 1 FROM postlude_worker WHERE id = :worker AND NOT stopping AND lease_until > :now)
   AND lane IN (
       SELECT l.lane FROM postlude_lane l
        WHERE l.destination = :destination
          AND (l.owner IS NULL OR NOT EXISTS (SELECT 1 FROM postlude_worker w WHERE w.id = l.owner))
        ORDER BY random() LIMIT :count)
RETURNING lane, epoch, cautious_to

-- name: release_lanes
UPDATE postlude_lane AS l SET owner = NULL, epoch = l.epoch + 1 FROM json_each(:fence) AS f
 WHERE l.destination = :destination AND l.lane = CAST(f.key AS INTEGER) AND l.owner = :worker AND l.epoch = f.value

-- name: leave
-- A clean end: lanes are free at once and nobody needs to be cautious.
UPDATE postlude_lane SET owner = NULL, epoch = epoch + 1 WHERE owner = :worker

-- name: leave_2
DELETE FROM postlude_worker WHERE id = :worker

-- name: paused
SELECT name FROM postlude_destination WHERE paused_at IS NOT NULL
