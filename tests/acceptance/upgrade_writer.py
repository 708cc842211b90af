"""Appends with whatever Postlude is on the path: one part for each line of its input, and in the end what it was.

`python -m tests.acceptance.upgrade_writer PARTS KEYS EACH CALLS PREFIX`; the database is in the environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from tests.acceptance.chaos_app import Called, Moved, make_app
from tests.acceptance.chaos_load import Load

SEED = 20261115


async def main(parts: int, keys: int, each: int, calls: int, prefix: str) -> None:
    app = make_app(None, Path(os.environ["CHAOS_TRACES"]))
    load = Load(app, seed=SEED, parts=parts)
    add(load, keys=keys, each=each, calls=calls, prefix=prefix)
    for part in range(parts):
        if not await asyncio.to_thread(sys.stdin.readline):
            break
        load.release(part)
    await load.finish()
    books = [{str(id_): what for id_, what in load.appended(kind).items()} for kind in (Moved, Called)]
    sys.stdout.write(json.dumps(books) + "\n")
    await app.close()


def add(load: Load, *, keys: int, each: int, calls: int, prefix: str) -> None:
    """`calls` are the keys of handlers that call out."""
    load.add(Moved, keys=keys, each=each, writers=2, prefix=prefix)
    if calls:
        load.add(Called, keys=calls, each=each, writers=1, prefix=prefix)


if __name__ == "__main__":
    *numbers, own = sys.argv[1:]
    given_parts, given_keys, given_each, given_calls = map(int, numbers)
    asyncio.run(main(given_parts, given_keys, given_each, given_calls, own))
