-- The inbox: what a consumer has seen. Only adds, so that workers of the version before go on.

CREATE TABLE postlude.postlude_inbox (
    consumer    text        NOT NULL,
    event_id    uuid        NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, event_id)
);
CREATE INDEX postlude_inbox_received ON postlude.postlude_inbox (received_at);
