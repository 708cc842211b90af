"""What of a partition is with us, by offset, and up to where all of it is acknowledged."""

from __future__ import annotations

from enum import Enum


class _State(Enum):
    held = "with the caller"
    acked = "safe, but one before it is not"
    refused = "to be read again"


class Progress:
    """Offsets come in ascending order, and again from the first refused one on."""

    def __init__(self) -> None:
        self._open: dict[int, _State] = {}
        self._next = 0

    @property
    def held(self) -> int:
        return sum(state is _State.held for state in self._open.values())

    def take(self, offset: int) -> bool:
        """Is this one for the caller? Those between refused ones come again, too, though nobody refused them."""
        if offset < self._next or self._open.get(offset) in (_State.held, _State.acked):
            return False
        self._open[offset] = _State.held
        return True

    def ack(self, offset: int) -> int | None:
        """The position to commit, if it moved: never past one that is not acknowledged."""
        if offset not in self._open:
            return None
        self._open[offset] = _State.acked
        before = self._next
        for first in list(self._open):
            if self._open[first] is not _State.acked:
                break
            del self._open[first]
            self._next = first + 1
        return self._next if self._next > before else None

    def refuse(self, offset: int) -> None:
        if self._open.get(offset) is _State.held:
            self._open[offset] = _State.refused

    @property
    def first_refused(self) -> int | None:
        return next((offset for offset, state in self._open.items() if state is _State.refused), None)
