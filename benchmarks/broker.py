"""Our relay and our consumer against the client libraries of Kafka, RabbitMQ, Redis and NATS alone.

`python3 dev bench broker` runs it on servers of its own; README.md says what is measured and how.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

# So that `python benchmarks/broker.py` works too.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.brokers.client import Client
from benchmarks.brokers.kafka import KafkaClient
from benchmarks.brokers.nats import NatsClient
from benchmarks.brokers.rabbitmq import RabbitmqClient
from benchmarks.brokers.redis import RedisClient
from benchmarks.measuring.command import Bench, Chosen, main
from benchmarks.measuring.report import Comparison
from benchmarks.scenarios.consuming import receiving
from benchmarks.scenarios.publishing import publishing

CLIENTS: tuple[tuple[Client, float], ...] = (
    (KafkaClient(), 0.6),
    (RabbitmqClient(), 0.8),
    (RedisClient(), 0.8),
    (NatsClient(), 0.6),
)
"""With the aim for publishing."""


def comparisons(_events: int) -> Mapping[str, Chosen]:
    """What there is to measure, by the name of the broker."""
    found: dict[str, Chosen] = {}
    for client, aim in CLIENTS:
        name = client.name
        comparison = Comparison(f"{name}/client", name, f"{name} client", "events/s", ">=", aim)
        found[name] = (publishing(client), comparison)
    for client, _ in CLIENTS:
        name = f"{client.name}-consume"
        found[name] = (receiving(client), Comparison(f"{name}/client", name, f"{name} client", "events/s"))
    return found


BENCH = Bench(
    name="broker",
    about=__doc__.partition("\n")[0],
    comparisons=comparisons,
    events=20_000,
    events_are="messages of each side in a repeat",
)

if __name__ == "__main__":
    sys.exit(main(BENCH))
