"""Keys of data subjects, and sealing again: who is first, what is dropped for good, pages that are whole."""

# ruff: noqa: S101 - asserting is a suite's work

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from postlude.core.sealing import HEADER, Seal
from postlude.errors import IdConflict
from postlude.ports.audit import AuditEntry
from postlude.ports.operating import Operation, OperationPage
from postlude.ports.privacy import Resealed, SubjectKey
from postlude.ports.records import Filter
from postlude.testing.contracts.arrange import Arranged, StoreUnderTest, Undo, event, undone

ANN, BOB = "a" * 32, "b" * 32
KEY = bytes(range(256))
ENTRY = AuditEntry(actor="ann", action="shred", target=f"subject:{ANN}", reason="asked")


def first(subject: str, key: bytes = KEY, key_id: str = "k1") -> SubjectKey:
    return SubjectKey(subject, key_id, key)


class SubjectsContract(StoreUnderTest):
    async def _play(self, given: Arranged, script: Any) -> Any:
        async with given.store.transaction() as tx:
            return await given.adapter.play(tx, script)

    async def test_the_first_key_of_a_subject_stays(self, given: Arranged) -> None:
        scripts = given.store.subject_scripts
        assert await self._play(given, scripts.keys([ANN, BOB])) == {}
        assert await self._play(given, scripts.add([first(ANN), first(BOB, b"bob")])) == {
            ANN: first(ANN),
            BOB: first(BOB, b"bob"),
        }
        assert await self._play(given, scripts.add([first(ANN, b"other", "k2")])) == {ANN: first(ANN)}
        assert await given.store.subjects.keys([ANN, "nobody"]) == {ANN: first(ANN)}

    async def test_many_that_make_a_first_key_agree(self, given: Arranged) -> None:
        scripts = given.store.subject_scripts
        tries = (self._play(given, scripts.add([first(ANN, bytes([n]))])) for n in range(5))
        found = await asyncio.gather(*tries)
        assert len({one[ANN].key for one in found}) == 1

    async def test_a_key_comes_and_goes_with_its_transaction(self, given: Arranged) -> None:
        with undone():
            async with given.store.transaction() as tx:
                await given.adapter.play(tx, given.store.subject_scripts.add([first(ANN)]))
                raise Undo
        assert await given.store.subjects.keys([ANN]) == {}

    async def test_a_tombstone_gets_a_key_and_a_shredded_subject_none(self, given: Arranged) -> None:
        scripts = given.store.subject_scripts
        await given.run("INSERT INTO {}postlude_subject (subject, erasures) VALUES (:ann, 1)", ann=ANN)
        assert await given.store.subjects.keys([ANN]) == {ANN: SubjectKey(ANN, None, None)}
        await self._play(given, scripts.add([first(ANN)]))
        assert await self._play(given, scripts.shred(ANN, ENTRY))
        assert not await self._play(given, scripts.shred(ANN, ENTRY))
        gone = {ANN: SubjectKey(ANN, None, None, is_shredded=True)}
        assert await self._play(given, scripts.add([first(ANN)])) == gone
        assert await given.store.subjects.keys([ANN]) == gone
        (record,) = await given.store.records.audits(target=f"subject:{ANN}", limit=10)
        assert (record["actor"], record["action"], record["reason"]) == ("ann", "shred", "asked")

    async def test_a_subject_without_a_row_is_shredded_too(self, given: Arranged) -> None:
        assert await self._play(given, given.store.subject_scripts.shred(BOB, ENTRY))
        assert (await given.store.subjects.keys([BOB]))[BOB].is_shredded

    async def test_keys_are_wrapped_anew(self, given: Arranged) -> None:
        subjects = given.store.subjects
        await self._play(given, given.store.subject_scripts.add([first(ANN), first(BOB), first("c", b"c", "k2")]))
        assert await subjects.wrapped_otherwise("k2", after="", limit=10) == [first(ANN), first(BOB)]
        assert await subjects.wrapped_otherwise("k2", after=ANN, limit=10) == [first(BOB)]
        assert await subjects.wrapped_otherwise("k2", after="", limit=1) == [first(ANN)]
        pairs = [(first(ANN), first(ANN, b"new", "k2")), (first(BOB, b"not as it is"), first(BOB, b"new", "k2"))]
        entry = AuditEntry(actor="ann", action="rewrap", target="key:k2", reason="yearly")
        assert await subjects.rewrap(pairs, entry) == 1
        assert await subjects.rewrap(pairs, entry) == 0
        assert await subjects.keys([ANN, BOB]) == {ANN: first(ANN, b"new", "k2"), BOB: first(BOB)}
        (record,) = await given.store.records.audits(target="key:k2", limit=10)
        assert record["detail"] == {"keys": 1}

    # ------------------------------------------------------------ sealing again

    async def test_what_other_keys_have_sealed_is_sealed_again(self, given: Arranged) -> None:
        ids = await given.append(_sealed("k1"), _sealed("k2"), _sealed("k1"), _sealed(None), event())
        operations = given.store.operations
        meant = _operation()
        assert await operations.count(meant, []) == 2
        begun = await operations.begin(meant)
        page = await operations.page(begun, [], 1)
        (row,) = page.rows
        assert row["event"] == (await given.store.reading.events([row["event_id"]]))[row["event_id"]]
        changed = await operations.reseal(begun, page, [_again(row["event_id"])])
        assert changed == [row["event_id"]]
        assert await operations.reseal(begun, page, [_again(row["event_id"])]) is None, "it stands elsewhere"
        now = await operations.get(begun.id)
        assert now is not None
        assert (now.done, now.cursor) == (1, page.cursor)
        rest = await operations.page(now, [], 10)
        assert {row["event_id"], *(one["event_id"] for one in rest.rows)} == {ids[0], ids[2]}
        found = (await given.store.reading.events([row["event_id"]]))[row["event_id"]]
        assert (found.payload, found.headers[HEADER], found.headers["own"]) == (b"again", _header("k2"), "h")
        (record,) = await given.store.records.audits(target=str(begun.id), limit=10)
        assert (record["action"], record["detail"]) == ("reseal", {"events": 1, "key": "k2"})

    async def test_an_event_that_is_not_as_it_was_is_left_alone(self, given: Arranged) -> None:
        (event_id,) = await given.append(_sealed("k1"))
        begun = await given.store.operations.begin(_operation())
        page = await given.store.operations.page(begun, [], 10)
        other = msgspec.structs.replace(_again(event_id), was=_header("k7"))
        assert await given.store.operations.reseal(begun, page, [other, _again(uuid4())]) == []
        assert (await given.store.reading.events([event_id]))[event_id].payload == b"{}"
        now = await given.store.operations.get(begun.id)
        assert now is not None
        assert (now.done, await given.store.operations.page(now, [], 10)) == (0, OperationPage([], page.cursor))

    async def test_content_is_the_same_under_any_of_its_digests(self, given: Arranged) -> None:
        event_id = uuid4()
        await given.append(event(id=event_id, digest=b"by k1"))
        await given.append(event(id=event_id, digest=b"by k2", also=(b"by k1",)))
        with pytest.raises(IdConflict):
            await given.append(event(id=event_id, digest=b"by k2", also=(b"by k0",)))


def _header(key: str | None) -> str:
    return Seal(scheme=1, key=key, subject=None if key else ANN, paths=("/a",)).written()


def _sealed(key: str | None) -> Any:
    return event(headers=msgspec.json.encode({HEADER: _header(key), "own": "h"}).decode())


def _again(event_id: UUID) -> Resealed:
    return Resealed(event_id, _header("k1"), _header("k2"), b"again", b"digest")


def _operation() -> Operation:
    return Operation(id=uuid4(), action="reseal", filter=Filter(), actor="ann", reason="yearly", destination="k2")
