"""The composition root: settings become wired objects. The only place that sees everything."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import Any, Self, TypeVar, Unpack

from postlude.connections import adapters_of, open_broker, open_store
from postlude.core.event import spec_of
from postlude.core.lanes import LANES
from postlude.errors import ConfigurationError
from postlude.insight.actions import Actions
from postlude.insight.insight import Insight
from postlude.outbox.handlers import HandlerOptions, event_class_of, handler_of
from postlude.outbox.installed import Installed
from postlude.outbox.outbox import Handles, Outbox
from postlude.outbox.prepare import Preparing
from postlude.outbox.routes import EVERYTHING, Routes, route_of
from postlude.ports.broker import Broker
from postlude.ports.destination import Destination
from postlude.ports.store import SchemaStatus, Store
from postlude.runtime.duties.duty import Duty
from postlude.runtime.duties.partitions import MakePartitions
from postlude.runtime.duties.retention import Retention, RetentionOptions
from postlude.runtime.handling import HandlerDestination, HandlingParts
from postlude.runtime.publishing import BrokerDestination
from postlude.runtime.routing import RouteDestination
from postlude.runtime.shutdown import stop_on_signals
from postlude.runtime.threads import Threads
from postlude.runtime.transactions import TransactionFactory, transactions_of
from postlude.runtime.watchers import Hook, Watchers
from postlude.runtime.worker import Worker, WorkerOptions
from postlude.settings import Settings

H = TypeVar("H", bound=Callable[..., Any])
DEFAULT_BROKER = "default"
SPARE_CONNECTIONS = 3
"""Of the pool, that handlers never take: however long they hang, other destinations and appends go on."""


class SystemClock:
    """Real time and real chance."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic()

    def chance(self) -> float:
        return random.random()  # noqa: S311 - jitter is no secret


class Postlude:
    """An app: a database, brokers, event handlers, and what runs after your commit."""

    def __init__(
        self,
        database: str | None = None,
        *,
        broker: str | None = None,
        brokers: Mapping[str, str] | None = None,
        databases: Mapping[str, str] | None = None,
        transactions: TransactionFactory | None = None,
        settings: Settings | None = None,
    ) -> None:
        if databases:
            raise ConfigurationError(
                "several databases in one app are not supported yet", hint="Make one app for each."
            )
        self.settings = settings or Settings.load()
        self._url = database or self.settings.database
        self._brokers = _broker_urls(self.settings, broker, brokers)
        self._opened_brokers: dict[str, Broker] = {}
        self._factory = transactions
        self._hooks: list[Hook] = []
        self._workers: list[Worker] = []
        self._installed = Installed(self.settings.lanes)
        self._started = False
        self._hint_due: asyncio.TimerHandle | None = None
        self.clock: Any = SystemClock()
        retry = self.settings.retry
        self.routes = Routes(retry=retry.policy(), retries=retry.policies(), on_dead=self.settings.order.on_dead)

    # ------------------------------------------------------------ declaring

    def on(self, event: type[Any], **options: Unpack[HandlerOptions]) -> Callable[[H], H]:
        """Handle events of that class. The name is what its work waits under: keep it when the function is renamed."""
        spec_of(event)

        def decorate(function: H) -> H:
            self.routes.add_handler(handler_of(function, event, self.settings.handler.timeout, options))
            return function

        return decorate

    def register(self, handler: Any, **options: Unpack[HandlerOptions]) -> None:
        """Handle events with an `EventHandler` instance."""
        if not callable(getattr(handler, "handle", None)):
            raise ConfigurationError(f"{type(handler).__name__} has no method handle")
        named: HandlerOptions = {**options, "name": options.get("name") or type(handler).__name__}
        limit = self.settings.handler.timeout
        self.routes.add_handler(handler_of(handler.handle, event_class_of(handler), limit, named))

    def route(
        self,
        event: Any,
        *,
        to: str = DEFAULT_BROKER,
        topic: str | None = None,
        key: str | None = None,
    ) -> None:
        """Send events of a class, or every event (`"*"`), to a broker."""
        if to not in self._brokers:
            known = ", ".join(sorted(self._brokers)) or "none"
            raise ConfigurationError(
                f"there is no broker {to!r}", hint=f"Known: {known}. Give Postlude(broker=...) or brokers={{...}}."
            )
        self.routes.add(route_of(event, to, topic, key))
        if event != EVERYTHING:
            self.routes.know(spec_of(event))

    def on_dead_letter(self, hook: Hook) -> Hook:
        """Call it for every new dead letter, after it is durable, in a thread of its own."""
        self._hooks.append(hook)
        return hook

    def broker(self, name: str = DEFAULT_BROKER) -> Any:
        """The broker of that name, for tests and demos."""
        if name not in self._opened_brokers:
            if name not in self._brokers:
                raise ConfigurationError(f"there is no broker {name!r}")
            self._opened_brokers[name] = open_broker(self._brokers[name])
        return self._opened_brokers[name]

    # ------------------------------------------------------------ sides

    @cached_property
    def store(self) -> Store:
        if not self._url:
            raise ConfigurationError(
                "no database is given",
                hint="Postlude('sqlite:///shop.db'), POSTLUDE_DATABASE, or database in postlude.toml.",
            )
        return open_store(self._url, self.settings, self.clock)

    @cached_property
    def _handles(self) -> Handles:
        return Handles(self.store.dialect, adapters_of())

    @cached_property
    def outbox(self) -> Outbox:
        """Where events are appended."""
        limit = self.settings.payload.max_bytes
        preparing = Preparing(self.routes, self._installed, source=self.settings.source, max_bytes=limit)
        return Outbox(preparing, self._installed, self.store.scripts, self._handles, appended=self._appended)

    @cached_property
    def insight(self) -> Insight:
        """Where everything stands."""
        return Insight(self.store.records, self.store.ownership)

    @cached_property
    def actions(self) -> Actions:
        """What an operator can do."""
        store = self.store
        return Actions(store.operating, store.records, store.reading, lanes=lambda: self.lanes, hint=self._appended)

    @cached_property
    def db(self) -> Db:
        """The database's own structure."""
        return Db(self)

    @property
    def lanes(self) -> int:
        """As installed."""
        return self._installed.lanes

    # ------------------------------------------------------------ running

    @asynccontextmanager
    async def transaction(self, handle: Any = None) -> AsyncIterator[Any]:
        """Open a transaction of our own, or adopt the caller's handle as it is."""
        if handle is not None:
            self._handles.adapter(handle).require_transaction(handle)
            yield handle
            return
        await self.start()
        async with self.store.transaction() as opened:
            yield opened
        self._appended()

    async def start(self) -> None:
        """Connect and check the schema. Every method that needs it does so by itself."""
        if not self._started:
            await self.store.open()
            await self._check_schema()
            self._started = True

    async def close(self) -> None:
        """Give every connection back."""
        if self._hint_due is not None:
            self._hint_due.cancel()
            self._hint_due = None
        for broker in self._opened_brokers.values():
            await broker.close()
        if "store" in self.__dict__:
            await self.store.close()
        if "_threads" in self.__dict__:
            self._threads.close()
            del self.__dict__["_threads"]
        self.__dict__.pop("_places", None)
        self._started = False
        self._installed.forget()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def run(self, *, workers: int = 1, http: str | None = None) -> None:
        """Work until SIGTERM or SIGINT; a second one ends at once."""
        if http is not None:
            raise ConfigurationError("health and metrics over HTTP are not there yet")
        stop = asyncio.Event()
        await self.start()
        with stop_on_signals(stop):
            await asyncio.gather(*(self._work(stop) for _ in range(workers)))

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Worker]:
        """A worker inside this process, for a web app's lifespan."""
        await self.start()
        stop = asyncio.Event()
        worker = self._new_worker()
        await worker.start()
        self._workers.append(worker)
        task = asyncio.create_task(worker.run(stop))
        try:
            yield worker
        finally:
            stop.set()
            await task
            self._workers.remove(worker)

    async def run_once(self, limit: int | None = None) -> int:
        """One pass over what is due; gives the deliveries settled."""
        async with self._visiting() as worker:
            settled, _ = await worker.drain_once(limit)
            return settled

    async def drain(self, timeout: float = 30) -> int:
        """Pass after pass until nothing is due, or the time is over; gives the deliveries settled."""
        deadline = self.clock.monotonic() + timeout
        total = 0
        async with self._visiting() as worker:
            while True:
                settled, tried = await worker.drain_once()
                total += settled
                served = [name for name, relay in worker.relays.items() if not relay.paused]
                if not tried and not await self.store.reading.has_due(served):
                    return total
                if self.clock.monotonic() >= deadline:
                    return total
                if not tried:
                    await asyncio.sleep(0.02)
                    await worker.tick()

    # ------------------------------------------------------------ inside

    async def _work(self, stop: asyncio.Event) -> None:
        worker = self._new_worker()
        await worker.start()
        self._workers.append(worker)
        try:
            await worker.run(stop)
        finally:
            self._workers.remove(worker)

    @asynccontextmanager
    async def _visiting(self) -> AsyncIterator[Worker]:
        """A worker for a short while: cron, serverless, tests."""
        await self.start()
        worker = self._new_worker(duties=False)
        await worker.start()
        try:
            yield worker
        finally:
            await worker.stop()

    def _new_worker(self, *, duties: bool = True) -> Worker:
        options = self.settings
        return Worker(
            self.store,
            self._destinations(),
            self._duties() if duties else [],
            self.routes.policy,
            clock=self.clock,
            watchers=Watchers(self._hooks),
            options=WorkerOptions(
                lease=options.lane.lease,
                stall=options.lane.stall,
                poll_min=options.relay.poll_min_ms / 1000,
                poll_max=options.relay.poll_max_ms / 1000,
                shutdown_timeout=options.worker.shutdown_timeout,
                tick=min(1.0, options.lane.lease / 5),
            ),
        )

    def _destinations(self) -> list[Destination]:
        batch = self.settings.relay.batch_size
        store = self.store
        routes = partial(self.routes.resolve_stored, lanes=self.lanes)
        found: list[Destination] = [RouteDestination(store.settling, routes, batch=batch)]
        for name in sorted(self.routes.brokers()):
            topic = self.routes.topic(name)
            found.append(BrokerDestination(name, self.broker(name), lanes=self.lanes, batch=batch, topic=topic))
        parts = self._handling_parts()
        on_sqlite = store.dialect == "sqlite"
        for handler in self.routes.handlers.values():
            parallel = 1 if on_sqlite and handler.transactional else self.settings.handler.concurrency
            found.append(HandlerDestination(handler, parts, lanes=self.lanes, parallel=parallel))
        return found

    def _handling_parts(self) -> HandlingParts:
        on_sqlite = self.store.dialect == "sqlite"
        keep = self.settings.errors.keep or ("message" if on_sqlite else "location")
        return HandlingParts(
            outbox=self.outbox,
            scripts=self.store.scripts,
            settling=self.store.settling,
            handles=self._handles,
            transactions=transactions_of(self._factory, self.store.transaction),
            abandon=self.store.abandon,
            threads=self._threads,
            keep_messages=keep == "message",
            transaction_limit=self.settings.handler.sqlite_limit if on_sqlite else None,
            places=None if on_sqlite or self._factory is not None else self._places,
        )

    @cached_property
    def _places(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(max(1, self.settings.pool.max - SPARE_CONNECTIONS))

    @cached_property
    def _threads(self) -> Threads:
        return Threads(self.settings.handler.threads)

    def _duties(self) -> list[Duty]:
        retention = self.settings.retention
        kept = RetentionOptions(events_hours=retention.events_hours, dead_hours=retention.dead_hours)
        upkeep = self.store.upkeep
        return [
            MakePartitions(upkeep, days=retention.partitions_ahead_days, interval=retention.interval),
            Retention(upkeep, kept, interval=retention.interval),
        ]

    async def _check_schema(self) -> None:
        status = await self.store.schema.status()
        if status.pending and self.store.dialect == "sqlite":
            # An embedded file has no operator: it is simply made ready.
            await self.db.upgrade()
            status = await self.store.schema.status()
        self._installed.learn(status.lanes)

    def _appended(self) -> None:
        """Somebody appended: wake the workers of this process, or hint to others, at most once in a while."""
        for worker in self._workers:
            worker.hint()
        if not self._workers and self._started and self._hint_due is None:
            with contextlib.suppress(RuntimeError):
                self._hint_due = asyncio.get_running_loop().call_later(0.005, self._send_hint)

    def _send_hint(self) -> None:
        self._hint_due = None
        task = asyncio.ensure_future(self.store.hint())
        # A hint is only latency: whatever goes wrong with it, polling finds the work.
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())


class Db:
    """Upgrade, status, verify, print."""

    def __init__(self, app: Postlude) -> None:
        self._app = app

    async def upgrade(self, phase: str | None = None) -> list[str]:
        """Apply what is pending and make the first partitions; safe from many processes at once."""
        schema = self._app.store.schema
        stored = (await schema.status()).lanes
        applied = await schema.upgrade(phase, lanes=self._app.settings.lanes or stored or LANES)
        await self._app.store.upkeep.make_partitions(self._app.settings.retention.partitions_ahead_days)
        return applied

    async def status(self) -> SchemaStatus:
        return await self._app.store.schema.status()

    async def verify(self) -> list[str]:
        return await self._app.store.schema.verify()

    def sql(self) -> str:
        return self._app.store.schema.sql(lanes=self._app.settings.lanes or LANES)


def _broker_urls(settings: Settings, broker: str | None, brokers: Mapping[str, str] | None) -> dict[str, str]:
    urls = {**settings.brokers, **(brokers or {})}
    if (default := broker or settings.broker) is not None:
        urls[DEFAULT_BROKER] = default
    return urls
