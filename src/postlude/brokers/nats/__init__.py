"""NATS JetStream, through nats-py."""

from postlude.brokers.nats.broker import NatsBroker

__all__ = ["NatsBroker"]
