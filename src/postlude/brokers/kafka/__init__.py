"""Kafka, through aiokafka."""

from postlude.brokers.kafka.broker import KafkaBroker

__all__ = ["KafkaBroker"]
