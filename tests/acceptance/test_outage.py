"""The server restarts under a worker that lives on: what it remembers of the time before must not mislead it."""

from __future__ import annotations

import asyncpg
import pytest

from postlude import Event, Postlude, Settings, event
from tests.acceptance.chaos_run import PATIENCE, until

MANY = 300


@event(key="key")
class Noted(Event):
    key: str


@pytest.mark.slow
async def test_a_prepared_transaction_that_outlives_the_server_is_delivered(private_postgres) -> None:
    """It holds its locks under another id after the restart, and its rows are older than all that came since."""
    app = Postlude(private_postgres.dsn, broker="memory://", settings=Settings.load(lane={"lease": 60}))
    app.route(Noted)
    published = app.broker().messages

    async def append(when: str) -> bool:
        """Into every lane."""
        async with app.transaction() as tx:
            await app.outbox.append_many(tx, [Noted(key=f"{when} {i}") for i in range(MANY)])
        return True

    async def has(when: str, count: int = MANY) -> bool:
        return sum(str(message.key).startswith(when) for message in published()) >= count

    await app.db.upgrade()
    async with app.worker():
        await append("before")
        await until(lambda: has("before"), seconds=PATIENCE)
        connection = await asyncpg.connect(private_postgres.dsn)
        await connection.execute("BEGIN")
        await app.outbox.append(connection, Noted(key="prepared"))
        await connection.execute("PREPARE TRANSACTION 'two phases'")
        await connection.close()
        await append("meanwhile")
        await until(lambda: has("meanwhile"), seconds=PATIENCE)

        private_postgres.restart()
        for when in ("after", "later"):
            await until(lambda: append(when), seconds=PATIENCE)  # noqa: B023 - awaited in this round
            await until(lambda: has(when), seconds=PATIENCE)  # noqa: B023
        connection = await asyncpg.connect(private_postgres.dsn)
        await connection.execute("COMMIT PREPARED 'two phases'")
        await connection.close()
        await until(lambda: has("prepared", 1), seconds=PATIENCE)
    await app.close()
