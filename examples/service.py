"""A worker inside a service of your own: it starts and stops with the service, as in a web app's lifespan.

A framework with an ASGI lifespan enters `lifespan()` once at its start and leaves it at its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from postlude import Event, Postlude, event

app = Postlude("sqlite:///service.db")
welcomed: asyncio.Queue[str] = asyncio.Queue()


@event(key="user")
class SignedUp(Event):
    user: str


@app.on(SignedUp, name="welcome")
async def welcome(signed_up: SignedUp) -> None:
    await welcomed.put(signed_up.user)


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    async with app, app.worker():
        yield


async def sign_up(user: str) -> None:
    """What a request does: its own rows and the event, in one transaction."""
    async with app.transaction() as tx:
        tx.execute("CREATE TABLE IF NOT EXISTS users (name TEXT)")
        tx.execute("INSERT INTO users VALUES (?)", (user,))
        await app.outbox.append(tx, SignedUp(user=user))


async def main() -> None:
    async with lifespan():
        for user in ("ada", "grace"):
            await sign_up(user)
        print("welcome", *sorted([await welcomed.get(), await welcomed.get()]))


if __name__ == "__main__":
    asyncio.run(main())
