"""An app with one event that kills its process; run as a worker by test_poison.py."""

from __future__ import annotations

import asyncio
import os
import signal

from postlude import Context, Event, Postlude, event

BOMB = "bomb"


@event(type="bomb.thing", key="key")
class Thing(Event):
    key: str


app = Postlude(os.environ.get("POSTLUDE_DATABASE", "sqlite:///unused.db"))


@app.on(Thing, name="thing")
async def thing(event: Thing, ctx: Context) -> None:
    """Everybody is inside when the bomb goes off."""
    if event.key == BOMB:
        await asyncio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.sleep(0.3)
    await ctx.tx.execute("INSERT INTO done VALUES ($1)", event.key)
