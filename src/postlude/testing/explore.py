"""Every schedule of a saga, up to a bound: failures, duplicates, delays and deadlines in every order, without a database.

def test_no_schedule_breaks_it() -> None:
explore(PlaceOrder).check()
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from postlude.core.saga.decide import decide
from postlude.core.saga.definition import Definition
from postlude.saga.compiled import Declared, compiled
from postlude.testing.saga_moves import Engine, Rules
from postlude.testing.saga_world import Faults, Move, ended_badly

DEPTH = 120
"""Moves in one schedule; no sound saga of a dozen steps needs as many."""


class Exploration(msgspec.Struct, frozen=True):
    """What was tried. `path` is the shortest way to the first broken invariant."""

    saga: str
    schedules: int
    worlds: int
    breach: str | None = None
    path: tuple[str, ...] = ()

    def check(self) -> Exploration:
        """Raises AssertionError with the shortest path if an invariant broke."""
        if self.breach is not None:
            steps = "\n".join(f"  {number}. {label}" for number, label in enumerate(self.path, start=1))
            raise AssertionError(f"saga {self.saga}: {self.breach}, after\n{steps}")
        return self


def explore(
    saga: Declared | Definition,
    faults: Faults = Faults(),  # noqa: B008 - frozen
    *,
    engine: Engine = decide,
    depth: int = DEPTH,
) -> Exploration:
    """Breadth first, so that the first breach is a shortest one. Worlds that are alike are looked at once; schedules
    are counted as the ways through them."""
    definition = saga if isinstance(saga, Definition) else compiled(saga).definition
    return _Search(Rules(definition, engine, faults), depth).run()


class _Search:
    def __init__(self, rules: Rules, depth: int) -> None:
        self._rules = rules
        self._depth = depth
        self._numbers: dict[Any, int] = {}
        self._came_by: list[tuple[int, str]] = []
        """By world: the one before it, and how."""
        self._next: list[list[int]] = []
        self._ends: list[int] = []

    def run(self) -> Exploration:
        first = self._rules.first()
        if first.breach is not None:
            return self._broken(first.breach, -1, first.label)
        frontier = deque([(first.world, self._number(first, -1), 1)])
        while frontier:
            world, number, depth = frontier.popleft()
            if world.is_quiet and (breach := ended_badly(self._rules.definition, world)) is not None:
                return self._broken(breach, number)
            if depth >= self._depth:
                return self._broken(f"no end within {self._depth} moves", number)
            if world.is_quiet:
                self._ends.append(number)
            for move in self._rules.moves(world):
                if move.breach is not None:
                    return self._broken(move.breach, number, move.label)
                known = len(self._numbers)
                reached = self._number(move, number)
                self._next[number].append(reached)
                if reached == known:
                    frontier.append((move.world, reached, depth + 1))
        return self._counted()

    def _number(self, move: Move, before: int) -> int:
        number = self._numbers.setdefault(move.world.identity, len(self._numbers))
        if number == len(self._came_by):
            self._came_by.append((before, move.label))
            self._next.append([])
        return number

    def _broken(self, breach: str, number: int, last: str | None = None) -> Exploration:
        path = [] if last is None else [last]
        while number >= 0:
            number, label = self._came_by[number]
            path.append(label)
        return Exploration(self._rules.definition.name, 0, len(self._numbers), breach, tuple(reversed(path)))

    def _counted(self) -> Exploration:
        """Ways from the first world to each quiet one."""
        waiting = [0] * len(self._next)
        for followers in self._next:
            for follower in followers:
                waiting[follower] += 1
        ways = [1] + [0] * (len(self._next) - 1)
        free = [0]
        passed = 0
        while free:
            number = free.pop()
            passed += 1
            for follower in self._next[number]:
                ways[follower] += ways[number]
                waiting[follower] -= 1
                if not waiting[follower]:
                    free.append(follower)
        if passed < len(ways):
            return self._broken("no end: it goes round in circles", waiting.index(max(waiting)))
        return Exploration(self._rules.definition.name, sum(ways[end] for end in self._ends), len(ways))
