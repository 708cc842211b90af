"""Errors of the client and of JetStream, sorted: of the message, or of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from nats import errors as nats
from nats.js import errors as jetstream

from postlude.core.outcome import Failed, Fault, Rejected, Unavailable


class Kind(Enum):
    """What an error says."""

    rejected = "the message can never be published"
    failed = "the message was not published this time"
    unavailable = "the broker cannot, whatever the message is"


class NoStream(jetstream.Error):
    """No stream takes that subject: see the options `stream` and `subjects`."""


TABLE: Mapping[type[BaseException], Kind] = {
    # of the message or of its subject
    NoStream: Kind.rejected,
    nats.MaxPayloadError: Kind.rejected,
    nats.BadSubjectError: Kind.rejected,
    nats.BadHeaderError: Kind.rejected,
    jetstream.BadRequestError: Kind.rejected,
    # may be mended
    jetstream.NotFoundError: Kind.failed,
    jetstream.APIError: Kind.failed,
    # of the broker, the way to it, or our account there
    jetstream.ServiceUnavailableError: Kind.unavailable,
    jetstream.ServerError: Kind.unavailable,
    jetstream.NoStreamResponseError: Kind.unavailable,
    jetstream.TooManyStalledMsgsError: Kind.unavailable,
    nats.NoRespondersError: Kind.unavailable,
    nats.TimeoutError: Kind.unavailable,
    nats.StaleConnectionError: Kind.unavailable,
    nats.OutboundBufferLimitError: Kind.unavailable,
    nats.ConnectionClosedError: Kind.unavailable,
    nats.ConnectionDrainingError: Kind.unavailable,
    nats.ConnectionReconnectingError: Kind.unavailable,
    nats.SecureConnRequiredError: Kind.unavailable,
    nats.SecureConnWantedError: Kind.unavailable,
    nats.SecureConnFailedError: Kind.unavailable,
    nats.AuthorizationError: Kind.unavailable,
    nats.InvalidUserCredentialsError: Kind.unavailable,
    nats.NoServersError: Kind.unavailable,
    nats.ServerNotInPoolError: Kind.unavailable,
    nats.SlowConsumerError: Kind.unavailable,
    nats.ProtocolError: Kind.unavailable,
    nats.JsonParseError: Kind.unavailable,
    OSError: Kind.unavailable,
    TimeoutError: Kind.unavailable,
}


def kind_of(error: BaseException) -> Kind:
    """By the nearest class in the table; what nobody foresaw is tried again."""
    return next((TABLE[each] for each in type(error).__mro__ if each in TABLE), Kind.failed)


def outcome_of(error: BaseException) -> Rejected | Failed | Unavailable:
    number = getattr(error, "err_code", None)
    code = "nats.no_stream" if isinstance(error, NoStream) else f"nats.{number}" if number else None
    fault = Fault(type(error).__name__, code)
    match kind_of(error):
        case Kind.rejected:
            return Rejected(fault)
        case Kind.failed:
            return Failed(fault)
        case Kind.unavailable:
            return Unavailable(fault)
