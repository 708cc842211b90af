"""What `doctor` makes of the calls and requests it found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from postlude.app import Postlude
from postlude.cli.checks import Finding
from postlude.core.calls import PREFIX


class ErasureFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of calls, on a database that can be reached and has a schema."""

    counts: Mapping[str, int]
    late_requests: int = 0
    late_calls: int = 0
    unserved: Mapping[str, int] = {}


async def erasures_in(app: Postlude, unserved: Mapping[str, int]) -> ErasureFacts:
    late_requests, late_calls = await app.store.calls.overdue_counts()
    return ErasureFacts(
        counts=await app.store.calls.counts(),
        late_requests=late_requests,
        late_calls=late_calls,
        unserved={name: open_ for name, open_ in unserved.items() if name.startswith(PREFIX)},
    )


def check_erasures(facts: ErasureFacts) -> Iterator[Finding]:
    """Nothing to say where nobody was ever called."""
    if not any(facts.counts.values()) and not facts.late_requests:
        return
    troubles = [*_dead(facts), *_late(facts), *_unserved(facts)]
    yield from troubles
    if not troubles:
        waiting = sum(facts.counts.get(status, 0) for status in ("pending", "claimed", "failed", "scheduled"))
        yield Finding("erasure", "ok", f"{waiting:,} calls are open, none is abandoned, no request is overdue")


def _dead(facts: ErasureFacts) -> Iterator[Finding]:
    if dead := facts.counts.get("dead", 0):
        hint = "See `postlude erasure abandoned`; when the cause is gone, `postlude erasure requeue ID...`."
        yield Finding("erasure", "warn", f"abandoned calls: {dead:,}", hint)


def _late(facts: ErasureFacts) -> Iterator[Finding]:
    if facts.late_requests:
        what = f"requests past their deadline: {facts.late_requests:,}, with {facts.late_calls:,} open calls"
        yield Finding("erasure", "fail", what, "See `postlude erasure overdue`, then `postlude erasure show SUBJECT`.")


def _unserved(facts: ErasureFacts) -> Iterator[Finding]:
    if facts.unserved:
        what = ", ".join(f"{name.removeprefix(PREFIX)} ({open_:,})" for name, open_ in facts.unserved.items())
        hint = "Run a worker whose app registers them, under these names: app.resolvers.register(...)."
        yield Finding("erasure", "warn", f"calls to resolvers that no live worker has: {what}", hint)
