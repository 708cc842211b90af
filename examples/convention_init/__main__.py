"""Everything in one process: the registry's app does the participants' work too, with a broker in between."""

from __future__ import annotations

import asyncio

from .participants import serve
from .registry import app, register


async def main() -> None:
    serve(app)
    async with app:
        await app.drain()  # consumers have joined before anything is published
        ids = [await register("urn:c:1", "Fossils", ["age", "site"]), await register("urn:c:2", "Bones", ["taken"])]
        async with app.worker():
            for saga_id in ids:
                view = await app.sagas.wait(saga_id, timeout=30)
                print(view.process_id, view.status, view.error or "")
        async with app.transaction() as tx:
            print(sorted(tx.execute("SELECT srn, what FROM made").fetchall()))


if __name__ == "__main__":
    asyncio.run(main())
