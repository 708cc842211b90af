from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from postlude.core.horizon import Horizon


class Appending(RuleBasedStateMachine):
    """Transactions take a lock, then seqs, then end; a watcher asks in three statements, with anything in between."""

    def __init__(self) -> None:
        super().__init__()
        self.horizon = Horizon()
        self.last = 0
        self.begun = 0
        self.open: dict[str, list[int]] = {}
        self.visible: set[int] = set()
        self.told: set[int] = set()
        self.asked: int | None = None
        self.after: int | None = None

    @rule()
    def begin(self) -> None:
        self.begun += 1
        self.open[f"transaction {self.begun}"] = []

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        self.last += 1
        self.open[data.draw(st.sampled_from(sorted(self.open)))].append(self.last)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commits=st.booleans())
    def end(self, data: st.DataObject, commits: bool) -> None:
        seqs = self.open.pop(data.draw(st.sampled_from(sorted(self.open))))
        if commits:
            self.visible.update(seqs)

    @rule()
    def ask(self) -> None:
        """The next statement of the watcher: the last seq, the appenders, or the news."""
        if self.after is not None:
            self.told |= {seq for seq in self.visible if seq > self.after}
            self.after = None
        elif self.asked is None:
            self.asked = self.last
        else:
            self.after = self.horizon.observe(self.asked, frozenset(self.open))
            self.asked = None

    @invariant()
    def nothing_can_appear_below_it(self) -> None:
        for seqs in self.open.values():
            assert all(seq > self.horizon.stable for seq in seqs)

    @invariant()
    def it_is_not_ahead_of_the_sequence(self) -> None:
        assert 0 <= self.horizon.stable <= self.horizon.last <= self.last

    def teardown(self) -> None:
        """When everybody has ended, two looks tell everything and reach the end."""
        self.visible.update(seq for seqs in self.open.values() for seq in seqs)
        self.open.clear()
        for _ in range(6):
            self.ask()
        assert self.told == self.visible
        assert self.horizon.stable == self.last
        assert self.horizon.is_settled


TestAppending = Appending.TestCase
TestAppending.settings = settings(max_examples=200, stateful_step_count=30)


def test_an_open_appender_holds_it() -> None:
    horizon = Horizon()
    horizon.observe(10, frozenset())
    horizon.observe(12, frozenset({"late"}))
    assert (horizon.stable, horizon.is_settled) == (10, False)
    horizon.observe(20, frozenset({"late", "other"}))
    assert horizon.stable == 10


def test_it_follows_closely_while_appenders_overlap_for_ever() -> None:
    horizon = Horizon()
    for turn in range(1, 100):
        horizon.observe(turn, frozenset({f"writer {turn}", f"writer {turn + 1}"}))
        assert horizon.stable >= turn - 3


def test_news_begins_below_what_an_ended_appender_may_have_left() -> None:
    horizon = Horizon()
    horizon.observe(10, frozenset())
    horizon.observe(12, frozenset({"late"}))
    assert horizon.observe(15, frozenset({"late"})) == 12
    assert horizon.observe(20, frozenset()) == 10


def test_it_never_goes_back() -> None:
    horizon = Horizon()
    horizon.observe(10, frozenset())
    horizon.observe(3, frozenset({"a"}))
    assert (horizon.stable, horizon.last) == (10, 10)
