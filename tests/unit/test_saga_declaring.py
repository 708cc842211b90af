"""How sagas are declared, what they compile to, and every declaration that is refused at start-up."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any, NewType
from uuid import UUID

import pytest
from msgspec.structs import replace

from postlude import ConfigurationError, Err, Event, EventHandler, Ok, Retry, event
from postlude.core.saga.definition import Definition, Kind, Replies, Way
from postlude.saga.compiled import Declared, compiled
from postlude.saga.filling import command_event, compensation_event
from postlude.saga.plain import Saga, step
from postlude.saga.step import SagaStep
from postlude.saga.typed import SagaDef
from tests.sagas import (
    APPROVE,
    CHARGE,
    LINEAR,
    ORDERS,
    PLAIN_ORDER,
    RESERVE,
    Approved,
    Charge,
    Charged,
    ChargeFailed,
    OrderPlaced,
    OrderState,
    PlaceOrder,
    Refund,
    Refunded,
    Refused,
    Release,
    Reserve,
    Reserved,
    ReserveFailed,
    charge,
    note,
    refund,
    release,
    reserve,
    ship,
)


def typed(*steps: SagaStep, **attributes: Any) -> SagaDef[OrderPlaced, str]:
    class Shop(SagaDef[OrderPlaced, str]):
        name = "shop"
        correlation_field = "order_id"

    Shop.steps = steps
    for attribute, value in attributes.items():
        setattr(Shop, attribute, value)
    return Shop()


def refusal(saga: Declared) -> str:
    with pytest.raises(ConfigurationError) as refused:
        compiled(saga)
    assert refused.value.hint
    return str(refused.value.args[0])


# ------------------------------------------------------------ what is made of it


def test_a_typed_saga_compiles_to_its_steps() -> None:
    definition = compiled(PlaceOrder).definition
    assert definition.name == "place_order"
    assert definition.deadline == 3600
    reserved, charged, approved = definition.steps
    assert (reserved.kind, reserved.way, reserved.undo, reserved.takes) == (
        Kind.compensatable,
        Way.handler,
        Way.handler,
        None,
    )
    assert (charged.kind, charged.way, charged.undo, charged.deadline) == (Kind.pivot, Way.command, Way.command, 300)
    assert charged.replies == Replies("charged", "charge.failed", "refunded", "refund.failed")
    assert charged.retry == Retry(5)
    assert (approved.kind, approved.way, approved.undo) == (Kind.retriable, Way.wait, None)
    assert approved.replies == Replies("approved", "refused")


def test_a_plain_saga_compiles_to_the_same_kind_of_definition() -> None:
    definition = compiled(PLAIN_ORDER).definition
    assert [step.name for step in definition.steps] == ["reserve", "charge", "note", "ship", "mail"]
    assert definition.stages == ((0,), (1, 2), (3,), (4,))
    assert [step.kind.value for step in definition.steps] == ["compensatable"] * 3 + ["pivot", "retriable"]
    assert [step.undo for step in definition.steps] == [Way.handler, Way.handler, None, None, None]


def test_a_saga_is_never_changed_by_a_further_step() -> None:
    one = ORDERS.step(reserve, undo=release)
    two = one.step(charge, undo=refund)
    assert (len(ORDERS.steps), len(one.steps), len(two.steps)) == (0, 1, 2)


def test_two_blocks_one_after_the_other_stay_two() -> None:
    saga = ORDERS.parallel(step(reserve, undo=None), step(note, undo=None)).parallel(
        step(charge, undo=None), step(ship, undo=None)
    )
    assert compiled(saga).definition.stages == ((0, 1), (2, 3))


def test_a_handler_may_serve_several_sagas() -> None:
    assert compiled(typed(RESERVE)).definition.steps[0] == compiled(typed(RESERVE, name="other")).definition.steps[0]


class Count(EventHandler[Reserved, Charged, ChargeFailed]):
    async def handle(self, event: Reserved) -> Ok[Charged] | Err[ChargeFailed]:
        return Ok(Charged(order_id=event.order_id))


COUNT = SagaStep("count", handler=Count, success=Charged, failure=ChargeFailed, compensation=None)


def test_a_handler_is_given_the_event_it_takes() -> None:
    assert compiled(typed(RESERVE, APPROVE, COUNT)).definition["count"].takes == "reserve"


def test_the_step_is_told_apart_from_what_it_was_made_with() -> None:
    with pytest.raises(TypeError, match="no argument colour"):
        SagaStep("a", wait=Approved, colour="red")  # type: ignore[call-overload]


# ------------------------------------------------------------ identity


def test_ids_of_plain_types_need_no_methods() -> None:
    OrderNumber = NewType("OrderNumber", int)

    class Numbered(SagaDef[OrderPlaced, OrderNumber]):
        correlation_field = "order_id"

    class Unique(SagaDef[OrderPlaced, UUID]):
        correlation_field = "order_id"

    assert Numbered().deserialize_id(Numbered().serialize_id(OrderNumber(7))) == 7
    assert Unique().deserialize_id(Unique().serialize_id(UUID(int=7))) == UUID(int=7)
    placed = OrderPlaced(order_id="o-1")
    assert PlaceOrder().extract_id(placed) == PlaceOrder().process_id(placed) == "o-1"


def test_an_id_that_cannot_be_written_is_refused_when_it_comes() -> None:
    with pytest.raises(ConfigurationError, match="saga place_order cannot write an id of type float"):
        PlaceOrder().serialize_id(1.5)  # type: ignore[arg-type]


# ------------------------------------------------------------ commands and compensations


async def test_a_command_is_made_of_what_is_known() -> None:
    known = [OrderPlaced(order_id="o-1", amount=7), Reserved(order_id="o-1")]
    assert await command_event(PlaceOrder(), "o-1", CHARGE, known) == Charge(order_id="o-1", amount=7)


async def test_a_compensation_is_made_of_what_it_undoes() -> None:
    known = [OrderPlaced(order_id="o-1"), Reserved(order_id="o-1", shelf="B2")]
    assert await compensation_event(PlaceOrder(), "o-1", RESERVE, known) == Release(order_id="o-1", shelf="B2")
    assert await compensation_event(PlaceOrder(), "o-1", RESERVE, known[:1]) == Release(order_id="o-1", shelf=None)


async def test_a_saga_may_say_that_there_is_nothing_to_undo() -> None:
    class Careless(PlaceOrder):
        async def on_compensate(self, id: str, step: SagaStep) -> None:
            return None

    assert await compensation_event(Careless(), "o-1", RESERVE, []) is None


async def test_a_saga_may_make_its_command_itself() -> None:
    class Dear(PlaceOrder):
        async def on_command(self, id: str, step: SagaStep) -> Charge:
            return Charge(order_id=id, amount=99)

    assert await command_event(Dear(), "o-1", CHARGE, []) == Charge(order_id="o-1", amount=99)


# ------------------------------------------------------------ the hash


def test_the_hash_is_the_same_in_every_process() -> None:
    program = "from tests.sagas import PlaceOrder\nfrom postlude.saga.compiled import compiled\nprint(compiled(PlaceOrder).definition.hash)"
    printed = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert printed.stdout.strip() == compiled(PlaceOrder).definition.hash


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "z"},
        {"kind": Kind.pivot},
        {"way": Way.wait},
        {"undo": Way.handler},
        {"block": "x"},
        {"takes": "a"},
        {"replies": Replies("done")},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_the_hash_covers_what_an_instance_needs_to_go_on(changed: dict[str, Any]) -> None:
    other = replace(LINEAR, steps=(*LINEAR.steps[:-1], replace(LINEAR.steps[-1], **changed)))
    assert other.hash != LINEAR.hash


def test_times_and_retries_may_change() -> None:
    other = Definition(
        name=LINEAR.name,
        steps=tuple(replace(step, deadline=5.0, retry=Retry(2)) for step in LINEAR.steps),
        deadline=60.0,
    )
    assert other.hash == LINEAR.hash


# ------------------------------------------------------------ refused, in both styles


def test_a_step_that_does_not_name_its_undo() -> None:
    silent = SagaStep("reserve", handler=Reserve, success=Reserved, failure=ReserveFailed)
    assert refusal(typed(silent)) == "saga shop, step reserve: it does not say how it is undone"
    assert refusal(ORDERS.step(reserve)) == "saga orders, step reserve: it does not say how it is undone"
    assert refusal(ORDERS.parallel(step(reserve))) == "saga orders, step reserve: it does not say how it is undone"


def test_a_compensatable_step_after_the_pivot() -> None:
    after = "it is compensatable and stands after the pivot"
    back = SagaStep("back", wait=Approved, compensation=Release)
    said = SagaStep("said", wait=Approved, compensation=None, kind="compensatable")
    assert refusal(typed(RESERVE, CHARGE, back)) == f"saga shop, step back: {after} charge"
    assert refusal(typed(RESERVE, CHARGE, said)) == f"saga shop, step said: {after} charge"
    assert refusal(ORDERS.pivot(ship).step(reserve, undo=release)) == f"saga orders, step reserve: {after} ship"


def test_after_the_pivot_nothing_need_be_said_of_an_undo() -> None:
    steps = (RESERVE, CHARGE, SagaStep("approve", wait=Approved, kind="retriable"))
    assert compiled(typed(*steps)).definition["approve"].undo is None


def test_a_retriable_step_without_a_pivot_before_it() -> None:
    lonely = SagaStep("approve", wait=Approved, compensation=None, kind="retriable")
    assert "step approve: it is retriable and no pivot stands before it" in refusal(typed(lonely))


def test_two_pivots() -> None:
    assert "step mail: ship is the pivot already" in refusal(ORDERS.pivot(ship).pivot(note, name="mail"))


def test_a_kind_nobody_knows() -> None:
    odd = SagaStep("approve", wait=Approved, compensation=None, kind="odd")  # type: ignore[call-overload]
    assert "step approve: 'odd' is no kind of step" in refusal(typed(odd))


def test_two_steps_of_one_name() -> None:
    assert refusal(typed(RESERVE, RESERVE)) == "saga shop, step reserve: there are 2 steps of this name"
    twice = ORDERS.step(reserve, undo=None).step(reserve, undo=None)
    assert refusal(twice) == "saga orders, step reserve: there are 2 steps of this name"


@pytest.mark.parametrize("name", ["", "a b", "a:b", "x" * 129])
def test_names_that_are_none(name: str) -> None:
    assert refusal(typed(RESERVE, name=name)) == f"{name!r} is not a saga name"
    assert "is not a step name" in refusal(typed(SagaStep(name, wait=Approved, compensation=None)))


def test_a_lambda_has_no_name() -> None:
    assert "'<lambda>' is not a step name" in refusal(ORDERS.step(lambda state, _: note(state, None), undo=None))


def test_no_steps() -> None:
    assert refusal(typed()) == "saga shop: it has no steps"
    assert refusal(ORDERS) == "saga orders: it has no steps"


@pytest.mark.parametrize("deadline", [timedelta(0), timedelta(seconds=-1), 5], ids=str)
def test_deadlines_that_are_none(deadline: Any) -> None:
    step = SagaStep("approve", wait=Approved, compensation=None, deadline=deadline)
    assert f"step approve: {deadline!r} is no deadline" in refusal(typed(step))
    assert f"saga shop: {deadline!r} is no deadline" in refusal(typed(RESERVE, deadline=deadline))


def test_a_retry_that_is_none() -> None:
    assert "step reserve: 5 says not how to retry" in refusal(ORDERS.step(reserve, undo=None, retry=5))  # type: ignore[arg-type]


def test_a_pivot_in_a_block() -> None:
    block = typed(SagaStep("approve", wait=Approved, compensation=None, kind="pivot", block="b"))
    assert refusal(block) == "saga shop, step approve: the pivot cannot stand in block b"


def test_a_block_that_is_interrupted() -> None:
    first = SagaStep("one", wait=Approved, compensation=None, block="b")
    last = SagaStep("two", wait=Refused, compensation=None, block="b")
    assert refusal(typed(first, RESERVE, last)) == "saga shop, step two: block b was begun before and is interrupted"


# ------------------------------------------------------------ refused, typed


def test_no_way_or_two_ways_to_do_a_step() -> None:
    assert "step a: it names none of them" in refusal(typed(SagaStep("a", success=Approved, compensation=None)))  # type: ignore[call-overload]
    both = SagaStep("a", wait=Approved, command=Charge, compensation=None)  # type: ignore[call-overload]
    assert "step a: it names command and wait" in refusal(typed(both))


def test_a_command_without_a_topic_or_a_success() -> None:
    bare = SagaStep("a", command=Charge, success=Charged, compensation=None)  # type: ignore[call-overload]
    assert "step a: its command has no topic" in refusal(typed(bare))
    bare = SagaStep("a", command=Charge, topic="t", compensation=None)  # type: ignore[call-overload]
    assert "step a: it names no success event" in refusal(typed(bare))


def test_a_remote_undo_that_never_replies() -> None:
    step = SagaStep("a", command=Charge, topic="t", success=Charged, compensation=Refund)
    assert "step a: its undo is a participant's, and nothing says when it is done" in refusal(typed(step))


def test_replies_to_an_undo_that_nobody_is_asked_for() -> None:
    sentence = "step a: it names replies to an undo that no participant is asked for"
    local = SagaStep("a", wait=Approved, compensation=Release, compensated=Refunded)  # type: ignore[call-overload]
    assert sentence in refusal(typed(local))
    none = SagaStep("a", command=Charge, topic="t", success=Charged, compensation=None, compensated=Refunded)
    assert sentence in refusal(typed(none))


@pytest.mark.parametrize(
    ("success", "failure", "sentence"),
    [
        (Charged, ReserveFailed, "returns Ok[Reserved], and the step's success is Charged"),
        (Reserved, ChargeFailed, "returns Err[ReserveFailed], and the step's failure is ChargeFailed"),
        (Reserved, None, "returns Err[ReserveFailed], and the step's failure is None"),
    ],
)
def test_a_handler_of_other_types(success: Any, failure: Any, sentence: str) -> None:
    step = SagaStep("reserve", handler=Reserve, success=success, failure=failure, compensation=None)
    assert refusal(typed(step)) == f"saga shop, step reserve: handler Reserve {sentence}"


def test_a_handler_whose_annotation_says_something_else() -> None:
    class Strange(EventHandler[OrderPlaced, Reserved, ReserveFailed]):
        async def handle(self, event: OrderPlaced) -> Ok[Charged]:  # type: ignore[override]
            return Ok(Charged(order_id=""))

    step = SagaStep("odd", handler=Strange, success=Reserved, failure=ReserveFailed, compensation=None)
    assert "handler Strange returns Ok[Charged], and the step's success is Reserved" in refusal(typed(step))


def test_a_handler_that_cannot_fail_needs_no_failure() -> None:
    class Sure(EventHandler[OrderPlaced, Reserved, None]):
        async def handle(self, event: OrderPlaced) -> Ok[Reserved]:
            return Ok(Reserved(order_id=""))

    saga = typed(SagaStep("sure", handler=Sure, success=Reserved, compensation=None))
    assert compiled(saga).definition["sure"].replies.failure is None


def test_a_handler_without_types_or_no_handler_at_all() -> None:
    class Bare(EventHandler):  # type: ignore[type-arg]
        pass

    step = SagaStep("bare", handler=Bare, success=Reserved, compensation=None)
    assert "handler Bare does not say what it takes and returns" in refusal(typed(step))
    step = SagaStep("bare", handler=Reserved, success=Reserved, compensation=None)  # type: ignore[arg-type]
    assert "Reserved is no EventHandler class" in refusal(typed(step))


def test_a_step_that_is_never_reached() -> None:
    sentence = "saga shop, step count: it is never reached: its handler takes Reserved, which nothing before it brings"
    assert refusal(typed(COUNT, RESERVE)) == sentence
    beside = SagaStep("beside", handler=Reserve, success=Reserved, failure=ReserveFailed, compensation=None, block="b")
    within = SagaStep("count", handler=Count, success=Charged, failure=ChargeFailed, compensation=None, block="b")
    assert refusal(typed(beside, within)) == sentence


@event
class Astray(Event):
    number: int


def test_an_event_without_the_correlation_field() -> None:
    sentence = "Astray has no field 'order_id' to tell whose it is"
    assert refusal(typed(SagaStep("a", wait=Astray, compensation=None))) == f"saga shop, step a: success {sentence}"
    undo = SagaStep("a", wait=Approved, compensation=Astray)
    assert refusal(typed(undo)) == f"saga shop, step a: compensation {sentence}"

    class Lost(SagaDef[Astray, str]):
        name = "lost"
        correlation_field = "order_id"
        steps = (APPROVE,)

    assert refusal(Lost()) == f"saga lost: its trigger {sentence}"

    class Found(Lost):
        def extract_id(self, event: Astray) -> str:
            return str(event.number)

    assert compiled(Found()).definition.name == "lost"


def test_no_correlation_field() -> None:
    assert refusal(typed(RESERVE, correlation_field="")) == "saga shop: nothing says whose its events are"


def test_classes_that_are_no_events() -> None:
    assert "step a: success str is no event class" in refusal(typed(SagaStep("a", wait=str, compensation=None)))


def test_one_event_that_means_two_things() -> None:
    step = SagaStep("a", wait=Approved, failure=Approved, compensation=None)
    assert "step a: one event type means two things" in refusal(typed(step))


def test_two_branches_that_wait_for_the_same_event() -> None:
    steps = [SagaStep(name, wait=Approved, compensation=None, block="b") for name in ("one", "two")]
    assert "step one: two in the same block is ended by the same event Approved" in refusal(typed(*steps))


def test_a_command_that_cannot_be_made_of_what_is_known() -> None:
    @event
    class Dear(Event):
        order_id: str
        card: str

    step = SagaStep("pay", command=Dear, topic="t", success=Charged, compensation=None)
    assert "step pay: command Dear needs card, which no event before it has" in refusal(typed(step))
    undo = SagaStep("pay", command=Charge, topic="t", success=Charged, compensation=Dear, compensated=Refunded)
    assert "step pay: compensation Dear needs card, which no event before it has" in refusal(typed(undo))


def test_ids_that_cannot_be_written() -> None:
    class Floating(SagaDef[OrderPlaced, float]):
        name = "floating"
        correlation_field = "order_id"
        steps = (APPROVE,)

    assert refusal(Floating()) == "saga floating: ids of type float cannot be written"


def test_a_saga_that_does_not_say_what_starts_it() -> None:
    class Unsaid(SagaDef):  # type: ignore[type-arg]
        name = "unsaid"
        steps = (APPROVE,)

    assert "Unsaid does not say what starts it" in refusal(Unsaid())


def test_something_that_is_no_saga() -> None:
    assert refusal(5) == "5 is no saga"  # type: ignore[arg-type]


# ------------------------------------------------------------ refused, plain


def test_functions_of_another_shape() -> None:
    def slow(state: OrderState, ctx: Any) -> Any: ...
    async def alone(state: OrderState) -> Any: ...
    async def other(state: Charged, ctx: Any) -> Ok[None]: ...  # type: ignore[empty-body]
    async def number(state: OrderState, ctx: Any) -> int: ...  # type: ignore[empty-body]

    where = "saga orders, step"
    assert refusal(ORDERS.step(slow, undo=None)) == f"{where} slow: its action slow is no async function"
    assert "step alone: its action alone takes 1 parameters, not (state, ctx)" in refusal(ORDERS.step(alone, undo=None))  # type: ignore[arg-type]
    assert "its undo slow is no async function" in refusal(ORDERS.step(reserve, undo=slow))
    assert "takes Charged, and the saga's state is OrderState" in refusal(ORDERS.step(other, undo=None))  # type: ignore[arg-type]
    assert "declares to return neither Ok nor Err" in refusal(ORDERS.step(number, undo=None))  # type: ignore[arg-type]


def test_a_state_that_is_no_class() -> None:
    assert "5 is no class" in refusal(Saga("odd", state=5).step(reserve, undo=None))  # type: ignore[arg-type]
