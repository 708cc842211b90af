"""Which tests stay together in one process, when a run has several.

The marks of xdist for this are lost with the pytest of today, which no longer reads the names that xdist gives to tests.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

TOGETHER = frozenset(
    {
        "tests/contract/test_kafka_broker.py",
        "tests/contract/test_nats_broker.py",
        "tests/contract/test_rabbitmq_broker.py",
        "tests/contract/test_redis_broker.py",
        "tests/contract/test_wire.py",
        "tests/integration/test_plans.py",
    }
)
"""Files whose tests share something that takes long to make: a full table, a server."""


class ByFileOrTest(LoadScopeScheduling):
    """Every test for itself, except where a file stays together. What stays together begins first."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file in TOGETHER else nodeid


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFileOrTest:
    return ByFileOrTest(config, log)
