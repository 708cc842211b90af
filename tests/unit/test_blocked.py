from __future__ import annotations

from postlude.core import blocked as module
from postlude.core.blocked import BlockedMap


def test_a_key_waits_from_its_first_entry_on() -> None:
    held = BlockedMap()
    assert held.hold("a", 3, 7)
    assert held.hold("a", 3, 5)
    assert held.hold("a", 3, 9)
    assert list(held.items()) == [("a", 5)]
    waiting = held.free("a")
    assert waiting is not None
    assert (waiting.lane, waiting.seq) == (3, 5)
    assert "a" not in held
    assert held.free("a") is None


def test_what_does_not_fit_is_not_remembered() -> None:
    held = BlockedMap(max_keys=1)
    assert held.hold("a", 0, 1)
    assert not held.hold("b", 0, 2)
    assert held.hold("a", 0, 0)
    assert len(held) == 1


def test_keys_of_lanes_that_are_gone_are_forgotten_with_what_is_due() -> None:
    held = BlockedMap()
    held.hold("a", 0, 1)
    held.hold_due("a", 0, 2)
    held.hold_due("b", 1, 3)
    held.drop_lanes([0, 7])
    assert list(held.items()) == [("b", 3)]
    assert held.due == {3}


def test_due_entries_are_left_out_until_their_key_is_free() -> None:
    held = BlockedMap(max_keys=1)
    held.hold("a", 0, 5)
    held.hold_due("b", 0, 9)
    held.hold_due("b", 0, 8)
    assert held.due == {8, 9}
    assert dict(held.items()) == {"a": 5, "b": 8}
    held.free("b")
    assert held.due == set()


def test_due_entries_are_bounded_too(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_DUE", 2)
    held = BlockedMap()
    for seq in (1, 2, 3):
        held.hold_due(f"k{seq}", 0, seq)
    assert held.due == {1, 2}
    assert "k3" not in held
