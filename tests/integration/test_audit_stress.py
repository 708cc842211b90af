"""Eight writers at once, one chain: it verifies, and whatever is changed in it afterwards is named."""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from uuid import UUID

import pytest

from postlude import Postlude
from postlude.ports.audit import AuditEntry
from tests.databases import Databases, configured_servers
from tests.engine import make_app
from tests.source_tree import ROOT
from tests.tampering import literal, tamper

WRITERS = 8
MANY = 20_000
RECORDS = {"sqlite": 2_000}
POSTGRES = next((one.name for one in configured_servers() if one.name.endswith("16")), configured_servers()[0].name)
SERVERS = [pytest.param("sqlite", marks=pytest.mark.sqlite), pytest.param(POSTGRES, marks=pytest.mark.postgres)]
"""One of each: the versions of PostgreSQL make no difference to a chain."""
IN_ONE = 50
"""Records of one transaction: a settle of a batch writes many, an operator one."""


async def write(url: str, writer: int, count: int) -> None:
    """What each process does."""
    app = make_app(url)
    async with app:
        handles, left, chance = app.engine._handles, count, random.Random(writer)
        while left:
            size = min(left, chance.randint(1, IN_ONE))
            async with app.transaction() as tx:
                for _ in range(size):
                    entry = AuditEntry(actor=f"w{writer}", action="tested", target=str(left), detail={"writer": writer})
                    await handles.adapter(tx).play(tx, app.store.scripts.audit(entry))
                    left -= 1


async def written(app: Postlude, url: str, count: int) -> None:
    """Eight processes write while this one links."""
    command = [sys.executable, "-m", "tests.integration.test_audit_stress", url, str(count // WRITERS)]
    started = [
        await asyncio.create_subprocess_exec(*command, str(writer), cwd=ROOT, stderr=PIPE) for writer in range(WRITERS)
    ]
    ended = asyncio.gather(*(process.communicate() for process in started))
    while not ended.done():
        await app.maintenance.run("chain")
        await asyncio.wait([ended], timeout=0.2)
    said = [error.decode() for _, error in await ended]
    assert [process.returncode for process in started] == [0] * WRITERS, said


@pytest.mark.parametrize("server", SERVERS)
async def test_one_chain_of_eight_writers(server: str, databases_on: Callable[[str], Databases]) -> None:
    database_url, count = databases_on(server).fresh(), RECORDS.get(server, MANY)
    async with make_app(database_url) as app:
        await written(app, database_url, count)
        report = await app.audit.verify()
        assert (report.ok, report.records, report.links, report.position) == (True, count, count, count)
        every = [one async for one in app.audit.export()]
        assert {one.actor for one in every} == {f"w{writer}" for writer in range(WRITERS)}
        changed, removed, first, second = random.Random(6).sample(every, 4)
        ids = [literal(database_url, one.id) for one in (changed, removed, first, second)]
        nobody = literal(database_url, UUID(int=1))
        exchange = [(first.position, nobody), (second.position, ids[2]), (first.position, ids[3])]
        await tamper(
            database_url,
            f"UPDATE postlude_audit SET actor = 'nobody' WHERE id = {ids[0]}",
            f"DELETE FROM postlude_audit WHERE id = {ids[1]}",
            *(f"UPDATE postlude_audit_link SET audit_id = {id} WHERE position = {place}" for place, id in exchange),
        )
        assert {(one.kind, one.record) for one in (await app.audit.verify()).problems} == {
            ("changed", changed.id),
            ("missing", removed.id),
            ("reordered", first.id),
            ("reordered", second.id),
        }


if __name__ == "__main__":
    _, given_url, given_count, given_writer = sys.argv
    asyncio.run(write(given_url, int(given_writer), int(given_count)))
