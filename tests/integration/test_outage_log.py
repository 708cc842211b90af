"""What a worker says of an outage of its database."""

from __future__ import annotations

from typing import Any

import pytest

from postlude import DatabaseUnavailable
from tests.engine import Noted, arrived, note, routed_app, until


async def test_an_outage_is_said_once_and_then_now_and_then(private_postgres: Any, caplog: Any) -> None:
    app = routed_app(private_postgres.dsn)

    @app.on(Noted, name="handler")
    async def handle(_: Noted) -> None: ...

    await app.db.upgrade()
    async with app, app.worker():
        await note(app, "a", 1)
        await arrived(app, 1)
        private_postgres.stop()
        await until(lambda: any(one.name == "postlude.outage" for one in caplog.records))
        for _ in range(100):  # every loop of the worker fails as often meanwhile
            with pytest.raises(DatabaseUnavailable):
                await app.insight.counts()
        private_postgres.start()
        await until(lambda: is_back(app))
        await note(app, "a", 2)
        await arrived(app, 2)
    assert len([one for one in caplog.records if one.levelname != "INFO"]) < 30, caplog.text


async def is_back(app: Any) -> bool:
    try:
        await app.insight.counts()
    except DatabaseUnavailable:
        return False
    return True
