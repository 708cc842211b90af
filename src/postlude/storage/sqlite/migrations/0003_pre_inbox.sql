-- The inbox: what a consumer has seen. Only adds, so that workers of the version before go on.

CREATE TABLE postlude_inbox (
    consumer    TEXT NOT NULL,
    event_id    BLOB NOT NULL,
    received_at REAL NOT NULL,
    PRIMARY KEY (consumer, event_id)
) WITHOUT ROWID;
CREATE INDEX postlude_inbox_received ON postlude_inbox (received_at);
