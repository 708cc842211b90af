"""The contract of a broker: one suite for all of them, with the scenarios that its declared features allow."""

from __future__ import annotations

from postlude.testing.contracts.broker_faults import BrokerFaults
from postlude.testing.contracts.broker_publishing import BrokerPublishing
from postlude.testing.contracts.broker_receiving import BrokerReceiving


class BrokerContract(BrokerPublishing, BrokerReceiving, BrokerFaults):
    """A subclass gives two fixtures and says what its broker can do.

    Fixtures (each may ask for others):
      broker_server   the server, see `broker_arrange.Server`; of any scope. It needs `url` for the ability "process".
      make_broker     a callable `(**options) -> Broker`, not opened. `timeout=seconds` among the options is the
                      adapter's own timeout; everything else is for a subclass's own tests.

    Class attributes:
      features        those of the adapter.
      abilities       what can be done to the server: "restart" (kill, stop, start with the same data at the same
                      address), "freeze" (freeze, thaw), "process" (another process reaches it by its URL).
      too_large       a number of bytes that the broker refuses in a payload; None where it takes whatever we can send.
      keeps_history   does a new group get what was published before it? Where not, `declare` makes the group's place.
      tells_lag       is `lag` a number?
      has_dead_end    can `dead_end` give a topic that the broker refuses?
      has_foreign     can `put_foreign` put a message that is not ours?
      patience        seconds until something that should happen is taken for something that never does.
      member_options  options of the broker in another process, such as how soon a dead member is noticed. The same
                      apply to `make_broker` if they belong to a group.

    Methods it may give: `declare`, `dead_end`, `put_foreign`.
    """
