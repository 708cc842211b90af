"""A saga's own code, run without a database."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from postlude import Err, EventHandler, Ok
from postlude.core.saga.instance import Phase
from postlude.saga.plain import Saga
from postlude.testing.saga import arrives, ok
from postlude.testing.saga_perform import StepContext, go_on, perform
from tests.sagas import (
    PLAIN_ORDER,
    Approved,
    Charged,
    ChargeFailed,
    OrderPlaced,
    OrderState,
    PlaceOrder,
    Release,
    Reserve,
    Reserved,
    ReserveFailed,
)

STATE = OrderState(order_id="o-1")


async def test_a_plain_saga_is_run_to_its_end() -> None:
    done = await perform(PLAIN_ORDER, STATE)
    done.then(status="completed", told=["completed"])
    assert [state.result for state in done.instance.steps] == ["A1", "paid", None, "shipped", None]


async def test_a_fault_sends_it_back() -> None:
    back = await perform(PLAIN_ORDER, STATE, faults={"ship": Err("Sold out")})
    back.then(status="compensated", error="ship:Sold out", undone=["charge", "reserve"])


async def test_an_exception_means_that_nobody_knows() -> None:
    back = await perform(PLAIN_ORDER, STATE, faults={"charge": TimeoutError()})
    back.then(status="compensated", error="charge:TimeoutError", undone=["charge", "reserve"])
    stuck = await perform(PLAIN_ORDER, STATE, faults={"charge": Err("No"), "undo:reserve": OSError()})
    stuck.then(status="stuck", error="charge:No")
    assert stuck.stuck == ["reserve:OSError"]


async def test_an_action_sees_the_state_before_it_and_an_undo_the_result() -> None:
    seen: list[Any] = []

    async def rename(state: OrderState, ctx: StepContext) -> Ok[OrderState]:
        seen.append((state.order_id, ctx.attempt, ctx.idempotency_key))
        return Ok(replace(state, order_id="o-2"))

    async def fail(state: OrderState, ctx: StepContext) -> Err[str]:
        seen.append(state.order_id)
        await ctx.append(OrderPlaced(order_id="o-3"))
        return Err("No")

    async def rename_back(state: OrderState, ctx: StepContext) -> None:
        seen.append(ctx.result)

    saga = Saga("rename", state=OrderState).step(rename, undo=rename_back).step(fail, undo=None)
    back = await perform(saga, STATE)
    back.then(status="compensated", error="fail:No")
    assert seen == [("o-1", 1, f"{back.instance.id}:rename"), "o-2", {"order_id": "o-2"}]


class Free(EventHandler[Release, Charged, ChargeFailed]):
    def __init__(self) -> None:
        self.freed: list[str | None] = []

    async def handle(self, event: Release, ctx: Any) -> Ok[Charged] | Err[ChargeFailed]:
        self.freed.append(event.shelf)
        return Ok(Charged(order_id=event.order_id))


async def test_a_typed_saga_is_run_up_to_what_it_waits_for() -> None:
    waiting = await perform(PlaceOrder, OrderPlaced(order_id="o-1", amount=7), [Reserve()])
    waiting.then(status="running", under_way=["charge"])
    waiting.when(arrives(Charged(order_id="o-1")), arrives(Approved(order_id="o-1"))).then(status="completed")


async def test_a_typed_saga_undoes_with_the_handler_of_the_compensation() -> None:
    free = Free()
    back = await perform(PlaceOrder, OrderPlaced(order_id="o-1"), [Reserve(), free])
    back.when(arrives(ChargeFailed(order_id="o-1")))
    await go_on(back, PlaceOrder, [Reserve(), free])
    back.then(status="compensated", error="charge:ChargeFailed", undone=["reserve"])
    assert free.freed == ["A1"]


async def test_a_handler_that_says_err_or_is_missing() -> None:
    class Never(Reserve):
        async def handle(self, event: OrderPlaced) -> Ok[Reserved] | Err[ReserveFailed]:
            return Err(ReserveFailed(order_id=event.order_id))

    none = await perform(PlaceOrder, OrderPlaced(order_id="o-1"), [Never()])
    none.then(status="compensated", error="reserve:ReserveFailed")
    lost = await perform(PlaceOrder, OrderPlaced(order_id="o-1"))
    lost.then(status="stuck", error="reserve:LookupError")
    assert lost.instance["reserve"].phase is Phase.undo_gave_up


async def test_work_is_done_once() -> None:
    waiting = await perform(PlaceOrder, OrderPlaced(order_id="o-1"), [Reserve()])
    before = len(waiting.decisions)
    await go_on(waiting, PlaceOrder, [Reserve()])
    assert len(waiting.decisions) == before
    waiting.when(ok("charge")).then(under_way=["approve"])
