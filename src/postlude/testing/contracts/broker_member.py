"""A member of a group in a process of its own: it receives, acknowledges nothing, and waits to be killed."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from postlude.connections import open_broker
from postlude.testing.contracts.broker_arrange import ids, joined, received


async def main(url: str, options: dict[str, Any], topic: str, group: str, count: int) -> None:
    broker = open_broker(url, options)
    await broker.open()
    async with joined(broker, topic, group) as member:
        come = await received(member, count, patience=60)
        print(json.dumps(ids(come)), flush=True)  # noqa: T201 - the parent reads it
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(**json.loads(sys.argv[1])))
