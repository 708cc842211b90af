"""What a failure of a publish means: one table, the most special first."""

from __future__ import annotations

import struct

import msgspec
from aiormq import exceptions as amqp

from postlude.core.outcome import Failed, Fault, Rejected, Unavailable

Failure = Failed | Rejected | Unavailable


class Row(msgspec.Struct, frozen=True):
    """An error of the client, what it speaks of, and the code that is stored."""

    error: type[BaseException]
    verdict: type[Failure]
    code: str
    reply: int | None = None
    """Only when the server closed the channel with that number."""
    says: str = ""
    """Only when the server's text holds that."""


TABLE = (
    # The message. A return comes when no queue is bound for its topic, a nack when a queue is full or in trouble.
    Row(amqp.PublishError, Rejected, "rabbitmq.unroutable"),
    Row(amqp.DeliveryError, Failed, "rabbitmq.nacked"),
    Row(amqp.ChannelPreconditionFailed, Rejected, "rabbitmq.refused"),
    Row(amqp.ChannelClosed, Rejected, "rabbitmq.too_large", reply=311),
    Row(amqp.ChannelAccessRefused, Failed, "rabbitmq.topic_refused", says="access to topic"),
    # The exchange, hence all of them: somebody must make it, or give us the right to write to it.
    Row(amqp.ChannelAccessRefused, Unavailable, "rabbitmq.access_refused"),
    Row(amqp.ChannelNotFoundEntity, Unavailable, "rabbitmq.exchange_missing"),
    Row(amqp.ChannelLockedResource, Unavailable, "rabbitmq.locked"),
    # The server, or the way to it.
    Row(amqp.ChannelClosed, Unavailable, "rabbitmq.channel_closed"),
    Row(amqp.ChannelInvalidStateError, Unavailable, "rabbitmq.channel_closed"),
    Row(amqp.AMQPConnectionError, Unavailable, "rabbitmq.connection_lost"),
    Row(TimeoutError, Unavailable, "rabbitmq.timeout"),
    Row(OSError, Unavailable, "rabbitmq.connection_lost"),
    Row(amqp.AMQPError, Unavailable, "rabbitmq.protocol"),
    # Never sent: it cannot be written in this protocol.
    Row(ValueError, Rejected, "rabbitmq.not_encodable"),
    Row(struct.error, Rejected, "rabbitmq.not_encodable"),
)
ERRORS = tuple({row.error for row in TABLE})
"""What is judged by the table; anything else is a mistake of ours and raised."""
LOST = tuple({row.error for row in TABLE if row.verdict is Unavailable})
"""What a lost server looks like."""

TOO_LARGE = Rejected(Fault("TooLarge", "rabbitmq.too_large"))
TOO_LONG = Rejected(Fault("RoutingKeyTooLong", "rabbitmq.not_encodable"))
MAX_ROUTING_KEY = 255
"""Bytes; the protocol's."""
BLOCKED = Unavailable(Fault("ConnectionBlocked", "rabbitmq.blocked"))
"""The server is short of memory or disk and reads nothing from publishers."""
SLOW = Unavailable(Fault("TimeoutError", "rabbitmq.timeout"))
GONE = Unavailable(Fault("ConnectionClosed", "rabbitmq.connection_lost"))


def failure(error: BaseException, exchange: str, topic: str) -> Failure:
    """The outcome of a message whose publish ended in that error."""
    row = row_of(error)
    name = "Unroutable" if row.error is amqp.PublishError else type(error).__name__
    where = None if row.code.startswith("rabbitmq.connection") else f"exchange {exchange}, routing key {topic}"
    return row.verdict(Fault(name, row.code, where))


def row_of(error: BaseException) -> Row:
    return next(row for row in TABLE if _fits(row, error))


def blames_one(error: BaseException) -> bool:
    """The server closed the channel because of one message, without saying which."""
    return isinstance(error, amqp.ChannelClosed) and row_of(error).verdict is not Unavailable


def _fits(row: Row, error: BaseException) -> bool:
    if not isinstance(error, row.error):
        return False
    if row.reply is not None and row.reply not in error.args[:1]:
        return False
    return row.says in str(error)
