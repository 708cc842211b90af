"""Options of the Redis adapter; what it does not know goes to the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from postlude.errors import ConfigurationError


class RedisOptions(msgspec.Struct, frozen=True, kw_only=True):
    timeout: float = 10.0
    """Seconds for a batch, connecting included."""
    single_active: bool = True
    """One member of a group at a time has entries of a stream: that keeps the order of a key."""
    claim_after: float = 15.0
    """Seconds after which what a member received and did not acknowledge is given to another one."""
    trim_every: float | None = None
    """Seconds between two looks of a member for entries that all groups have acknowledged, to remove them."""
    max_length: int | None = None
    """Entries a stream may have; the oldest are removed when there are more, read or not."""

    @classmethod
    def taken_from(cls, given: Mapping[str, Any]) -> tuple[RedisOptions, dict[str, Any]]:
        """Ours, and those of the client."""
        own = {name: given[name] for name in cls.__struct_fields__ if name in given}
        try:
            options = msgspec.convert(own, cls, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigurationError(
                f"an option of Redis is not right: {error}", hint="See docs/guides/brokers.md."
            ) from error
        return options, {name: value for name, value in given.items() if name not in own}
