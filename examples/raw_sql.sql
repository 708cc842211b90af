-- Append from psql: an event and a delivery to `route`, in one transaction with your own rows.
-- See docs/guides/raw-sql.md for the columns.
BEGIN;
INSERT INTO orders (id, total) VALUES ('o-1', 42);

WITH placed AS (
    INSERT INTO postlude_event (event_id, type, topic, key, payload, correlation_id)
    VALUES (gen_random_uuid(), 'order.placed', 'events.order.placed', 'o-1',
            convert_to('{"order_id": "o-1", "total": 42}', 'UTF8'), 'o-1')
    RETURNING event_id
)
INSERT INTO postlude_delivery (event_id, destination) SELECT event_id, 'route' FROM placed;
COMMIT;
