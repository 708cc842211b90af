-- Operators: bulk actions that survive a kill, and what the duties did.
-- Only adds, so that workers of the version before go on.

-- Bulk actions by filter, and where each stands: a page's changes, its audit and its cursor are one transaction.
CREATE TABLE postlude.postlude_operation (
    id          uuid        PRIMARY KEY,
    action      text        NOT NULL,
    filter      jsonb       NOT NULL DEFAULT '{}'::jsonb,
    destination text,
    actor       text        NOT NULL,
    reason      text        NOT NULL,
    status      text        NOT NULL DEFAULT 'running',
    cursor      text        NOT NULL DEFAULT '',
    last_seq    bigint      NOT NULL DEFAULT 0,
    total       bigint      NOT NULL DEFAULT 0,
    done        bigint      NOT NULL DEFAULT 0,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz,
    CONSTRAINT postlude_operation_action CHECK (action IN ('requeue', 'discard', 'bury', 'replay')),
    CONSTRAINT postlude_operation_status CHECK (status IN ('running', 'done', 'cancelled'))
) WITH (fillfactor = 50);
-- One of a kind at a time, whatever time its rows are of: `--since 2h` means another moment every time it is said.
CREATE UNIQUE INDEX postlude_operation_running
    ON postlude.postlude_operation (action, (filter - 'since' - 'until'), coalesce(destination, ''))
    WHERE status = 'running';

-- What each duty did last, and when it is due again.
CREATE TABLE postlude.postlude_duty (
    name    text             PRIMARY KEY,
    ran_at  timestamptz      NOT NULL,
    next_at timestamptz,
    rows    bigint           NOT NULL,
    seconds double precision NOT NULL,
    error   text
) WITH (fillfactor = 50);
