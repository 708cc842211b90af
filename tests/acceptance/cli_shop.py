"""The app that the tests of the command line name as `tests.acceptance.cli_shop:app`, and ways to run commands."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar
from uuid import UUID

import pytest

from postlude import Event, Postlude, Reject, Settings, event
from postlude.cli.main import execute
from tests.databases import configured_servers
from tests.source_tree import ROOT

T = TypeVar("T")
ONE_OF_EACH = [
    pytest.param("sqlite", marks=pytest.mark.sqlite, id="sqlite"),
    pytest.param(configured_servers()[0].name, marks=pytest.mark.postgres, id="postgres"),
]
"""Both kinds of database; the versions of PostgreSQL make no difference to commands."""

DATABASE = "POSTLUDE_TEST_CLI_DATABASE"
APP = "tests.acceptance.cli_shop:app"
POISON = "poison"
HANG = "hang"


@event(key="order_id")
class OrderPlaced(Event):
    order_id: str
    product: str = "lamp"


def shop_on(url: str) -> Postlude:
    settings = Settings.load(retry={"base_delay_seconds": 0}, lane={"lease": 4.0})
    shop = Postlude(url, broker="memory://", settings=settings)
    shop.route(OrderPlaced)

    @shop.on(OrderPlaced, name="reserve")
    async def reserve(order: OrderPlaced) -> None:
        if order.product == POISON:
            raise Reject("no shelf fits")

    @shop.on(OrderPlaced, name="wait", transactional=False)
    def wait(order: OrderPlaced) -> None:
        if order.product == HANG:
            time.sleep(600)  # longer than anybody waits for the process

    return shop


app = shop_on(os.environ.get(DATABASE, "sqlite:///nowhere.db"))


def on_shop(url: str, work: Callable[[Postlude], Awaitable[T]]) -> T:
    """Do something with the shop on that database, in this process."""

    async def within() -> T:
        shop = shop_on(url)
        try:
            return await work(shop)
        finally:
            await shop.close()

    return asyncio.run(within())


def place(url: str, *products: str, relay: bool = True) -> list[UUID]:
    """Orders o-0, o-1, ... of these products; delivered as far as they can be."""

    async def work(shop: Postlude) -> list[UUID]:
        async with shop.transaction() as tx:
            placed = [OrderPlaced(order_id=f"o-{number}", product=product) for number, product in enumerate(products)]
            ids = await shop.outbox.append_many(tx, placed)
        if relay:
            await shop.drain()
        return ids

    return on_shop(url, work)


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @cached_property
    def json(self) -> Any:
        lines = self.out.splitlines()
        assert len(lines) == 1, self
        return json.loads(lines[0])


class InProcess:
    """Runs commands in this process: no start-up, same code."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Answer:
        self._capsys.readouterr()
        code = execute(arguments)
        said = self._capsys.readouterr()
        return Answer(code, said.out, said.err)


def start(*arguments: str, database: str = "", **env: str) -> subprocess.Popen[str]:
    """Start `postlude ...` as a user would, on the shop's database and with its output in a pipe."""
    inherited = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.Popen(
        [sys.executable, "-m", "postlude.cli.main", *arguments],
        cwd=ROOT,
        env={**inherited, DATABASE: database, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str], timeout: float = 90) -> Answer:
    out, err = process.communicate(timeout=timeout)
    return Answer(process.returncode, out, err)


def end(process: subprocess.Popen[str]) -> None:
    """Whatever state it is in."""
    process.kill()
    if process.stdout is not None and not process.stdout.closed:
        process.communicate()


def postlude(*arguments: str, database: str = "", **env: str) -> Answer:
    process = start(*arguments, database=database, **env)
    try:
        return finish(process)
    finally:
        end(process)


def items(answer: Answer, *names: str) -> Sequence[tuple[Any, ...]]:
    """Some fields of what `outbox list --json` gave."""
    return [tuple(item[name] for name in names) for item in answer.json["items"]]
