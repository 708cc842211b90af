"""Settings: arguments beat the environment, which beats the file, which beats the defaults. All values are frozen."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from postlude.core.retry import Retry
from postlude.errors import SettingsError

PREFIX = "POSTLUDE_"
FILE = "postlude.toml"


class _Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of settings; unknown keys are refused."""


class RelaySettings(_Group, frozen=True, kw_only=True):
    batch_size: int = 500
    poll_min_ms: float = 5
    poll_max_ms: float = 250


class LaneSettings(_Group, frozen=True, kw_only=True):
    lease: float = 15
    stall: float = 60


class HandlerSettings(_Group, frozen=True, kw_only=True):
    timeout: float = 300
    concurrency: int = 10
    threads: int = 10
    sqlite_limit: float = 1.0


class OrderSettings(_Group, frozen=True, kw_only=True):
    on_dead: Literal["skip", "block"] = "skip"


class PayloadSettings(_Group, frozen=True, kw_only=True):
    max_bytes: int = 1_048_576


class PoolSettings(_Group, frozen=True, kw_only=True):
    min: int = 1
    max: int = 10
    command_timeout: float = 60


class WorkerSettings(_Group, frozen=True, kw_only=True):
    shutdown_timeout: float = 30


class RetrySettings(_Group, frozen=True, kw_only=True):
    max_attempts: int = 10
    base_delay_seconds: float = 2
    backoff_multiplier: float = 2
    max_backoff_seconds: float = 3600
    jitter_factor: float = 0.25
    types: dict[str, dict[str, Any]] = {}

    def policy(self) -> Retry:
        return Retry(
            self.max_attempts,
            self.base_delay_seconds,
            self.backoff_multiplier,
            self.max_backoff_seconds,
            self.jitter_factor,
        )

    def policies(self) -> dict[str, Retry]:
        """The policies of types that differ: what a type does not say is as for all."""
        own = {name: value for name, value in msgspec.structs.asdict(self).items() if name != "types"}
        return {
            name: _convert({**own, **table}, RetrySettings, f"retry.types.{name}.").policy()
            for name, table in self.types.items()
        }


class RetentionSettings(_Group, frozen=True, kw_only=True):
    events_hours: int = 720
    dead_hours: int = 0
    interval: float = 3600
    partitions_ahead_days: int = 14


class ErrorSettings(_Group, frozen=True, kw_only=True):
    keep: Literal["location", "message"] | None = None


class LogSettings(_Group, frozen=True, kw_only=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["plain", "json"] = "plain"


class Settings(_Group, frozen=True, kw_only=True):
    """Everything that can be set. `None` means that it was not said."""

    database: str | None = None
    databases: dict[str, str] = {}
    broker: str | None = None
    brokers: dict[str, str] = {}
    source: str = "postlude"
    schema: str = "public"
    lanes: int | None = None
    relay: RelaySettings = RelaySettings()
    lane: LaneSettings = LaneSettings()
    handler: HandlerSettings = HandlerSettings()
    order: OrderSettings = OrderSettings()
    payload: PayloadSettings = PayloadSettings()
    pool: PoolSettings = PoolSettings()
    worker: WorkerSettings = WorkerSettings()
    retry: RetrySettings = RetrySettings()
    retention: RetentionSettings = RetentionSettings()
    errors: ErrorSettings = ErrorSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def load(
        cls, environ: Mapping[str, str] | None = None, directory: Path | None = None, **arguments: Any
    ) -> Settings:
        """Read file and environment; `arguments` (nested tables as mappings) win."""
        tables = _from_file(directory or Path.cwd())
        _merge(tables, _from_environment(os.environ if environ is None else environ))
        _merge(tables, {name: value for name, value in arguments.items() if value is not None})
        settings: Settings = _convert(tables, cls)
        settings.validate()
        return settings

    def validate(self) -> None:
        """What types alone cannot say."""
        positive = {
            "relay.batch_size": self.relay.batch_size,
            "relay.poll_min_ms": self.relay.poll_min_ms,
            "lane.lease": self.lane.lease,
            "lane.stall": self.lane.stall,
            "handler.timeout": self.handler.timeout,
            "handler.concurrency": self.handler.concurrency,
            "handler.threads": self.handler.threads,
            "payload.max_bytes": self.payload.max_bytes,
            "pool.max": self.pool.max,
            "worker.shutdown_timeout": self.worker.shutdown_timeout,
            "retention.interval": self.retention.interval,
        }
        for name, value in positive.items():
            if value <= 0:
                raise SettingsError(f"{name} must be positive, not {value}")
        if self.lanes is not None and not 1 <= self.lanes <= 1024:
            raise SettingsError(f"lanes must lie between 1 and 1024, not {self.lanes}")
        if self.relay.poll_max_ms < self.relay.poll_min_ms:
            raise SettingsError("relay.poll_max_ms is less than relay.poll_min_ms")
        if self.pool.min > self.pool.max:
            raise SettingsError("pool.min is more than pool.max")
        try:
            self.retry.policy()
            self.retry.policies()
        except ValueError as error:
            raise SettingsError(f"retry: {error}") from error


def _convert(tables: Mapping[str, Any], cls: type[Any], prefix: str = "") -> Any:
    try:
        return msgspec.convert(tables, cls, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{prefix}{error}", hint=_nearest(tables, cls) or None) from error


def _nearest(tables: Mapping[str, Any], cls: type[Any], prefix: str = "") -> str:
    """The unknown key and the known one that looks most like it."""
    known = {field.name: field.type for field in msgspec.structs.fields(cls)}
    for name, value in tables.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, 1, 0.5)
            return f"There is no setting {prefix}{name}." + (f" Did you mean {prefix}{close[0]}?" if close else "")
        group = known[name]
        if isinstance(group, type) and issubclass(group, _Group) and isinstance(value, Mapping):
            hint = _nearest(value, group, f"{prefix}{name}.")
            if hint:
                return hint
    return ""


def _from_file(directory: Path) -> dict[str, Any]:
    for path, table in ((directory / FILE, ("postlude",)), (directory / "pyproject.toml", ("tool", "postlude"))):
        if path.is_file():
            try:
                found: Any = tomllib.loads(path.read_text("utf-8"))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise SettingsError(f"{path.name} is not valid TOML: {error}") from error
            for name in table:
                found = found.get(name, {})
                if not isinstance(found, dict):
                    raise SettingsError(f"{name} in {path.name} is not a table")
            if found:
                return dict(found)
    return {}


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    tables: dict[str, Any] = {}
    for name, value in environ.items():
        if not name.startswith(PREFIX) or name.startswith((f"{PREFIX}TEST_", f"{PREFIX}BENCH_")):
            continue
        *groups, last = name.removeprefix(PREFIX).lower().split("__")
        table = tables
        for group in groups:
            table = table.setdefault(group, {})
            if not isinstance(table, dict):
                raise SettingsError(f"{PREFIX}{group.upper()} is a group of settings and has no value of its own")
        table[last] = value
    return tables


def _merge(tables: dict[str, Any], other: Mapping[str, Any]) -> None:
    for name, value in other.items():
        if isinstance(value, Mapping) and isinstance(tables.get(name), dict):
            _merge(tables[name], value)
        else:
            tables[name] = dict(value) if isinstance(value, Mapping) else value
