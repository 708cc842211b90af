"""`postlude run`: a worker that ends when it is told to, and several that come back when they crash."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from postlude import Postlude
from postlude.ports.ownership import LiveWorker
from tests.acceptance import deaf_app
from tests.acceptance.cli_shop import APP, HANG, ONE_OF_EACH, end, finish, on_shop, place, postlude, start
from tests.databases import Databases
from tests.engine import query, until


@pytest.fixture(params=ONE_OF_EACH)
def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh()


@pytest.fixture
def started() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts commands that do not outlive the test."""
    processes: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, **given: str) -> subprocess.Popen[str]:
        processes.append(start(*arguments, **given))
        return processes[-1]

    yield begin
    for process in processes:
        end(process)


async def _counts(shop: Postlude) -> dict[str, int]:
    return await shop.insight.counts()


def _until_workers(url: str, is_enough: Callable[[list[LiveWorker]], bool]) -> list[LiveWorker]:
    """Wait until the workers that the database knows of are as they should be."""

    async def work(shop: Postlude) -> list[LiveWorker]:
        async def met() -> bool:
            return is_enough(await shop.insight.workers())

        await until(met)
        return await shop.insight.workers()

    return on_shop(url, work)


def _pid(worker: LiveWorker) -> int:
    return int(worker.name.rpartition(":")[2])


def _owned_lanes(url: str) -> int:
    async def work(shop: Postlude) -> int:
        return sum(one.lanes_owned for one in await shop.insight.destinations())

    return on_shop(url, work)


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)


def test_a_worker_delivers_until_sigterm_and_gives_its_lanes_back(started, url: str) -> None:
    process = started("run", APP, "--json", database=url)
    on_shop(url, _until_owned)
    place(url, "lamp", "chair", relay=False)

    async def delivered(shop: Postlude) -> None:
        async def nothing_is_open() -> bool:
            return not any((await _counts(shop)).values())

        await until(nothing_is_open)

    on_shop(url, delivered)
    _end(process)
    answer = finish(process)
    assert answer.code == 0, answer
    assert answer.json == {"workers": 1, "restarts": 0}
    assert _owned_lanes(url) == 0
    assert _until_workers(url, lambda workers: not workers) == []


@pytest.mark.timeout(300)
def test_several_workers_share_and_a_killed_one_comes_back(started, url: str) -> None:
    process = started("run", APP, "--workers", "2", "--json", database=url)
    first, second = _until_workers(url, lambda workers: len(workers) == 2)
    assert process.pid not in (_pid(first), _pid(second))
    os.kill(_pid(first), signal.SIGKILL)
    again = _until_workers(url, lambda workers: len(workers) == 2 and all(one.id != first.id for one in workers))
    assert second.id in {one.id for one in again}
    asyncio.run(_until_buried(url))
    _end(process)
    answer = finish(process)
    assert answer.code == 0, answer
    assert answer.json == {"workers": 2, "restarts": 1}
    assert "was killed by SIGKILL; another one starts in" in answer.err
    assert _owned_lanes(url) == 0


def test_children_end_in_good_order_when_the_parent_is_killed(started, sqlite_url: str) -> None:
    process = started("run", APP, "--workers", "2", database=sqlite_url)
    _until_workers(sqlite_url, lambda workers: len(workers) == 2)
    process.kill()
    answer = finish(process)  # reads until the children have closed their ends too
    assert answer.err.count("stopping: no new work") == 2
    assert "at once" not in answer.err
    assert _until_workers(sqlite_url, lambda workers: not workers) == []
    assert _owned_lanes(sqlite_url) == 0


def test_a_second_signal_ends_at_once(started, sqlite_url: str) -> None:
    place(sqlite_url, HANG, relay=False)
    process = started("run", APP, "--workers", "2", database=sqlite_url)
    _until_workers(sqlite_url, lambda workers: len(workers) == 2)
    on_shop(sqlite_url, _until_claimed)
    _end(process)
    _until_workers(sqlite_url, lambda workers: len(workers) < 2)  # one has nothing to wait for
    _end(process)
    assert finish(process).code == 130


def test_a_handler_that_hangs_in_its_thread_does_not_keep_the_process(started, sqlite_url: str) -> None:
    place(sqlite_url, HANG, relay=False)
    process = started("run", APP, database=sqlite_url, POSTLUDE_WORKER__SHUTDOWN_TIMEOUT="0.2")
    on_shop(sqlite_url, _until_claimed)
    _end(process)
    answer = finish(process)
    assert answer.code == 0, answer
    assert "the process ends without it" in answer.err


@pytest.mark.parametrize("vendor", ["deaf", "blocking"])
def test_a_call_that_ignores_its_cancellation_does_not_keep_the_process(started, sqlite_url: str, vendor: str) -> None:
    asyncio.run(deaf_app.ask(sqlite_url, vendor))
    process = started("run", deaf_app.APP, "--json", database=sqlite_url, POSTLUDE_WORKER__SHUTDOWN_TIMEOUT="0.2")
    on_shop(sqlite_url, _until_claimed)
    _end(process)
    answer = finish(process, timeout=20)
    assert answer.code == 0, answer
    assert answer.json == {"workers": 1, "restarts": 0}
    assert "the process ends without it" in answer.err
    assert "only expands rows" not in answer.err, "it makes calls"


async def _until_buried(url: str) -> None:
    async def is_gone() -> bool:
        return await query(url, "SELECT count(*) FROM postlude_worker") == [(2,)]

    await until(is_gone, patience=60)  # a lease, and a look at it


async def _until_owned(shop: Postlude) -> None:
    async def all_are_owned() -> bool:
        found = await shop.insight.destinations()
        return bool(found) and all(one.lanes_owned == one.lanes for one in found)

    await until(all_are_owned)


async def _until_claimed(shop: Postlude) -> None:
    async def is_claimed() -> bool:
        return (await _counts(shop))["claimed"] == 1

    await until(is_claimed)


def test_once_delivers_what_is_due_and_ends(url: str) -> None:
    place(url, "lamp", "chair", relay=False)
    answer = postlude("run", APP, "--once", "--json", database=url)
    assert (answer.code, answer.json) == (0, {"settled": 6})
    assert postlude("run", "--app", APP, "--once", "--json", database=url).json == {"settled": 0}


def test_json_logs_are_one_object_a_line(sqlite_url: str) -> None:
    place(sqlite_url, "poison", relay=False)
    answer = postlude("run", APP, "--once", database=sqlite_url, POSTLUDE_LOG__FORMAT="json")
    lines = [json.loads(line) for line in answer.err.splitlines()]
    assert [line["level"] for line in lines if "dead letter" in line["message"]] == ["error"]


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["run", "no_such_shop:app"], 2, "configuration.refused"),
        (["run"], 2, "configuration.refused"),
        (["run", APP, "--once", "--workers", "2"], 2, "configuration.refused"),
        (["run", APP, "--workers", "0"], 2, "usage"),
        (["run", APP], 3, "database.unavailable"),
    ],
)
def test_what_cannot_run_says_why(arguments: list[str], code: int, error: str) -> None:
    answer = postlude(*arguments, "--json", database="postgresql://me:s3cret@127.0.0.1:1/shop")
    assert (answer.code, answer.json["error"]["code"]) == (code, error)
    assert "s3cret" not in answer.out + answer.err
    assert "Traceback" not in answer.err
