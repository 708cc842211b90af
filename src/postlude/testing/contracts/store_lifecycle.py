"""The lifecycle: the database refuses what core.lifecycle does not know."""

from __future__ import annotations

from typing import Any

import pytest

from postlude.core.lifecycle import BIRTHS, OPEN, Status
from postlude.testing.contracts.arrange import Arranged, StoreUnderTest, event

CHANGE = "UPDATE {}postlude_delivery SET status = :status, blocks = false WHERE seq = :seq"
BEAR = (
    "INSERT INTO {}postlude_delivery (event_id, destination, status)"
    " SELECT event_id, :destination, :status FROM {}postlude_event"
)


class LifecycleContract(StoreUnderTest):
    @pytest.mark.parametrize("was", OPEN)
    async def test_a_status_changes_only_as_the_lifecycle_says(
        self, given: Arranged, refusal: Any, was: Status
    ) -> None:
        for becomes in OPEN:
            await given.append(event())
            seq = (await given.seqs())[-1]
            if was is not Status.pending:
                await given.run(CHANGE, status=str(was), seq=seq)
            if was.can_become(becomes):
                await given.run(CHANGE, status=str(becomes), seq=seq)
            else:
                with pytest.raises(refusal):
                    await given.run(CHANGE, status=str(becomes), seq=seq)

    @pytest.mark.parametrize("status", OPEN)
    async def test_a_delivery_is_born_only_as_the_lifecycle_says(
        self, given: Arranged, refusal: Any, status: Status
    ) -> None:
        await given.append(event(to=()))
        if status in BIRTHS:
            await given.run(BEAR, destination="elsewhere", status=str(status))
        else:
            with pytest.raises(refusal):
                await given.run(BEAR, destination="elsewhere", status=str(status))

    async def test_an_unknown_status_is_refused(self, given: Arranged, refusal: Any) -> None:
        await given.append(event())
        with pytest.raises(refusal):
            await given.run(CHANGE, status="lost", seq=(await given.seqs())[0])

    async def test_only_an_entry_with_a_key_can_block(self, given: Arranged, refusal: Any) -> None:
        await given.append(event())
        with pytest.raises(refusal):
            await given.run("UPDATE {}postlude_delivery SET status = 'failed', blocks = true")

    async def test_priority_and_key_exclude_each_other(self, given: Arranged, refusal: Any) -> None:
        with pytest.raises(refusal):
            await given.append(event("a", priority=0))

    async def test_an_event_goes_to_a_destination_once_at_a_time(self, given: Arranged, refusal: Any) -> None:
        await given.append(event())
        with pytest.raises(refusal):
            await given.run(BEAR, destination="broker", status="pending")
