"""Errors of the client, sorted: of the message, of the broker, or of the producer's own bookkeeping."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from aiokafka import errors as kafka

from postlude.core.outcome import Failed, Fault, Rejected, Unavailable


class Kind(Enum):
    """What an error says."""

    rejected = "the message can never be published"
    failed = "the message was not published this time"
    unavailable = "the broker cannot, whatever the message is"
    sequence = "the producer has lost count: it is made again, and nothing is said of the message"


TABLE: Mapping[type[BaseException], Kind] = {
    # of the message or of its topic
    kafka.MessageSizeTooLargeError: Kind.rejected,
    kafka.RecordListTooLargeError: Kind.rejected,
    kafka.RecordTooLargeError: Kind.rejected,
    kafka.InvalidTopicError: Kind.rejected,
    kafka.TopicAuthorizationFailedError: Kind.rejected,
    kafka.PolicyViolationError: Kind.rejected,
    kafka.InvalidTimestampError: Kind.rejected,
    kafka.UnsupportedForMessageFormatError: Kind.rejected,
    # may be mended: a topic is created, bytes arrive whole
    kafka.UnknownTopicOrPartitionError: Kind.failed,
    kafka.CorruptRecordException: Kind.failed,
    kafka.UnknownError: Kind.failed,
    # of the broker, the way to it, or our account there
    kafka.KafkaConnectionError: Kind.unavailable,
    kafka.KafkaTimeoutError: Kind.unavailable,
    kafka.KafkaUnavailableError: Kind.unavailable,
    kafka.KafkaProtocolError: Kind.unavailable,
    kafka.NoBrokersAvailable: Kind.unavailable,
    kafka.NodeNotReadyError: Kind.unavailable,
    kafka.MetadataEmptyBrokerList: Kind.unavailable,
    kafka.StaleMetadata: Kind.unavailable,
    kafka.Cancelled: Kind.unavailable,
    kafka.ProducerClosed: Kind.unavailable,
    kafka.QuotaViolationError: Kind.unavailable,
    kafka.AuthenticationFailedError: Kind.unavailable,
    kafka.AuthenticationMethodNotSupported: Kind.unavailable,
    kafka.SaslAuthenticationFailed: Kind.unavailable,
    kafka.UnsupportedSaslMechanismError: Kind.unavailable,
    kafka.IllegalSaslStateError: Kind.unavailable,
    kafka.ClusterAuthorizationFailedError: Kind.unavailable,
    kafka.UnsupportedVersionError: Kind.unavailable,
    kafka.IncompatibleBrokerVersion: Kind.unavailable,
    kafka.UnrecognizedBrokerVersion: Kind.unavailable,
    kafka.LeaderNotAvailableError: Kind.unavailable,
    kafka.NotLeaderForPartitionError: Kind.unavailable,
    kafka.RequestTimedOutError: Kind.unavailable,
    kafka.BrokerNotAvailableError: Kind.unavailable,
    kafka.ReplicaNotAvailableError: Kind.unavailable,
    kafka.NotEnoughReplicasError: Kind.unavailable,
    kafka.NotEnoughReplicasAfterAppendError: Kind.unavailable,
    kafka.NotControllerError: Kind.unavailable,
    kafka.GroupLoadInProgressError: Kind.unavailable,
    kafka.GroupCoordinatorNotAvailableError: Kind.unavailable,
    kafka.NotCoordinatorForGroupError: Kind.unavailable,
    kafka.KafkaStorageError: Kind.unavailable,
    kafka.LogDirNotFound: Kind.unavailable,
    OSError: Kind.unavailable,
    TimeoutError: Kind.unavailable,
    # of the idempotent producer
    kafka.OutOfOrderSequenceNumber: Kind.sequence,
    kafka.UnknownProducerId: Kind.sequence,
    kafka.InvalidProducerEpoch: Kind.sequence,
    kafka.InvalidProducerIdMapping: Kind.sequence,
    kafka.ProducerFenced: Kind.sequence,
}


def kind_of(error: BaseException) -> Kind:
    """By the nearest class in the table. Of what nobody foresaw, what the client would retry is an outage."""
    unforeseen = Kind.unavailable if getattr(error, "retriable", False) else Kind.failed
    return next((TABLE[each] for each in type(error).__mro__ if each in TABLE), unforeseen)


def outcome_of(error: BaseException) -> Rejected | Failed | Unavailable:
    fault = Fault(
        type(error).__name__, f"kafka.{error.errno}" if isinstance(error, kafka.BrokerResponseError) else None
    )
    match kind_of(error):
        case Kind.rejected:
            return Rejected(fault)
        case Kind.failed:
            return Failed(fault)
        case Kind.unavailable | Kind.sequence:
            return Unavailable(fault)
