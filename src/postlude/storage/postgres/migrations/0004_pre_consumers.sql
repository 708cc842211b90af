-- Consumers of brokers: where a message came from, and what became of all that came. Only adds.

ALTER TABLE postlude.postlude_inbox ADD COLUMN topic text;

CREATE TABLE postlude.postlude_consumer (
    consumer   text        PRIMARY KEY,
    received   bigint      NOT NULL DEFAULT 0,
    duplicates bigint      NOT NULL DEFAULT 0,
    ignored    bigint      NOT NULL DEFAULT 0,
    unreadable bigint      NOT NULL DEFAULT 0,
    lag        bigint,
    lag_at     timestamptz,
    first_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at    timestamptz
);
