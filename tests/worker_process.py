"""A worker as a process of its own, to be stopped, killed and told to end: `python -m tests.worker_process URL OPTIONS`.

It says on its output what it does. A handler of a key that begins with "stop" waits inside its transaction until the
process gets SIGUSR1.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, Self

from postlude import Context, Postlude, Settings
from tests.engine import Noted
from tests.source_tree import ROOT
from tools.processes import bound

EFFECTS = "CREATE TABLE effect (position bigserial PRIMARY KEY, key text NOT NULL, n int NOT NULL)"


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def make_app(url: str, options: dict[str, Any], waiting: asyncio.Event | None = None) -> Postlude:
    """Every note has one effect in the database. With `waiting`, keys that say so wait for it."""
    app = Postlude(url, settings=Settings.load(environ={}, **options))

    @app.on(Noted, name="effect")
    async def effect(noted: Noted, ctx: Context) -> None:
        insert = "INSERT INTO effect (key, n) VALUES "
        if url.startswith("postgresql+psycopg"):
            await ctx.tx.execute(f"{insert}(%s, %s)", (noted.key, noted.n))
        else:
            await ctx.tx.execute(f"{insert}($1, $2)", noted.key, noted.n)
        if waiting is not None:
            say(f"inside {noted.key}")
            if noted.key.startswith("stop"):
                await waiting.wait()

    return app


async def main(url: str, options: dict[str, Any]) -> None:
    go_on = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, go_on.set)
    app = make_app(url, options, go_on)
    await app.start()
    say("ready")
    await app.run()
    say("ended")
    await app.close()


class WorkerProcess:
    """The parent's side. Ends with the block, stopped or not."""

    def __init__(self, url: str, **options: Any) -> None:
        command = bound([sys.executable, "-m", "tests.worker_process", url, json.dumps(options)], "KILL")
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    async def says(self, line: str) -> None:
        """Wait until it has said that."""
        await self.says_all([line])

    async def says_all(self, lines: Iterable[str]) -> None:
        """Wait until it has said all of that, in any order."""
        output, missing = self.process.stdout, set(lines)
        assert output is not None
        while missing:
            said = await asyncio.to_thread(output.readline)
            assert said, f"the process ended and never said {missing}"
            missing.discard(said.strip())

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ends(self, within: float) -> int:
        return await asyncio.to_thread(self.process.wait, within)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
