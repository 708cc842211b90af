"""Settings: arguments beat the environment, which beats the file, which beats the defaults. All values are frozen."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

import msgspec

from postlude.settings import tables
from postlude.settings.checking import check, check_together, refuse
from postlude.settings.keys import Path, flat, value_at
from postlude.settings.kinds import Kind
from postlude.settings.sources import (
    ARGUMENT,
    DEFAULT,
    Given,
    Origin,
    from_arguments,
    from_environment,
    from_file,
    renamed,
)


class Settings(tables.Group, frozen=True, kw_only=True, dict=True):
    """Everything that can be set. `None` means that it was not said."""

    database: tables.DatabaseUrl | None = None
    databases: dict[str, tables.DatabaseUrl] = msgspec.field(default_factory=dict)
    broker: tables.BrokerUrl | None = None
    brokers: dict[str, tables.BrokerSettings] = msgspec.field(default_factory=dict)
    source: str = "postlude"
    schema: str = "public"
    lanes: Annotated[int, Kind(least=1, most=1024)] | None = None
    relay: tables.RelaySettings = tables.RelaySettings()
    lane: tables.LaneSettings = tables.LaneSettings()
    handler: tables.HandlerSettings = tables.HandlerSettings()
    order: tables.OrderSettings = tables.OrderSettings()
    optimistic: tables.OptimisticSettings = tables.OptimisticSettings()
    payload: tables.PayloadSettings = tables.PayloadSettings()
    pool: tables.PoolSettings = tables.PoolSettings()
    worker: tables.WorkerSettings = tables.WorkerSettings()
    retry: tables.RetrySettings = tables.RetrySettings()
    calls: tables.CallSettings = tables.CallSettings()
    erasure: tables.ErasureSettings = tables.ErasureSettings()
    retention: tables.RetentionSettings = tables.RetentionSettings()
    audit: tables.AuditSettings = tables.AuditSettings()
    inbox: tables.InboxSettings = tables.InboxSettings()
    consumer: tables.ConsumerSettings = tables.ConsumerSettings()
    consumers: dict[str, tables.NamedConsumerSettings] = msgspec.field(default_factory=dict)
    errors: tables.ErrorSettings = tables.ErrorSettings()
    privacy: tables.PrivacySettings = tables.PrivacySettings()
    http: tables.HttpSettings = tables.HttpSettings()
    log: tables.LogSettings = tables.LogSettings()

    @classmethod
    def load(
        cls, environ: Mapping[str, str] | None = None, directory: FilePath | None = None, **arguments: Any
    ) -> Settings:
        """Read file and environment; `arguments` (nested tables as mappings) win."""
        found = from_file(directory or FilePath.cwd())
        said = from_environment(os.environ if environ is None else environ)
        found += [renamed(given, found) for given in said]
        return cls._of([*found, *from_arguments(arguments)])

    def having(self, **arguments: Any) -> Settings:
        """The same, but for what is said here; checked in any case."""
        return self._of([*self._given(), *from_arguments(arguments)])

    def origin(self, path: Path) -> Origin:
        """Where a value comes from. Of settings made by hand it is known only that they were given."""
        known: dict[Path, Origin] = self.__dict__.get("origins", {})
        return known.get(path) or (ARGUMENT if path in flat(self) else DEFAULT)

    def validate(self) -> None:
        """Refuse what makes no sense, also when it was not read but made by hand."""
        self._of(self._given())

    def broker_urls(self) -> dict[str, str]:
        """Of every broker, by name; `broker` is the one named `default`."""
        urls = {name: one.url for name, one in self.brokers.items() if one.url is not None}
        return urls if self.broker is None else {**urls, "default": self.broker}

    def broker_mode(self, name: str) -> Literal["binary", "structured"]:
        """How CloudEvents are written there."""
        return self.brokers[name].mode if name in self.brokers else "binary"

    def _given(self) -> list[Given]:
        known: dict[Path, Origin] = self.__dict__.get("origins", {})
        values = {**{path: value_at(self, path) for path in known}, **flat(self)}
        return [Given(path, value, self.origin(path)) for path, value in values.items() if value is not None]

    @classmethod
    def _of(cls, found: list[Given]) -> Settings:
        checked = check(found, cls)
        nested: dict[str, Any] = {}
        for (*groups, last), value in checked.values.items():
            table = nested
            for name in groups:
                table = table.setdefault(name, {})
            table[last] = value
        settings: Settings = msgspec.convert(nested, cls)
        settings.__dict__["origins"] = checked.origins
        refuse([*checked.problems, *check_together(settings, settings.origin, checked.refused)])
        return settings
