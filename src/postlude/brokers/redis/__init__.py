"""Redis Streams: a topic is a stream, a group is a consumer group."""

from postlude.brokers.redis.broker import RedisBroker

__all__ = ["RedisBroker"]
