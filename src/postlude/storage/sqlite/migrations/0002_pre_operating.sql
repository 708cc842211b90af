-- Operators: bulk actions that survive a kill, and what the duties did.
-- Only adds, so that workers of the version before go on.

-- Bulk actions by filter, and where each stands: a page's changes, its audit and its cursor are one transaction.
CREATE TABLE postlude_operation (
    id          BLOB    PRIMARY KEY,
    action      TEXT    NOT NULL CHECK (action IN ('requeue', 'discard', 'bury', 'replay')),
    filter      TEXT    NOT NULL DEFAULT '{}',
    destination TEXT,
    actor       TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    status      TEXT    NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'done', 'cancelled')),
    cursor      TEXT    NOT NULL DEFAULT '',
    last_seq    INTEGER NOT NULL DEFAULT 0,
    total       INTEGER NOT NULL DEFAULT 0,
    done        INTEGER NOT NULL DEFAULT 0,
    created_at  REAL    NOT NULL,
    updated_at  REAL    NOT NULL,
    ended_at    REAL
) WITHOUT ROWID;
-- One of a kind at a time, whatever time its rows are of: `--since 2h` means another moment every time it is said.
CREATE UNIQUE INDEX postlude_operation_running
    ON postlude_operation (action, json_remove(filter, '$.since', '$.until'), coalesce(destination, ''))
    WHERE status = 'running';

-- What each duty did last, and when it is due again.
CREATE TABLE postlude_duty (
    name    TEXT    PRIMARY KEY,
    ran_at  REAL    NOT NULL,
    next_at REAL,
    rows    INTEGER NOT NULL,
    seconds REAL    NOT NULL,
    error   TEXT
) WITHOUT ROWID;
