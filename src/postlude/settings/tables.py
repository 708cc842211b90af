"""The tables of settings, with their types, units, bounds and defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from postlude.core.retry import Retry
from postlude.secrecy import MASK, is_secret, without_secrets
from postlude.settings.keys import spelled
from postlude.settings.kinds import Kind, shown, taken_apart
from postlude.settings.units import BYTES, DAYS, HOURS, MILLISECONDS, SECONDS

TEN_YEARS = 3650 * 86_400
"""More is a mistake."""

DatabaseUrl = Annotated[str, Kind(form="database")]
BrokerUrl = Annotated[str, Kind(form="broker")]
Count = Annotated[int, Kind(least=1, most=100_000)]
Connections = Annotated[int, Kind(least=0, most=10_000)]
Seconds = Annotated[float, Kind(unit=SECONDS, above=0, most=TEN_YEARS)]
Milliseconds = Annotated[float, Kind(unit=MILLISECONDS, above=0, most=3_600_000)]
Hours = Annotated[int, Kind(unit=HOURS, least=0, most=24 * 36_500)]
Attempts = Annotated[int, Kind(least=1, most=2_147_483_647)]
Delay = Annotated[float, Kind(unit=SECONDS, least=0, most=TEN_YEARS)]
Multiplier = Annotated[float, Kind(least=1, most=1_000_000)]
Share = Annotated[float, Kind(least=0, most=1)]
Open = Annotated[int, Kind(least=1, most=10_000_000)]
Start = Literal["earliest", "latest"]
Unknown = Literal["ignore", "dead"]


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of settings. Its `repr` shows no secret."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        fields = msgspec.structs.fields(self)
        return [(one.name, _without_secrets(getattr(self, one.name), one.type)) for one in fields]


class BrokerSettings(Group, frozen=True, kw_only=True):
    url: BrokerUrl | None = None
    mode: Literal["binary", "structured"] = "binary"
    options: dict[str, Any] = {}


class RelaySettings(Group, frozen=True, kw_only=True):
    batch_size: Count = 500
    poll_min_ms: Milliseconds = 5
    poll_max_ms: Milliseconds = 250


class LaneSettings(Group, frozen=True, kw_only=True):
    lease: Seconds = 15
    stall: Seconds = 60


class HandlerSettings(Group, frozen=True, kw_only=True):
    timeout: Seconds = 300
    concurrency: Count = 10
    threads: Count = 10
    sqlite_limit: Seconds = 1.0


class OrderSettings(Group, frozen=True, kw_only=True):
    on_dead: Literal["skip", "block"] = "skip"


class PayloadSettings(Group, frozen=True, kw_only=True):
    max_bytes: Annotated[int, Kind(unit=BYTES, least=1, most=10**9)] = 1_048_576


class PoolSettings(Group, frozen=True, kw_only=True):
    min: Connections = 1
    max: Annotated[int, Kind(least=1, most=10_000)] = 10
    command_timeout: Seconds = 60


class WorkerSettings(Group, frozen=True, kw_only=True):
    shutdown_timeout: Seconds = 30


class ErasureSettings(Group, frozen=True, kw_only=True):
    deadline_days: Annotated[int, Kind(unit=DAYS, least=1, most=3650)] = 30
    pending: Literal["publish_first", "discard"] = "publish_first"


class OptimisticSettings(Group, frozen=True, kw_only=True):
    enabled: bool = False
    timeout: Seconds = 2.0


class TypeRetry(Group, frozen=True, kw_only=True):
    """What one event type has of its own; the rest is as for all."""

    max_attempts: Attempts | None = None
    base_delay_seconds: Delay | None = None
    backoff_multiplier: Multiplier | None = None
    max_backoff_seconds: Delay | None = None
    jitter_factor: Share | None = None


class BackoffSettings(Group, frozen=True, kw_only=True):
    max_attempts: Attempts = 10
    base_delay_seconds: Delay = 2
    backoff_multiplier: Multiplier = 2
    max_backoff_seconds: Delay = 3600
    jitter_factor: Share = 0.25

    def policy(self, own: TypeRetry | None = None) -> Retry:
        names = TypeRetry.__struct_fields__
        said = (None if own is None else getattr(own, name) for name in names)
        return Retry(*(getattr(self, name) if one is None else one for name, one in zip(names, said, strict=True)))


class ByType(Mapping[str, Retry]):
    """Policies by event type; a type is also found by its spelling in the environment."""

    def __init__(self, policies: Mapping[str, Retry]) -> None:
        self._policies = policies

    def __getitem__(self, event_type: str) -> Retry:
        return self._policies[event_type if event_type in self._policies else spelled(event_type)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)


class RetrySettings(BackoffSettings, frozen=True, kw_only=True):
    types: dict[str, TypeRetry] = {}

    def policies(self) -> Mapping[str, Retry]:
        """Of the types that differ."""
        return ByType({name: self.policy(own) for name, own in self.types.items()})


class CallRetrySettings(BackoffSettings, frozen=True, kw_only=True):
    max_attempts: Attempts = 8
    base_delay_seconds: Delay = 30
    jitter_factor: Share = 0


class CallSettings(Group, frozen=True, kw_only=True):
    retry: CallRetrySettings = CallRetrySettings()


class RetentionSettings(Group, frozen=True, kw_only=True):
    events_hours: Hours = 720
    receipts_hours: Hours | None = None
    dead_hours: Hours = 0
    interval: Seconds = 3600
    partitions_ahead_days: Annotated[int, Kind(unit=DAYS, least=1, most=366)] = 14


class AuditSettings(Group, frozen=True, kw_only=True):
    file: str | None = None


class InboxSettings(Group, frozen=True, kw_only=True):
    retention_hours: Hours = 720
    replay_window_hours: Hours = 720


class ConsumerSettings(Group, frozen=True, kw_only=True):
    max_open: Open = 10_000
    batch_size: Count = 500
    start: Start = "earliest"
    unknown: Unknown = "ignore"

    def named(self, own: NamedConsumerSettings | None) -> ConsumerSettings:
        """With what one consumer has of its own."""
        said = {} if own is None else {name: getattr(own, name) for name in self.__struct_fields__}
        return msgspec.structs.replace(self, **{name: one for name, one in said.items() if one is not None})


class NamedConsumerSettings(Group, frozen=True, kw_only=True):
    """What one consumer has of its own; the rest is as for all. The group is named like the consumer."""

    group: str | None = None
    max_open: Open | None = None
    batch_size: Count | None = None
    start: Start | None = None
    unknown: Unknown | None = None


class ErrorSettings(Group, frozen=True, kw_only=True):
    keep: Literal["location", "message"] | None = None


class PrivacySettings(Group, frozen=True, kw_only=True):
    mask: bool = True
    keys_file: str | None = None


class HttpSettings(Group, frozen=True, kw_only=True):
    address: Annotated[str, Kind(form="address")] | None = None
    token: Annotated[str, Kind(form="token")] | None = None


class LogSettings(Group, frozen=True, kw_only=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["plain", "json"] = "plain"


def option_shown(name: str, value: Any) -> Any:
    """An option of a broker, which only its adapter knows."""
    if is_secret(name):
        return MASK
    if isinstance(value, dict):
        return {inner: option_shown(inner, one) for inner, one in value.items()}
    return without_secrets(value) if isinstance(value, str) else value


def _without_secrets(value: Any, annotation: Any) -> Any:
    wanted, kind, _ = taken_apart(annotation)
    if isinstance(value, dict):
        (_, inner) = wanted.__args__
        return {
            name: option_shown(name, one) if inner is Any else _without_secrets(one, inner)
            for name, one in value.items()
        }
    return shown(value, kind)
