"""The contract of a resolver: one suite for all of them, with the scenarios that its declared capabilities allow."""

from __future__ import annotations

from postlude.testing.contracts.resolver_erasing import ResolverErasing
from postlude.testing.contracts.resolver_faults import ResolverFaults
from postlude.testing.contracts.resolver_rectifying import ResolverRectifying
from postlude.testing.contracts.resolver_scheduling import ResolverScheduling
from postlude.testing.contracts.resolver_shape import ResolverShape
from postlude.testing.contracts.resolver_verifying import ResolverVerifying


class ResolverContract(
    ResolverShape, ResolverErasing, ResolverRectifying, ResolverScheduling, ResolverVerifying, ResolverFaults
):
    """A subclass gives two fixtures and says what its resolver can do. pytest-asyncio runs it in its auto mode.

    Fixtures (each may ask for others):
      vendor          the other side, see `resolver_arrange.Vendor`: the vendor's sandbox, or a server of your own.
      resolver        the resolver under test, talking to that vendor.

    Class attributes:
      capabilities    those of the resolver: "erase", "rectify", "schedule", "verify".
      abilities       what can be done to the vendor, and so what `vendor` implements: "effects", "values", "expire",
                      "malformed", and kinds of faults: "error", "throttle", "drop", "down", "hang", "lost", "refuse".
      patience        seconds until something that should happen is taken for something that never does.
      moment          seconds after which a call to a vendor that hangs is surely under way.

    A scenario that needs more than was declared is not collected; `left_out()` names it and what it needs. What the
    resolver can do and does not declare is a failure.
    """
