"""Durations and sizes as people write them: `15s`, `5m`, `30d`, `250ms`, `1MiB`, `512kB`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final

import msgspec

_TEXT = re.compile(r"([+-]?\d{1,18}(?:\.\d{1,9})?) ?([a-z]{1,9})", re.IGNORECASE)

_TIMES: Final[Mapping[str, Fraction]] = {
    "d": Fraction(86_400),
    "h": Fraction(3600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 1000),
}
_TIME_WORDS: Final[Mapping[str, Fraction]] = {**_TIMES, "w": Fraction(604_800), "min": Fraction(60)}
_SIZES: Final[Mapping[str, Fraction]] = {
    "GiB": Fraction(1024**3),
    "MiB": Fraction(1024**2),
    "KiB": Fraction(1024),
    "GB": Fraction(10**9),
    "MB": Fraction(10**6),
    "kB": Fraction(1000),
    "B": Fraction(1),
}


class Unit(msgspec.Struct, frozen=True, eq=False):
    """What a plain number of a setting counts, and what else may be written."""

    symbol: str
    words: Mapping[str, Fraction]
    ways: Mapping[str, Fraction]
    """How it is shown, in the order of preference."""
    what: str

    def read(self, text: str) -> str | int | float:
        """The number in this unit; a text without a unit of its own is given back as it is."""
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            return text
        scale = {word.lower(): value for word, value in self.words.items()}.get(found[2].lower())
        if scale is None:
            return text
        number = Fraction(found[1]) * scale / self.words[self.symbol]
        return number.numerator if number.denominator == 1 else float(number)

    def show(self, number: float) -> str:
        """Short and exact: reading it again gives the number."""
        exact = Fraction(repr(number)) * self.words[self.symbol]
        for word, scale in self.ways.items():
            if exact and (exact / scale).denominator == 1:
                return f"{exact / scale}{word}"
        return f"{Decimal(repr(number)):f}{self.symbol}" if exact else "0"


_DURATION = 'a duration in {0}, or with a unit (ms, s, m, h, d, w) such as "{1}"'
SECONDS = Unit("s", _TIME_WORDS, _TIMES, _DURATION.format("seconds", "15s"))
MILLISECONDS = Unit("ms", _TIME_WORDS, _TIMES, _DURATION.format("milliseconds", "250ms"))
HOURS = Unit("h", _TIME_WORDS, _TIMES, _DURATION.format("whole hours", "30d"))
DAYS = Unit("d", _TIME_WORDS, {"d": _TIMES["d"]}, _DURATION.format("whole days", "14d"))
BYTES = Unit("B", _SIZES, _SIZES, 'a size in bytes, or with a unit (B, kB, KiB, MB, MiB, GB, GiB) such as "1MiB"')
