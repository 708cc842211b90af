"""What Redis and its client say went wrong, and whom it concerns: the broker or the message."""

from __future__ import annotations

from redis import exceptions

from postlude.core.outcome import Failed, Fault, Rejected, Unavailable

Kind = type[Unavailable] | type[Failed] | type[Rejected]

TABLE: dict[str, Kind] = {
    # nobody answers, or not in time
    "CONNECTION": Unavailable,
    "TIMEOUT": Unavailable,
    # it answers, and takes nothing from anybody now
    "AUTH": Unavailable,
    "BUSY": Unavailable,
    "CLUSTERDOWN": Unavailable,
    "LOADING": Unavailable,
    "MASTERDOWN": Unavailable,
    "MISCONF": Unavailable,
    "NOREPLICAS": Unavailable,
    "OOM": Unavailable,
    "READONLY": Unavailable,
    "TRYAGAIN": Unavailable,
    # a cluster, whose other members this client does not visit
    "ASK": Unavailable,
    "MOVED": Unavailable,
    # one topic, which an operator may mend meanwhile
    "NOPERM": Failed,
    "ERR": Failed,
    # this message, for ever
    "WRONGTYPE": Rejected,
    "PROTOCOL": Rejected,
    "TOOLARGE": Rejected,
    "ENCODING": Rejected,
}
"""By the first word of Redis's answer, or by our own word for what the client noticed."""

_CLASSES: tuple[tuple[type[BaseException], str], ...] = (
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.AuthenticationError, "AUTH"),
    (exceptions.AuthorizationError, "AUTH"),
    (exceptions.TimeoutError, "TIMEOUT"),
    (TimeoutError, "TIMEOUT"),
    (exceptions.ConnectionError, "CONNECTION"),
    (OSError, "CONNECTION"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.DataError, "ENCODING"),
    (UnicodeError, "ENCODING"),
)


def word_of(error: BaseException) -> str:
    """The client takes the first word away where it has a class for it."""
    for kind, word in _CLASSES:
        if isinstance(error, kind):
            return word
    said = str(error)
    if said.startswith("Protocol error"):
        return "PROTOCOL"
    first = said.partition(" ")[0]
    return first if first.isupper() else "ERR"


def outcome_of(error: BaseException) -> Unavailable | Failed | Rejected:
    word = word_of(error)
    return TABLE.get(word, Failed)(Fault(type(error).__name__, word))
