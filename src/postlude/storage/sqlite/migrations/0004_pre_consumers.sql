-- Consumers of brokers: where a message came from, and what became of all that came. Only adds.

ALTER TABLE postlude_inbox ADD COLUMN topic TEXT;

CREATE TABLE postlude_consumer (
    consumer   TEXT PRIMARY KEY,
    received   INTEGER NOT NULL DEFAULT 0,
    duplicates INTEGER NOT NULL DEFAULT 0,
    ignored    INTEGER NOT NULL DEFAULT 0,
    unreadable INTEGER NOT NULL DEFAULT 0,
    lag        INTEGER,
    lag_at     REAL,
    first_at   REAL NOT NULL,
    last_at    REAL
) WITHOUT ROWID;
