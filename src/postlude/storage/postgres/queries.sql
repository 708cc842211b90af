-- Every statement the engine runs on PostgreSQL, by name. `:name` is a parameter; "postlude" is the schema.
-- The same names stand in the SQLite file.

-- ---------------------------------------------------------------- appending

-- name: append
-- One event with one destination, which is the usual case: no arrays to pack and unpack. Gives the id back when it was new.
WITH event AS (
    INSERT INTO postlude.postlude_event (event_id, type, version, source, entity, key, topic, content_type, payload,
                                         digest, headers, correlation_id, causation_id, saga_id, subjects)
    VALUES (:event_id, :type, :version, :source, :entity, :key, :topic, :content_type, :payload,
            :digest, :headers::jsonb, :correlation_id, :causation_id, :saga_id, :subjects::text[])
    ON CONFLICT DO NOTHING
    RETURNING event_id
)
INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts, available_at)
SELECT event_id, :destination, :lane, :delivery_key, :priority::smallint, :status, :max_attempts::integer,
       coalesce(:available_at::timestamptz, clock_timestamp())
  FROM event
RETURNING event_id

-- name: append_2
-- The same with any number of destinations. Lanes come as text: asyncpg asks the server about most other
-- arrays first, three round trips on every new connection.
WITH event AS (
    INSERT INTO postlude.postlude_event (event_id, type, version, source, entity, key, topic, content_type, payload,
                                         digest, headers, correlation_id, causation_id, saga_id, subjects)
    VALUES (:event_id, :type, :version, :source, :entity, :key, :topic, :content_type, :payload,
            :digest, :headers::jsonb, :correlation_id, :causation_id, :saga_id, :subjects::text[])
    ON CONFLICT DO NOTHING
    RETURNING event_id
), delivery AS (
    INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts, available_at)
    SELECT event.event_id, d.destination, d.lane::smallint, d.key, :priority::smallint, :status::text, :max_attempts::integer,
           coalesce(:available_at::timestamptz, clock_timestamp())
      FROM event, unnest(:destinations::text[], :lanes::text[], :keys::text[])
                  WITH ORDINALITY AS d (destination, lane, key, position)
     ORDER BY d.position
)
SELECT event_id FROM event

-- name: append_many
-- Many events in the order given; the ids that were new come back.
WITH given AS (
    SELECT * FROM unnest(:event_ids::uuid[], :types::text[], :versions::smallint[], :sources::text[], :entities::text[],
                         :keys::text[], :topics::text[], :content_types::text[], :payloads::bytea[], :digests::bytea[],
                         :headers::text[], :correlation_ids::text[], :causation_ids::uuid[], :saga_ids::uuid[],
                         :subjects::text[])
        AS g (event_id, type, version, source, entity, key, topic, content_type, payload, digest,
              headers, correlation_id, causation_id, saga_id, subjects)
), event AS (
    INSERT INTO postlude.postlude_event (event_id, type, version, source, entity, key, topic, content_type, payload,
                                         digest, headers, correlation_id, causation_id, saga_id, subjects)
    SELECT event_id, type, version, source, entity, key, topic, content_type, payload,
           digest, headers::jsonb, correlation_id, causation_id, saga_id,
           (SELECT array_agg(s) FROM jsonb_array_elements_text(subjects::jsonb) AS s)
      FROM given
    ON CONFLICT DO NOTHING
    RETURNING event_id
), delivery AS (
    INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts, available_at)
    SELECT d.event_id, d.destination, d.lane, d.key, d.priority, d.status, d.max_attempts,
           coalesce(d.available_at, clock_timestamp())
      FROM unnest(:of_events::uuid[], :destinations::text[], :lanes::smallint[], :delivery_keys::text[],
                  :priorities::smallint[], :statuses::text[], :max_attempts::integer[], :available_ats::timestamptz[])
           WITH ORDINALITY AS d (event_id, destination, lane, key, priority, status, max_attempts, available_at, position)
      JOIN event USING (event_id)
     ORDER BY d.position
)
SELECT event_id FROM event

-- name: installed_lanes
-- The number of lanes, fixed when the schema was installed.
SELECT value FROM postlude.postlude_meta WHERE name = 'lanes'

-- name: digests
-- What is stored under ids that were not new.
SELECT event_id, digest FROM postlude.postlude_event WHERE event_id = ANY(:event_ids::uuid[])

-- ---------------------------------------------------------------- reading

-- name: last_seq
-- The last seq handed out, committed or not.
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM postlude.postlude_delivery_seq_seq

-- name: appenders
-- Transactions that may still commit a row: INSERT takes this lock before it takes its seq, and holds it to the end.
SELECT virtualtransaction FROM pg_locks
 WHERE locktype = 'relation' AND relation = 'postlude.postlude_delivery'::regclass
   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND mode = 'RowExclusiveLock' AND granted

-- name: news
-- Which lanes have rows above a seq; bounded.
SELECT destination, lane, priority, status = 'pending' AS pending, count(*) AS entries
  FROM (SELECT destination, lane, priority, status FROM postlude.postlude_delivery
         WHERE seq > :after ORDER BY seq LIMIT :limit) AS recent
 GROUP BY 1, 2, 3, 4

-- name: read_pending
-- The hot read: at most :limit index rows of each lane, whatever is blocked. Usually nothing blocks at all: that is
-- asked once, and spares a probe for every row.
SELECT d.seq, d.event_id, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts, d.starts,
       d.key IS NOT NULL AND (SELECT EXISTS (
           SELECT 1 FROM postlude.postlude_delivery b WHERE b.destination = :destination AND b.blocks)) AND EXISTS (
           SELECT 1 FROM postlude.postlude_delivery b
            WHERE b.destination = :destination AND b.key = d.key AND b.seq < d.seq AND b.blocks) AS blocked
  FROM unnest(:lanes::smallint[], :priorities::smallint[], :floors::bigint[]) AS t (lane, priority, floor)
 CROSS JOIN LATERAL (
       SELECT seq, event_id, lane, key, priority, status, attempts, max_attempts, starts
         FROM postlude.postlude_delivery
        WHERE destination = :destination AND status = 'pending' AND lane = t.lane AND priority = t.priority
          AND seq > t.floor
        ORDER BY seq LIMIT :limit) AS d

-- name: read_due
-- What waited for its time, read where it waits. The time is fixed for the statement: with a volatile clock the index
-- could not stop at it, and everything that is scheduled would be walked.
SELECT d.seq, d.event_id, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts, d.starts,
       d.key IS NOT NULL AND EXISTS (
           SELECT 1 FROM postlude.postlude_delivery b
            WHERE b.destination = :destination AND b.key = d.key AND b.seq < d.seq AND b.blocks) AS blocked
  FROM unnest(:lanes::smallint[]) AS t (lane)
 CROSS JOIN LATERAL (
       SELECT seq, event_id, lane, key, priority, status, attempts, max_attempts, starts
         FROM postlude.postlude_delivery
        WHERE destination = :destination AND status IN ('failed', 'scheduled', 'claimed') AND lane = t.lane
          AND available_at <= statement_timestamp() + :ahead::interval AND seq <> ALL(:excluding::bigint[])
        ORDER BY available_at, seq LIMIT :limit) AS d

-- name: freed
-- Which of these keys have nothing before them any more that holds them.
SELECT k.key FROM unnest(:keys::text[], :seqs::bigint[]) AS k (key, seq)
 WHERE NOT EXISTS (SELECT 1 FROM postlude.postlude_delivery b
                    WHERE b.destination = :destination AND b.key = k.key AND b.seq < k.seq AND b.blocks)

-- name: events
-- Events by id; the bounds let the planner prune to the partitions of the batch. The inner SELECT hides the ids from
-- it: it would look up statistics for each of them, every time.
SELECT event_id, type, version, source, entity, key, topic, content_type, payload, headers, correlation_id,
       causation_id, saga_id, created_at
  FROM postlude.postlude_event
 WHERE event_id = ANY((SELECT :event_ids::uuid[])::uuid[]) AND event_id BETWEEN :low AND :high

-- name: has_due
-- Is there anything a worker could deliver now to these destinations?
SELECT EXISTS (
    SELECT 1 FROM postlude.postlude_delivery d
     WHERE d.destination = ANY(:destinations::text[])
       AND (d.status = 'pending' OR d.status IN ('failed', 'scheduled', 'claimed')
            AND d.available_at <= statement_timestamp() + :ahead::interval)
       AND NOT EXISTS (SELECT 1 FROM postlude.postlude_delivery b
                        WHERE b.destination = d.destination AND b.key = d.key AND b.seq < d.seq AND b.blocks))

-- ---------------------------------------------------------------- settling

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

-- ---------------------------------------------------------------- ownership

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

-- ---------------------------------------------------------------- insight

-- name: counts
SELECT status, count(*) FROM postlude.postlude_delivery GROUP BY status

-- name: stats
-- Open work by destination and status, with the age of the oldest that is due.
SELECT destination, status, count(*) AS entries,
       max(extract(epoch FROM clock_timestamp() + :ahead::interval - available_at))
           FILTER (WHERE available_at <= clock_timestamp() + :ahead::interval)::float8 AS oldest_due_seconds,
       count(DISTINCT key) FILTER (WHERE blocks) AS blocked_keys
  FROM postlude.postlude_delivery GROUP BY destination, status ORDER BY destination, status

-- name: list_open
SELECT d.seq, d.event_id, d.destination, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts,
       d.available_at, d.blocks, d.last_error, e.type, e.correlation_id, e.created_at
  FROM postlude.postlude_delivery d LEFT JOIN postlude.postlude_event e USING (event_id)
 WHERE d.seq > :after
   AND (:status::text IS NULL OR d.status = :status) AND (:destination::text IS NULL OR d.destination = :destination)
   AND (:key::text IS NULL OR d.key = :key) AND (:type::text IS NULL OR e.type = :type)
   AND (:correlation::text IS NULL OR e.correlation_id = :correlation) AND (:saga::uuid IS NULL OR e.saga_id = :saga)
   AND (:since::timestamptz IS NULL OR e.created_at >= :since)
   AND (:until::timestamptz IS NULL OR e.created_at < :until)
 ORDER BY d.seq LIMIT :limit

-- name: list_settled
SELECT r.seq, r.event_id, r.destination, r.outcome, r.attempts, r.settled_at, r.worker, r.actor,
       e.key, e.type, e.correlation_id, e.created_at
  FROM postlude.postlude_receipt r LEFT JOIN postlude.postlude_event e USING (event_id)
 WHERE (r.event_id, r.seq) > (:after_event, :after)
   AND (:status::text IS NULL OR r.outcome = :status) AND (:destination::text IS NULL OR r.destination = :destination)
   AND (:key::text IS NULL OR e.key = :key) AND (:type::text IS NULL OR e.type = :type)
   AND (:correlation::text IS NULL OR e.correlation_id = :correlation) AND (:saga::uuid IS NULL OR e.saga_id = :saga)
   AND (:since::timestamptz IS NULL OR e.created_at >= :since)
   AND (:until::timestamptz IS NULL OR e.created_at < :until)
 ORDER BY r.event_id, r.seq LIMIT :limit

-- name: deliveries_of
SELECT d.seq, d.event_id, d.destination, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts,
       d.available_at, d.blocks, d.last_error
  FROM postlude.postlude_delivery d WHERE d.event_id = :event_id ORDER BY d.seq

-- name: receipts_of
SELECT seq, event_id, destination, outcome, attempts, settled_at, worker, actor
  FROM postlude.postlude_receipt WHERE event_id = :event_id ORDER BY seq

-- name: caused_by
SELECT event_id FROM postlude.postlude_event WHERE causation_id = :event_id ORDER BY event_id LIMIT 100

-- name: destinations
SELECT name, kind, seen_at, paused_at, paused_by, reason FROM postlude.postlude_destination ORDER BY name

-- name: lane_owners
SELECT l.destination, count(*) AS lanes, count(w.id) AS owned, sum(l.crashes)::bigint AS crashes
  FROM postlude.postlude_lane l
  LEFT JOIN postlude.postlude_worker w ON w.id = l.owner AND w.lease_until > clock_timestamp() + :ahead::interval
 GROUP BY l.destination ORDER BY l.destination

-- name: unserved
-- Open work whose destination no live worker serves.
SELECT d.destination, count(*) AS entries FROM postlude.postlude_delivery d
 WHERE d.status <> 'dead' AND NOT EXISTS (
       SELECT 1 FROM postlude.postlude_worker w
        WHERE w.lease_until > clock_timestamp() + :ahead::interval AND d.destination = ANY(w.destinations))
 GROUP BY d.destination ORDER BY d.destination

-- name: database_time
SELECT clock_timestamp() + :ahead::interval

-- name: export_events
SELECT event_id, type, version, source, entity, key, topic, content_type, payload, headers, correlation_id,
       causation_id, saga_id, created_at
  FROM postlude.postlude_event e
 WHERE event_id > :after AND (:since::timestamptz IS NULL OR created_at >= :since)
   AND (:until::timestamptz IS NULL OR created_at < :until) AND (:type::text IS NULL OR type = :type)
   AND (:key::text IS NULL OR key = :key) AND (:correlation::text IS NULL OR correlation_id = :correlation)
   AND (:saga::uuid IS NULL OR saga_id = :saga)
   AND (:status::text IS NULL AND :destination::text IS NULL OR EXISTS (
        SELECT 1 FROM postlude.postlude_delivery d WHERE d.event_id = e.event_id
           AND (:status::text IS NULL OR d.status = :status)
           AND (:destination::text IS NULL OR d.destination = :destination)) OR EXISTS (
        SELECT 1 FROM postlude.postlude_receipt r WHERE r.event_id = e.event_id
           AND (:status::text IS NULL OR r.outcome = :status)
           AND (:destination::text IS NULL OR r.destination = :destination)))
 ORDER BY event_id LIMIT :limit

-- name: audits
SELECT id, at, actor, action, target, reason, detail, trace_id, old_status, new_status FROM postlude.postlude_audit
 WHERE (:target::text IS NULL OR target = :target) AND (:actor::text IS NULL OR actor = :actor)
   AND (:action::text IS NULL OR action = :action)
   AND (:since::timestamptz IS NULL OR at >= :since) AND (:until::timestamptz IS NULL OR at < :until)
   AND (:after::uuid IS NULL OR (at, id) < (SELECT at, id FROM postlude.postlude_audit WHERE id = :after))
 ORDER BY at DESC, id DESC LIMIT :limit

-- ---------------------------------------------------------------- actions
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

-- ---------------------------------------------------------------- operations

-- name: begin_operation
-- Nothing comes back when one of its kind is running.
INSERT INTO postlude.postlude_operation (id, action, filter, destination, actor, reason, last_seq, total)
VALUES (:id, :action, :filter::jsonb, :destination::text, :actor, :reason, :last_seq, :total)
ON CONFLICT DO NOTHING
RETURNING created_at, updated_at

-- name: running_operation
-- The one of its kind that is running.
SELECT id, action, filter::text AS filter, destination, actor, reason, status, cursor, last_seq, total, done,
       created_at, updated_at, ended_at
  FROM postlude.postlude_operation
 WHERE status = 'running' AND action = :action AND coalesce(destination, '') = coalesce(:destination::text, '')
   AND filter - 'since' - 'until' = :filter::jsonb - 'since' - 'until'

-- name: operation
SELECT id, action, filter::text AS filter, destination, actor, reason, status, cursor, last_seq, total, done,
       created_at, updated_at, ended_at
  FROM postlude.postlude_operation WHERE id = :id

-- name: operations
SELECT id, action, filter::text AS filter, destination, actor, reason, status, cursor, last_seq, total, done,
       created_at, updated_at, ended_at
  FROM postlude.postlude_operation WHERE :status::text IS NULL OR status = :status
 ORDER BY created_at DESC, id LIMIT :limit

-- name: open_page
-- The deliveries that an operation is aimed at, oldest first: those that were there when it began.
SELECT d.seq, d.event_id, d.destination, d.lane, d.key, d.priority, d.status, d.attempts, d.max_attempts,
       d.available_at, d.blocks, d.last_error, e.type, e.correlation_id, e.created_at
  FROM postlude.postlude_delivery d LEFT JOIN postlude.postlude_event e USING (event_id)
 WHERE d.seq > :after AND d.seq <= :last_seq AND d.status = ANY(:statuses::text[])
   AND (:destination::text IS NULL OR d.destination = :destination)
   AND (:key::text IS NULL OR d.key = :key) AND (:type::text IS NULL OR e.type = :type)
   AND (:correlation::text IS NULL OR e.correlation_id = :correlation) AND (:saga::uuid IS NULL OR e.saga_id = :saga)
   AND (:since::timestamptz IS NULL OR e.created_at >= :since)
   AND (:until::timestamptz IS NULL OR e.created_at < :until)
 ORDER BY d.seq LIMIT :limit

-- name: count_open
SELECT count(*) FROM postlude.postlude_delivery d LEFT JOIN postlude.postlude_event e USING (event_id)
 WHERE d.seq > :after AND d.seq <= :last_seq AND d.status = ANY(:statuses::text[])
   AND (:destination::text IS NULL OR d.destination = :destination)
   AND (:key::text IS NULL OR d.key = :key) AND (:type::text IS NULL OR e.type = :type)
   AND (:correlation::text IS NULL OR e.correlation_id = :correlation) AND (:saga::uuid IS NULL OR e.saga_id = :saga)
   AND (:since::timestamptz IS NULL OR e.created_at >= :since)
   AND (:until::timestamptz IS NULL OR e.created_at < :until)

-- name: event_page
-- The stored events that a replay is aimed at, by id; the first seq tells the order of those made at the same time.
SELECT e.event_id, e.type, e.key, e.created_at,
       (SELECT min(r.seq) FROM postlude.postlude_receipt r WHERE r.event_id = e.event_id) AS seq
  FROM postlude.postlude_event e
 WHERE e.event_id > :after AND (:began::timestamptz IS NULL OR e.created_at <= :began)
   AND e.headers ->> 'postlude-redacted' IS NULL
   AND (:key::text IS NULL OR e.key = :key) AND (:type::text IS NULL OR e.type = :type)
   AND (:correlation::text IS NULL OR e.correlation_id = :correlation) AND (:saga::uuid IS NULL OR e.saga_id = :saga)
   AND (:since::timestamptz IS NULL OR e.created_at >= :since)
   AND (:until::timestamptz IS NULL OR e.created_at < :until)
   AND (:status::text IS NULL AND :destination::text IS NULL OR EXISTS (
        SELECT 1 FROM postlude.postlude_delivery d WHERE d.event_id = e.event_id
           AND (:status::text IS NULL OR d.status = :status)
           AND (:destination::text IS NULL OR d.destination = :destination)) OR EXISTS (
        SELECT 1 FROM postlude.postlude_receipt r WHERE r.event_id = e.event_id
           AND (:status::text IS NULL OR r.outcome = :status)
           AND (:destination::text IS NULL OR r.destination = :destination)))
 ORDER BY e.event_id LIMIT :limit

-- name: count_events
SELECT count(*) FROM postlude.postlude_event e
 WHERE e.event_id > :after AND (:began::timestamptz IS NULL OR e.created_at <= :began)
   AND e.headers ->> 'postlude-redacted' IS NULL
   AND (:key::text IS NULL OR e.key = :key) AND (:type::text IS NULL OR e.type = :type)
   AND (:correlation::text IS NULL OR e.correlation_id = :correlation) AND (:saga::uuid IS NULL OR e.saga_id = :saga)
   AND (:since::timestamptz IS NULL OR e.created_at >= :since)
   AND (:until::timestamptz IS NULL OR e.created_at < :until)
   AND (:status::text IS NULL AND :destination::text IS NULL OR EXISTS (
        SELECT 1 FROM postlude.postlude_delivery d WHERE d.event_id = e.event_id
           AND (:status::text IS NULL OR d.status = :status)
           AND (:destination::text IS NULL OR d.destination = :destination)) OR EXISTS (
        SELECT 1 FROM postlude.postlude_receipt r WHERE r.event_id = e.event_id
           AND (:status::text IS NULL OR r.outcome = :status)
           AND (:destination::text IS NULL OR r.destination = :destination)))

-- name: resume_operation
WITH resumed AS (
    UPDATE postlude.postlude_operation SET updated_at = clock_timestamp()
     WHERE id = :id AND status = 'running' RETURNING id, action
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, detail)
    SELECT gen_random_uuid(), :actor, 'resume_operation', id::text, :reason, jsonb_build_object('action', action)
      FROM resumed
)
SELECT id FROM resumed

-- name: end_operation
-- Done when every page was; only a cancellation is somebody's act.
WITH ended AS (
    UPDATE postlude.postlude_operation
       SET status = :status, updated_at = clock_timestamp(), ended_at = clock_timestamp()
     WHERE id = :id AND status = 'running' AND (:was::text IS NULL OR cursor = :was) RETURNING id, action, done
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, old_status, new_status, detail)
    SELECT gen_random_uuid(), :actor, 'cancel_operation', id::text, :reason, 'running', 'cancelled',
           jsonb_build_object('action', action, 'done', done)
      FROM ended WHERE :status = 'cancelled'
)
SELECT id FROM ended

-- ---------------------------------------------------------------- duties

-- name: duties
-- Every duty a worker ever had, who has it now, and what came of it last.
SELECT d.name, w.name AS owner, u.ran_at, u.next_at, u.rows, u.seconds, u.error
  FROM postlude.postlude_destination d
  LEFT JOIN postlude.postlude_lane l ON l.destination = d.name
  LEFT JOIN postlude.postlude_worker w ON w.id = l.owner AND w.lease_until > clock_timestamp() + :ahead::interval
  LEFT JOIN postlude.postlude_duty u ON u.name = d.name
 WHERE d.kind = 'duty' ORDER BY d.name

-- name: record_duty
INSERT INTO postlude.postlude_duty (name, ran_at, next_at, rows, seconds, error)
VALUES (:name, clock_timestamp() + :ahead::interval,
        clock_timestamp() + :ahead::interval + make_interval(secs => :next_in), :rows, :seconds, :error::text)
ON CONFLICT (name) DO UPDATE
   SET ran_at = excluded.ran_at, next_at = excluded.next_at, rows = excluded.rows, seconds = excluded.seconds,
       error = excluded.error

-- name: disk_use
-- Bytes with indexes, rows as the planner estimates them, and partitions, of every table of ours.
SELECT c.relname AS name, sum(pg_total_relation_size(p.oid))::bigint AS bytes,
       sum(greatest(p.reltuples, 0))::bigint AS rows, count(*) FILTER (WHERE p.oid <> c.oid) AS partitions
  FROM pg_class c
  JOIN pg_class p ON p.oid = c.oid AND c.relkind = 'r'
    OR p.oid IN (SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = c.oid)
 WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'postlude.postlude_meta'::regclass)
   AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname LIKE 'postlude\_%'
 GROUP BY c.oid, c.relname ORDER BY 2 DESC, 1

-- ---------------------------------------------------------------- retention

-- name: prune_events
-- Settled events of the default partition (ids that are not ours), in bounded batches. Whom sagas are about is remembered,
-- as partitions.py does for a whole day: by an event of the saga, by the cause of one, and by what an event has caused.
-- A cause is locked, so that no redaction is overtaken.
WITH old AS MATERIALIZED (
    SELECT e.event_id, e.saga_id, e.causation_id, e.subjects FROM postlude.postlude_event_default e
     WHERE e.created_at < clock_timestamp() + :ahead::interval - make_interval(hours => :hours)
       AND NOT EXISTS (SELECT 1 FROM postlude.postlude_delivery d WHERE d.event_id = e.event_id)
     LIMIT :limit FOR UPDATE OF e SKIP LOCKED
), cause AS MATERIALIZED (
    SELECT t.subjects, o.saga_id FROM old o JOIN postlude.postlude_event t ON t.event_id = o.causation_id
     WHERE o.saga_id IS NOT NULL AND t.subjects IS NOT NULL AND NOT EXISTS (SELECT 1 FROM old WHERE old.event_id = t.event_id)
     ORDER BY t.event_id FOR SHARE OF t
), remembered AS (
    INSERT INTO postlude.postlude_saga_subject (subject, saga_id)
    SELECT DISTINCT n.subject, l.saga_id
      FROM (SELECT subjects, saga_id FROM old WHERE subjects IS NOT NULL
            UNION ALL
            SELECT subjects, saga_id FROM cause
            UNION ALL
            SELECT o.subjects, c.saga_id FROM old o JOIN postlude.postlude_event c ON c.causation_id = o.event_id
             WHERE o.subjects IS NOT NULL AND c.saga_id IS NOT NULL) AS l
      JOIN postlude.postlude_saga s ON s.id = l.saga_id
     CROSS JOIN LATERAL unnest(l.subjects) AS n (subject)
     ORDER BY 1, 2
    ON CONFLICT DO NOTHING
), gone AS (
    DELETE FROM postlude.postlude_event_default e USING old WHERE e.event_id = old.event_id RETURNING e.event_id
)
SELECT count(*) FROM gone

-- name: prune_receipts
WITH old AS (
    SELECT r.ctid FROM postlude.postlude_receipt_default r
     WHERE r.settled_at < clock_timestamp() + :ahead::interval - make_interval(hours => :hours)
       AND NOT EXISTS (SELECT 1 FROM postlude.postlude_delivery d WHERE d.event_id = r.event_id)
     LIMIT :limit
), gone AS (
    DELETE FROM postlude.postlude_receipt_default r WHERE r.ctid IN (SELECT ctid FROM old) RETURNING 1
)
SELECT count(*) FROM gone

-- name: prune_inbox
WITH old AS (
    SELECT consumer, event_id FROM postlude.postlude_inbox
     WHERE received_at < clock_timestamp() + :ahead::interval - make_interval(hours => :hours)
     ORDER BY received_at LIMIT :limit FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM postlude.postlude_inbox i USING old
     WHERE i.consumer = old.consumer AND i.event_id = old.event_id RETURNING 1
)
SELECT count(*) FROM gone

-- name: prune_dead
-- Dead letters older than the retention of dead letters; off by default. Abandoned calls stay: nobody but a person may
-- say that a subject need not be erased there. Audited as a discard by the duty.
WITH target AS MATERIALIZED (
    SELECT d.seq, d.event_id, d.destination, d.attempts FROM postlude.postlude_delivery d
     WHERE d.status = 'dead' AND d.group_id IS NULL
       AND d.available_at < clock_timestamp() + :ahead::interval - make_interval(hours => :hours)
     ORDER BY d.seq LIMIT :limit FOR UPDATE OF d SKIP LOCKED
), changed AS (
    DELETE FROM postlude.postlude_delivery d USING target WHERE d.seq = target.seq
), receipt AS (
    INSERT INTO postlude.postlude_receipt (event_id, destination, outcome, attempts, seq, actor)
    SELECT event_id, destination, 'discarded', attempts, seq, 'duty:retention' FROM target
), audit AS (
    INSERT INTO postlude.postlude_audit (id, actor, action, target, reason, old_status, new_status, detail)
    SELECT gen_random_uuid(), 'duty:retention', 'discard', event_id::text, 'retention.dead_hours', 'dead', 'discarded',
           jsonb_build_object('destination', destination, 'prior_attempts', attempts)
      FROM target
)
SELECT count(*) FROM target

-- ---------------------------------------------------------------- inbox

-- name: once
-- The first to commit has it. A second one waits for the first to end, and then sees it, or is the first itself.
INSERT INTO postlude.postlude_inbox (consumer, event_id) VALUES (:consumer, :event_id)
ON CONFLICT DO NOTHING
RETURNING event_id

-- name: receive
-- A batch from a broker: what this consumer has not seen, its events where they are new, and its deliveries. Inbox rows
-- and events are written in the order of their ids, so that consumers of the same messages cannot deadlock; deliveries in
-- the order in which the messages came. Gives the ids that were new to the consumer, and whether their events were.
WITH given AS (
    SELECT * FROM unnest(:event_ids::uuid[], :types::text[], :versions::smallint[], :sources::text[], :entities::text[],
                         :keys::text[], :topics::text[], :content_types::text[], :payloads::bytea[], :digests::bytea[],
                         :headers::text[], :correlation_ids::text[], :causation_ids::uuid[], :saga_ids::uuid[],
                         :subjects::text[])
        AS g (event_id, type, version, source, entity, key, topic, content_type, payload, digest,
              headers, correlation_id, causation_id, saga_id, subjects)
), seen AS (
    INSERT INTO postlude.postlude_inbox (consumer, event_id, topic)
    SELECT :consumer, event_id, topic FROM given ORDER BY event_id
    ON CONFLICT DO NOTHING
    RETURNING event_id
), event AS (
    INSERT INTO postlude.postlude_event (event_id, type, version, source, entity, key, topic, content_type, payload,
                                         digest, headers, correlation_id, causation_id, saga_id, subjects)
    SELECT event_id, type, version, source, entity, key, topic, content_type, payload,
           digest, headers::jsonb, correlation_id, causation_id, saga_id,
           (SELECT array_agg(s) FROM jsonb_array_elements_text(subjects::jsonb) AS s)
      FROM given JOIN seen USING (event_id) ORDER BY event_id
    ON CONFLICT DO NOTHING
    RETURNING event_id
), delivery AS (
    INSERT INTO postlude.postlude_delivery (event_id, destination, lane, key, priority, status, max_attempts, available_at)
    SELECT d.event_id, d.destination, d.lane, d.key, d.priority, d.status, d.max_attempts,
           coalesce(d.available_at, clock_timestamp())
      FROM unnest(:of_events::uuid[], :destinations::text[], :lanes::smallint[], :delivery_keys::text[],
                  :priorities::smallint[], :statuses::text[], :max_attempts::integer[], :available_ats::timestamptz[])
           WITH ORDINALITY AS d (event_id, destination, lane, key, priority, status, max_attempts, available_at, position)
      JOIN seen USING (event_id)
     ORDER BY d.position
    ON CONFLICT DO NOTHING -- open there already: the inbox has forgotten what an operator has not settled
)
SELECT seen.event_id, event.event_id IS NOT NULL FROM seen LEFT JOIN event USING (event_id)

-- name: contents
-- What is stored under ids whose digests differ: a digest also covers the key, which a route may change on the way.
-- A redacted event has none: whatever comes under its id is taken for it.
SELECT event_id, type, version, CASE WHEN headers ->> 'postlude-redacted' IS NULL THEN payload END
  FROM postlude.postlude_event WHERE event_id = ANY(:event_ids::uuid[])

-- name: count_received
INSERT INTO postlude.postlude_consumer AS c (consumer, received, duplicates, ignored, unreadable, last_at)
VALUES (:consumer, :received, :duplicates, :ignored, :unreadable, clock_timestamp())
ON CONFLICT (consumer) DO UPDATE
   SET received = c.received + excluded.received, duplicates = c.duplicates + excluded.duplicates,
       ignored = c.ignored + excluded.ignored, unreadable = c.unreadable + excluded.unreadable,
       last_at = excluded.last_at

-- name: begin_consumer
-- Since when a consumer exists, and what time it is.
INSERT INTO postlude.postlude_consumer AS c (consumer) VALUES (:consumer)
ON CONFLICT (consumer) DO UPDATE SET consumer = c.consumer
RETURNING first_at, clock_timestamp() + :ahead::interval

-- name: record_lag
UPDATE postlude.postlude_consumer SET lag = :lag::bigint, lag_at = clock_timestamp() WHERE consumer = :consumer

-- name: open_entries
-- How much work is open at these destinations, counted up to a limit. Dead letters wait for a person.
SELECT count(*) FROM (
    (SELECT 1 FROM postlude.postlude_delivery
      WHERE destination = ANY(:destinations::text[]) AND status = 'pending' LIMIT :limit)
    UNION ALL
    (SELECT 1 FROM postlude.postlude_delivery
      WHERE destination = ANY(:destinations::text[]) AND status IN ('failed', 'claimed') LIMIT :limit)) AS open

-- name: consumers
SELECT consumer, received, duplicates, ignored, unreadable, lag, lag_at, first_at, last_at
  FROM postlude.postlude_consumer ORDER BY consumer

-- name: list_inbox
-- Newest first.
SELECT consumer, event_id, topic, received_at FROM postlude.postlude_inbox
 WHERE (:consumer::text IS NULL OR consumer = :consumer) AND (:topic::text IS NULL OR topic = :topic)
   AND (:since::timestamptz IS NULL OR received_at >= :since)
   AND (:until::timestamptz IS NULL OR received_at < :until)
 ORDER BY received_at DESC, consumer, event_id LIMIT :limit

-- ---------------------------------------------------------------- sagas
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
