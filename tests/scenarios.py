"""Which scenario of the broker contract runs on which broker: declared by the suite, kept in the documentation.

`python -m tests.scenarios` prints the table of docs/reference/brokers.md.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from postlude.testing.contracts.broker import BrokerContract
from postlude.testing.contracts.broker_arrange import BrokerUnderTest
from postlude.testing.contracts.broker_faults import BrokerFaults
from postlude.testing.contracts.broker_publishing import BrokerPublishing
from postlude.testing.contracts.broker_receiving import BrokerReceiving

BROKERS = ("memory", "kafka", "rabbitmq", "redis", "nats")
_MODULE = re.compile(r"test_(\w+)_broker")
_NODE = re.compile(r"test_(\w+)_broker\.py::\w+::(test_\w+)")


def names() -> list[str]:
    """In the order in which they stand in the suite."""
    return [
        name
        for part in (BrokerPublishing, BrokerReceiving, BrokerFaults)
        for name in vars(part)
        if name.startswith("test_")
    ]


def title(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ")


def declared() -> dict[str, set[str]]:
    """By broker, the scenarios that its tests collect."""
    known = set(names())
    found: dict[str, set[str]] = {}
    for path in sorted((Path(__file__).parent / "contract").glob("test_*_broker.py")):
        module = importlib.import_module(f"tests.contract.{path.stem}")
        contracts = [one for name, one in vars(module).items() if name.startswith("Test") and _is_contract(one)]
        match = _MODULE.fullmatch(path.stem)
        assert match is not None
        found[match[1]] = {name for contract in contracts for name in contract.scenarios()} & known
    return found


def is_whole() -> bool:
    """With a server of the user's, what would break it is not collected; nor what Kafka's mock cannot show."""
    is_mock = importlib.import_module("tests.contract.test_kafka_broker").IS_MOCK
    return not is_mock and not any(f"POSTLUDE_TEST_{broker.upper()}" in os.environ for broker in BROKERS)


def rows(found: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    brokers = [broker for broker in BROKERS if broker in found]
    cells = [(title(name), *("yes" if name in found[broker] else "-" for broker in brokers)) for name in names()]
    return [("scenario", *brokers), *cells]


def passed(nodes: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for match in filter(None, map(_NODE.search, nodes)):
        if hasattr(BrokerContract, match[2]):
            found.setdefault(match[1], set()).add(match[2])
    return found


def lines(found: Mapping[str, set[str]]) -> list[str]:
    """For the end of a run."""
    return ["".join(cell.ljust(10 if place else 48) for place, cell in enumerate(row)).rstrip() for row in rows(found)]


def _is_contract(one: object) -> bool:
    return inspect.isclass(one) and issubclass(one, BrokerUnderTest)


if __name__ == "__main__":
    head, *rest = rows(declared())
    for row in (head, ("---",) * len(head), *rest):
        print(f"| {' | '.join(row)} |")  # noqa: T201 - for the page
