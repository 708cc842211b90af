"""Whatever the interleaving: nothing is stranded, one entry of a key is under way, first deliveries are in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.simulated_database import Options
from tests.unit.simulation import World

TURNS = 400
WAYS = {
    "a handler": Options(batch=1, parallel=4),
    "a handler that settles with its effect": Options(batch=1, settles=True),
    "a handler that calls out": Options(batch=1, parallel=4, claims=True),
    "a call with several entries": Options(),
    "a database that is always there": Options(losses=False),
    "a broker and a database that is always there": Options(ordered=True, parallel=1, losses=False),
    "a broker with ordered failure": Options(ordered=True, parallel=1),
    "dead letters that hold their key": Options(ordered=True, parallel=1, on_dead_blocks=True),
    "rows of raw producers": Options(
        ordered=True, parallel=1, ordered_lanes=True, settles=True, lanes=1, lanes_move=True, keys=(None,)
    ),
    "no room for waiting keys": Options(max_keys=1, lanes=1),
    "lanes that come and go": Options(lanes_move=True),
    "lanes of a broker that come and go": Options(ordered=True, parallel=1, lanes_move=True),
    "lanes of a handler that come and go": Options(batch=1, parallel=4, claims=True, lanes_move=True),
}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small crowds, so that they happen; and no log of a thousand lost connections."""
    monkeypatch.setattr("postlude.core.ready.MAX_FOLLOWERS", 2)
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("options", WAYS.values(), ids=list(WAYS))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1))
def test_order_is_kept_and_nothing_is_lost(options: Options, seed: int) -> None:
    asyncio.run(World(Random(seed), options).run(TURNS))
