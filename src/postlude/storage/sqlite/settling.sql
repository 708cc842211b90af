-- What became of deliveries.

-- name: start
-- Commit an attempt before it begins; only what is still as it was read [seq, status, attempts], in lanes that are
-- still ours.
UPDATE postlude_delivery AS d
   SET status = 'claimed', blocks = d.key IS NOT NULL, attempts = d.attempts + 1, starts = d.starts + 1,
       attempted_at = :now, available_at = :now + :lease
  FROM json_each(:deliveries) AS v
 WHERE d.seq = v.value ->> 0 AND d.status = v.value ->> 1 AND d.attempts = v.value ->> 2
   AND d.destination = :destination AND EXISTS (SELECT 1 FROM postlude_worker WHERE id = :worker)
   AND d.lane IN (
       SELECT l.lane FROM json_each(:fence) AS f CROSS JOIN postlude_lane l
        WHERE l.destination = :destination AND l.lane = CAST(f.key AS INTEGER) AND l.epoch = f.value
          AND l.owner = :worker)
RETURNING seq

-- name: forgive
-- Attempts that were lost to an outage: their worker did not die of them.
UPDATE postlude_delivery SET starts = max(starts - 1, 0)
 WHERE destination = :destination AND seq IN (SELECT value FROM json_each(:seqs))

-- name: settle_sent
-- Sent: the proof is there. A settle that starts after a burial finds no worker and changes nothing.
INSERT INTO postlude_receipt (event_id, destination, attempts, seq, worker, settled_at)
SELECT d.event_id, d.destination, d.attempts + (d.status <> 'claimed'), d.seq, :worker, :now FROM postlude_delivery d
 WHERE d.seq IN (SELECT value FROM json_each(:seqs)) AND d.destination = :destination
   AND EXISTS (SELECT 1 FROM postlude_worker WHERE id = :worker)
   AND d.lane IN (
       SELECT l.lane FROM json_each(:fence) AS f CROSS JOIN postlude_lane l
        WHERE l.destination = :destination AND l.lane = CAST(f.key AS INTEGER) AND l.epoch = f.value
          AND l.owner = :worker)
RETURNING seq

-- name: settle_sent_2
-- And the work is gone: exactly what has its receipt.
DELETE FROM postlude_delivery WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: record
-- Failed, dead or scheduled: the same fence, and only if the row is still as it was read. [seq, was status, was
-- attempts, status, blocks, attempts, starts, delay, until, error].
UPDATE postlude_delivery AS d
   SET status = v.value ->> 3, blocks = v.value ->> 4, attempts = v.value ->> 5, starts = v.value ->> 6, token = NULL,
       available_at = coalesce(v.value ->> 8, :now + (v.value ->> 7)), last_error = coalesce(v.value ->> 9, d.last_error)
  FROM json_each(:verdicts) AS v
 WHERE d.seq = v.value ->> 0 AND d.status = v.value ->> 1 AND d.attempts = v.value ->> 2
   AND d.destination = :destination AND EXISTS (SELECT 1 FROM postlude_worker WHERE id = :worker)
   AND d.lane IN (
       SELECT l.lane FROM json_each(:fence) AS f CROSS JOIN postlude_lane l
        WHERE l.destination = :destination AND l.lane = CAST(f.key AS INTEGER) AND l.epoch = f.value
          AND l.owner = :worker)
RETURNING seq

-- name: open_seqs
-- Which of these rows are still there.
SELECT seq FROM postlude_delivery WHERE seq IN (SELECT value FROM json_each(:seqs))

-- name: settle_handled
-- The first statement of a handler's transaction: the receipt; a rollback undoes it. No row: it is gone, changed, or
-- not ours any more.
INSERT INTO postlude_receipt (event_id, destination, attempts, seq, worker, settled_at)
SELECT d.event_id, d.destination, d.attempts + (d.status <> 'claimed'), d.seq, :worker, :now
  FROM postlude_delivery d
  JOIN postlude_lane l ON l.destination = d.destination AND l.lane = d.lane AND l.owner = :worker AND l.epoch = :epoch
 WHERE d.seq = :seq AND d.status = :status AND d.attempts = :attempts
RETURNING seq

-- name: settle_handled_2
DELETE FROM postlude_delivery WHERE seq = :seq

-- name: condemn
-- A delivery that is gone comes back as a dead letter: born far from due, then buried, in one transaction.
INSERT INTO postlude_delivery (event_id, destination, lane, key, status, attempts, available_at)
VALUES (:event_id, :destination, :lane, :key, 'scheduled', :attempts, :now + 3600)
ON CONFLICT DO NOTHING
RETURNING seq

-- name: condemn_2
UPDATE postlude_delivery SET status = 'dead', last_error = :error, available_at = :now WHERE seq = :seq

-- name: expand
-- A raw SQL producer's row becomes one row for each destination, in order: [id at, destination, lane, key].
INSERT INTO postlude_delivery (event_id, destination, lane, key, max_attempts, available_at)
SELECT d.event_id, c.value ->> 1, c.value ->> 2, c.value ->> 3, d.max_attempts, :now
  FROM json_each(:children) AS c CROSS JOIN postlude_delivery d
 WHERE d.event_id = substr(:ids, c.value ->> 0, 16) AND d.destination = 'route'
   AND d.seq IN (SELECT value FROM json_each(:seqs)) AND EXISTS (SELECT 1 FROM postlude_worker WHERE id = :worker)
   AND EXISTS (SELECT 1 FROM postlude_lane l
                WHERE l.destination = 'route' AND l.lane = 0 AND l.owner = :worker AND l.epoch = :epoch)
 ORDER BY c.key
ON CONFLICT (event_id, destination) DO NOTHING

-- name: expand_2
DELETE FROM postlude_delivery
 WHERE seq IN (SELECT value FROM json_each(:seqs)) AND destination = 'route'
   AND EXISTS (SELECT 1 FROM postlude_worker WHERE id = :worker)
   AND EXISTS (SELECT 1 FROM postlude_lane l
                WHERE l.destination = 'route' AND l.lane = 0 AND l.owner = :worker AND l.epoch = :epoch)
RETURNING seq
