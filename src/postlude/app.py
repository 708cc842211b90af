"""The app: what is declared once, and the engines of its databases. The only place that sees everything."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType
from typing import Any, Self, TypeVar, Unpack

from postlude.audit.trail import Audit
from postlude.calls.resolvers import Resolvers
from postlude.connections import open_broker
from postlude.core.event import spec_of
from postlude.db import Db
from postlude.declared import Declared, SystemClock
from postlude.engine import Engine
from postlude.erasure.service import ErasureService
from postlude.errors import ConfigurationError
from postlude.inbox.consumers import consumers_of, interests_of
from postlude.inbox.inbox import Inbox
from postlude.inbox.interpreting import Mapped
from postlude.insight.actions import Actions
from postlude.insight.insight import Insight
from postlude.outbox.handlers import Handler, HandlerOptions, event_class_of, handler_of
from postlude.outbox.outbox import Outbox
from postlude.outbox.routes import EVERYTHING, Routes, route_of
from postlude.ports.broker import Broker
from postlude.ports.store import Store
from postlude.privacy.keyring import KeyRing, ring_of
from postlude.privacy.privacy import Privacy
from postlude.runtime.duties.by_hand import Maintenance
from postlude.runtime.shutdown import stop_on_signals
from postlude.runtime.transactions import TransactionFactory
from postlude.runtime.watchers import Hook
from postlude.runtime.worker import Worker
from postlude.saga.registry import Registry
from postlude.saga.service import SagaService
from postlude.settings import Settings
from postlude.sync.sync import Sync

H = TypeVar("H", bound=Callable[..., Any])
F = TypeVar("F", bound=Mapped)
DEFAULT = "default"


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
        keys: KeyRing | None = None,
    ) -> None:
        given = {"database": database, "databases": databases, "broker": broker, "brokers": brokers}
        self.settings = (settings or Settings.load()).having(**given)
        self._brokers = _broker_urls(self.settings, broker, brokers)
        self._opened_brokers: dict[str, Broker] = {}
        retry = self.settings.retry
        self.routes = Routes(retry=retry.policy(), retries=retry.policies(), on_dead=self.settings.order.on_dead)
        sagas = Registry(self.routes, has_broker=lambda name: name in self._brokers)
        self.resolvers = Resolvers(self.routes, self.settings.calls.retry.policy())
        """The foreign systems that can be called about a data subject."""
        ring = keys or ring_of(self.settings.privacy.keys_file)
        sides = (self.broker, SystemClock(), sagas, self.resolvers)
        self._declared = Declared(self.settings, self.routes, [], *sides, keys=ring)
        self._engines = self._engines_of(database, databases, transactions)
        self.databases = MappingProxyType(self._engines)
        """Each with its own outbox, insight, actions, db, sync and transaction."""
        self.default = DEFAULT
        """The name of the database that is meant when none is named."""

    # ------------------------------------------------------------ declaring

    def on(self, event: type[Any], **options: Unpack[HandlerOptions]) -> Callable[[H], H]:
        """Handle events of that class. The name is what its work waits under: keep it when the function is renamed."""
        spec_of(event)

        def decorate(function: H) -> H:
            self._add_handler(handler_of(function, event, self.settings.handler.timeout, options))
            return function

        return decorate

    def foreign(self, topic: str, *, broker: str = DEFAULT) -> Callable[[F], F]:
        """Messages of that topic are no CloudEvents: the function makes an event of one, a `Message` with the id that
        identifies it, or None when it is to be ignored."""
        self._require_broker(broker)

        def decorate(function: F) -> F:
            if inspect.iscoroutinefunction(function):
                raise ConfigurationError(
                    f"the mapping of {topic} is a coroutine function", hint="A mapping only computes: write def."
                )
            if (broker, topic) in self._declared.foreign:
                raise ConfigurationError(f"there are two mappings of {topic} from {broker}")
            self._declared.foreign[broker, topic] = function
            return function

        return decorate

    def register(self, handler: Any, **options: Unpack[HandlerOptions]) -> None:
        """Handle events with an `EventHandler` instance."""
        if not callable(getattr(handler, "handle", None)):
            raise ConfigurationError(f"{type(handler).__name__} has no method handle")
        named: HandlerOptions = {**options, "name": options.get("name") or type(handler).__name__}
        limit = self.settings.handler.timeout
        self._add_handler(handler_of(handler.handle, event_class_of(handler), limit, named))

    def route(
        self,
        event: Any,
        *,
        to: str = DEFAULT,
        topic: str | None = None,
        key: str | None = None,
        open_sealed: bool = False,
    ) -> None:
        """Send events of a class, or every event (`"*"`), to a broker; sealed as they are stored, or opened."""
        self._require_broker(to)
        self.routes.add(route_of(event, to, topic, key, open_sealed=open_sealed))
        if event != EVERYTHING:
            self.routes.know(spec_of(event))

    def on_dead_letter(self, hook: Hook) -> Hook:
        """Call it for every new dead letter, after it is durable, in a thread of its own."""
        self._declared.hooks.append(hook)
        return hook

    def broker(self, name: str = DEFAULT) -> Any:
        """The broker of that name, for tests and demos."""
        if name not in self._opened_brokers:
            if name not in self._brokers:
                raise ConfigurationError(f"there is no broker {name!r}")
            told = self.settings.brokers.get(name)
            self._opened_brokers[name] = open_broker(self._brokers[name], told.options if told else None)
        return self._opened_brokers[name]

    @property
    def clock(self) -> Any:
        """Time and chance; tests give another one before the first use."""
        return self._declared.clock

    @clock.setter
    def clock(self, clock: Any) -> None:
        self._declared.clock = clock

    # ------------------------------------------------------------ the default database

    @property
    def engine(self) -> Engine:
        """The database that is meant when none is named."""
        if self.default not in self._engines:
            raise ConfigurationError(
                f"this app has no default database, only {', '.join(self._engines)}",
                hint="Name one, as in app.databases['NAME'].outbox, or give Postlude(database=...) too.",
            )
        return self._engines[self.default]

    @property
    def store(self) -> Store:
        return self.engine.store

    @property
    def outbox(self) -> Outbox:
        """Where events are appended."""
        return self.engine.outbox

    @property
    def inbox(self) -> Inbox:
        """What consumers have seen."""
        return self.engine.inbox

    @property
    def sagas(self) -> SagaService:
        """Processes of several steps that end in a known state."""
        return self.engine.sagas

    @property
    def erasure(self) -> ErasureService:
        """Erasing and rectifying data subjects, here and everywhere else."""
        return self.engine.erasure

    @property
    def insight(self) -> Insight:
        """Where everything stands."""
        return self.engine.insight

    @property
    def actions(self) -> Actions:
        """What an operator can do."""
        return self.engine.actions

    @property
    def audit(self) -> Audit:
        """Who did what, and whether anybody changed what is written of it."""
        return self.engine.audit

    @property
    def privacy(self) -> Privacy:
        """Data subjects in our own tables: redaction, and the keys of what is sealed."""
        return self.engine.privacy

    @property
    def maintenance(self) -> Maintenance:
        """The duties, for whoever does one by hand."""
        return self.engine.maintenance

    @property
    def db(self) -> Db:
        """The database's own structure."""
        return self.engine.db

    @property
    def sync(self) -> Sync:
        """The same for code without an event loop."""
        return self.engine.sync

    @property
    def lanes(self) -> int:
        """As installed."""
        return self.engine.lanes

    @asynccontextmanager
    async def transaction(self, handle: Any = None) -> AsyncIterator[Any]:
        """Open a transaction of our own, or adopt the caller's handle as it is."""
        async with self.engine.transaction(handle) as opened:
            yield opened

    # ------------------------------------------------------------ all databases

    async def start(self) -> None:
        """Connect and check the schema. Every method that needs it does so by itself."""
        for engine in self._engines.values():
            await engine.start()

    async def close(self) -> None:
        """Give every connection back."""
        for broker in self._opened_brokers.values():
            await broker.close()
        for engine in self._engines.values():
            await engine.close()

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
        with stop_on_signals(stop):
            async with AsyncExitStack() as stack:
                tasks = [
                    (await stack.enter_async_context(engine.working(stop)))[1]
                    for engine in self._engines.values()
                    for _ in range(workers)
                ]
                # The first that ends, for whatever reason, ends all.
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Worker]:
        """A worker inside this process, for a web app's lifespan; with several databases, one for each."""
        stop = asyncio.Event()
        async with AsyncExitStack() as stack:
            workers = [(await stack.enter_async_context(engine.working(stop)))[0] for engine in self._engines.values()]
            yield workers[0]

    @asynccontextmanager
    async def lifespan(self, _: object = None) -> AsyncIterator[None]:
        """For ASGI frameworks, as in `FastAPI(lifespan=app.lifespan)`: the worker runs inside the web process."""
        async with self, self.worker():
            yield

    async def run_once(self, limit: int | None = None) -> int:
        """One pass over what is due; gives the deliveries settled."""
        settled = 0
        for engine in self._engines.values():
            settled += await engine.run_once(None if limit is None else limit - settled)
        return settled

    async def drain(self, timeout: float = 30) -> int:
        """Pass after pass until nothing is due, or the time is over; gives the deliveries settled."""
        deadline = self.clock.monotonic() + timeout
        settled = 0
        for engine in self._engines.values():
            settled += await engine.drain(deadline - self.clock.monotonic())
        return settled

    # ------------------------------------------------------------ inside

    def _add_handler(self, handler: Handler) -> None:
        if handler.source is not None:
            self._require_broker(handler.source.broker)
            consumers_of([*interests_of(self.routes.handlers.values()), *interests_of([handler])])  # or it refuses
        self.routes.add_handler(handler)

    def _require_broker(self, name: str) -> None:
        if name not in self._brokers:
            known = ", ".join(sorted(self._brokers)) or "none"
            raise ConfigurationError(
                f"there is no broker {name!r}", hint=f"Known: {known}. Give Postlude(broker=...) or brokers={{...}}."
            )

    def _engines_of(
        self, database: str | None, databases: Mapping[str, str] | None, transactions: TransactionFactory | None
    ) -> dict[str, Engine]:
        urls: dict[str, str | None] = {**self.settings.databases, **(databases or {})}
        default = database or self.settings.database
        if default is not None or not urls:
            urls = {DEFAULT: default, **urls} if DEFAULT not in urls else urls | {DEFAULT: default}
        given = transactions if isinstance(transactions, Mapping) else {DEFAULT: transactions}
        if unknown := given.keys() - urls.keys() - {DEFAULT}:
            raise ConfigurationError(f"transactions name a database that is not there: {', '.join(sorted(unknown))}")
        taking = DEFAULT if DEFAULT in urls else next(iter(urls))
        return {
            name: Engine(
                url,
                self._declared,
                given.get(name),
                consumes=name == taking,
                suffix="" if name == DEFAULT else f".{name}",
            )
            for name, url in urls.items()
        }


def _broker_urls(settings: Settings, broker: str | None, brokers: Mapping[str, str] | None) -> dict[str, str]:
    urls = {**settings.broker_urls(), **(brokers or {})}
    if (default := broker or settings.broker) is not None:
        urls[DEFAULT] = default
    return urls
