"""A customer asks to be forgotten: her rows here go at once, and a vendor is called until she is gone there too.

The vendor is written below. Its first answer is an outage, so that the call is made twice, under the same key.
"""

from __future__ import annotations

import asyncio

from sqlalchemy import text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from postlude import Erasure, ErasureCompleted, Postlude, Settings, SubjectRef

engine = create_async_engine("sqlite+aiosqlite:///shop.db")
sessions = async_sessionmaker(engine)
app = Postlude("sqlite:///shop.db", settings=Settings.load(calls={"retry": {"base_delay_seconds": 0}}))


class Mailer:
    """A mailing service: it knows who is a subscriber, and which calls it has seen."""

    name = "mailer"

    def __init__(self) -> None:
        self.subscribers = {"sub_7": "ada@example.org", "sub_8": "bob@example.org"}
        self.keys: list[str] = []

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        self.keys.append(idempotency_key)
        if len(self.keys) == 1:
            raise ConnectionError("503")  # anything but ResolverError is tried again
        return Erasure(already_absent=self.subscribers.pop(ref.value, None) is None)

    async def verify_absent(self, ref: SubjectRef) -> bool:
        return ref.value not in self.subscribers


mailer = Mailer()
app.resolvers.register(mailer, timeout=10, concurrency=4)


@app.on(ErasureCompleted)
async def gone_everywhere(completed: ErasureCompleted) -> None:
    print("gone everywhere, after", completed.calls, "call")


async def forget(customer_id: str) -> None:
    """Her rows and the calls to be made commit together, or not at all."""
    async with sessions.begin() as session:
        deleted = text("DELETE FROM customers WHERE id = :id RETURNING mailer_id")
        refs = [SubjectRef("mailer", one) for one in await session.scalars(deleted, {"id": customer_id})]
        await app.erasure.erase_subject(session, customer_id, refs, reason="she asked for it", actor="support")


async def print_trail(customer_id: str) -> None:
    subject = await app.erasure.pseudonym(customer_id)
    for record in reversed(await app.insight.audits(target=f"subject:{subject}")):
        print(record["actor"], record["action"])


async def main() -> None:
    async with app:
        async with sessions.begin() as session:
            await session.execute(text("CREATE TABLE customers (id TEXT, name TEXT, mailer_id TEXT)"))
            await session.execute(text("INSERT INTO customers VALUES ('c-1', 'Ada', 'sub_7'), ('c-2', 'Bob', 'sub_8')"))
        await forget("c-1")
        await app.drain()
        await print_trail("c-1")
    await engine.dispose()
    print("left at the mailer:", *mailer.subscribers)
    print(len(mailer.keys), "calls,", len(set(mailer.keys)), "key")


if __name__ == "__main__":
    asyncio.run(main())
