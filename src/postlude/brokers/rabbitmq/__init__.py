"""RabbitMQ, through aiormq: the layer of aio-pika that tells what happened instead of hiding it behind retries."""

from postlude.brokers.rabbitmq.broker import RabbitmqBroker as RabbitmqBroker

__all__ = ["RabbitmqBroker"]
