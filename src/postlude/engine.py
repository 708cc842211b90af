"""One database of an app, with everything wired to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from postlude.audit.file_sink import FileAuditSink
from postlude.audit.trail import Audit
from postlude.connections import adapters_of, open_store
from postlude.consumption import Consumption, all_interests
from postlude.core.upcast import require_upcasts
from postlude.db import Db, made_ready
from postlude.declared import Declared
from postlude.delivering import Delivering
from postlude.delivering import Sides as DeliveringSides
from postlude.erasing import Erasing
from postlude.erasing import Sides as ErasingSides
from postlude.erasure.service import ErasureService
from postlude.errors import ConfigurationError
from postlude.inbox.accepting import AcceptingParts
from postlude.inbox.consumers import destinations_of
from postlude.inbox.inbox import Inbox
from postlude.insight.actions import Actions
from postlude.insight.consumers import Inboxes
from postlude.insight.insight import Insight
from postlude.orchestration import Orchestration, Sides
from postlude.outbox.installed import Installed
from postlude.outbox.outbox import Handles, Outbox
from postlude.outbox.prepare import Preparing
from postlude.ports.destination import Destination
from postlude.ports.store import Store
from postlude.privacy.privacy import Privacy, PrivacyParts
from postlude.privacy.sealer import Sealer, SealerParts, require_keys
from postlude.runtime.duties.by_hand import Maintenance
from postlude.runtime.duties.chain import Chain
from postlude.runtime.duties.duty import Duty
from postlude.runtime.duties.partitions import MakePartitions
from postlude.runtime.duties.retention import Retention, RetentionOptions
from postlude.runtime.hints import Hints
from postlude.runtime.transactions import TransactionFactory
from postlude.runtime.watchers import Watchers
from postlude.runtime.worker import Worker, WorkerOptions
from postlude.runtime.workers import Workers
from postlude.saga.service import SagaService
from postlude.sync.appending import SyncInbox, SyncOutbox
from postlude.sync.erasure import SyncErasure
from postlude.sync.own_loop import OwnLoop
from postlude.sync.sagas import SyncSagas
from postlude.sync.sync import Sync, SyncSides


class Engine:
    """Appends, deliveries, insight and actions of one database."""

    def __init__(
        self,
        url: str | None,
        declared: Declared,
        transactions: TransactionFactory | None = None,
        *,
        consumes: bool = True,
        suffix: str = "",
    ) -> None:
        self._url = url
        self._suffix = suffix
        self._consumes = consumes
        self._declared = declared
        self._factory = transactions
        self._workers = Workers(self.new_worker, partial(self.new_worker, duties=False), self.start)
        self._installed = Installed(declared.settings.lanes)
        self._started = False
        self._hints = Hints(self._hint)

    # ------------------------------------------------------------ sides

    @cached_property
    def store(self) -> Store:
        if not self._url:
            raise ConfigurationError(
                "no database is given",
                hint="Postlude('sqlite:///shop.db'), POSTLUDE_DATABASE, or database in postlude.toml.",
            )
        return open_store(self._url, self._declared.settings, self._declared.clock)

    @cached_property
    def _handles(self) -> Handles:
        return Handles(self.store.dialect, adapters_of())

    @cached_property
    def outbox(self) -> Outbox:
        """Where events are appended."""
        sides = (self._preparing, self._installed, self.store.scripts, self._handles)
        return Outbox(*sides, appended=self._appended, sealing=self._sealer)

    @cached_property
    def _preparing(self) -> Preparing:
        settings = self._declared.settings
        limit = settings.payload.max_bytes
        return Preparing(self._declared.routes, self._installed, source=settings.source, max_bytes=limit)

    @cached_property
    def inbox(self) -> Inbox:
        """What consumers have seen."""
        return Inbox(self.store.scripts, self._handles, self._installed)

    @cached_property
    def insight(self) -> Insight:
        """Where everything stands."""
        store = self.store
        inboxes = Inboxes(store.receiving, store.records, lambda: destinations_of(all_interests(self._declared)))
        return Insight(store.records, store.ownership, store.operations, inboxes)

    @cached_property
    def actions(self) -> Actions:
        """What an operator can do."""
        store = self.store
        sides = (store.operating, store.operations, store.records, store.reading)
        hours = self._declared.settings.inbox.replay_window_hours
        actions = Actions(*sides, lanes=lambda: self.lanes, hint=self._appended, window_hours=hours)
        actions.bulk.turns["reseal"] = self.privacy.reseal
        return actions

    @cached_property
    def _sealer(self) -> Sealer:
        parts = SealerParts(lambda: self.store.scripts, lambda: self.store.subject_scripts, lambda: self.store.subjects)
        return Sealer(self._declared.keys, parts, max_bytes=self._declared.settings.payload.max_bytes)

    @cached_property
    def privacy(self) -> Privacy:
        """Data subjects in our own tables: redaction, and the keys of what is sealed."""
        store = self.store
        parts = PrivacyParts(
            scripts=store.scripts,
            subject_scripts=store.subject_scripts,
            subjects=store.subjects,
            operations=store.operations,
            handles=self._handles,
            bulk=lambda: self.actions.bulk,
            start=self.start,
            transaction=self.transaction,
            redacting=self._erasing.redacting,
            calls=store.calls,
            vault=self._erasing.vault,
        )
        return Privacy(self._sealer, parts)

    @cached_property
    def audit(self) -> Audit:
        """Who did what, and whether anybody changed what is written of it."""
        made = Audit(lambda: self.store.audits, self.start)
        if (file := self._declared.settings.audit.file) is not None:
            path = Path(file)
            made.add_sink(FileAuditSink(path.with_name(path.stem + self._suffix + path.suffix)), name="file")
        return made

    @cached_property
    def maintenance(self) -> Maintenance:
        """The duties, for whoever does one by hand."""
        clock, lease = self._declared.clock, self._declared.settings.lane.lease
        return Maintenance(self.store.upkeep, self.store.ownership, self.duties(), clock=clock, lease=lease)

    @cached_property
    def db(self) -> Db:
        """The database's own structure."""
        return Db(self.store, self._declared.settings)

    @cached_property
    def sync(self) -> Sync:
        """The same for code without an event loop."""
        loop = OwnLoop(self)
        outbox = SyncOutbox(self.outbox, self._handles)
        inbox = SyncInbox(self.inbox, self._handles)
        sagas = SyncSagas(self.sagas, self._handles, loop)
        erasure = SyncErasure(self.erasure, self._handles, loop)
        return Sync(
            SyncSides(outbox, inbox, sagas, erasure),
            self._handles,
            loop,
            open_own=self.store.sync_transaction,
            appended=self._appended,
        )

    @cached_property
    def _delivering(self) -> Delivering:
        sides = DeliveringSides(
            store=lambda: self.store,
            outbox=lambda: self.outbox,
            handles=lambda: self._handles,
            sealer=self._sealer,
            consumes=self._consumes,
        )
        return Delivering(self._declared, sides, self._factory)

    @cached_property
    def _orchestration(self) -> Orchestration:
        sides = Sides(
            store=lambda: self.store,
            outbox=lambda: self.outbox,
            handles=lambda: self._handles,
            start=self.start,
            open=self.transaction,
        )
        return Orchestration(self._declared, sides)

    @property
    def sagas(self) -> SagaService:
        """Processes of several steps that end in a known state."""
        return self._orchestration.service

    @cached_property
    def _erasing(self) -> Erasing:
        sides = ErasingSides(
            store=lambda: self.store,
            handles=lambda: self._handles,
            preparing=lambda: self._preparing,
            join=self._join,
            start=self.start,
            appended=self._appended,
        )
        return Erasing(self._declared, sides)

    @property
    def erasure(self) -> ErasureService:
        """Erasing and rectifying data subjects, here and everywhere else."""
        return self._erasing.service

    @property
    def lanes(self) -> int:
        """As installed."""
        return self._installed.lanes

    # ------------------------------------------------------------ life

    @property
    def is_started(self) -> bool:
        return self._started

    async def start(self) -> None:
        """Connect and check the schema. Every method that needs it does so by itself."""
        if not self._started:
            await self.store.open()
            self._installed.learn((await made_ready(self.db, self.store.dialect)).lanes)
            self._started = True

    async def close(self) -> None:
        """Give every connection back."""
        await self._hints.close()
        self._orchestration.close()
        await self._erasing.abandonments.close()
        if "store" in self.__dict__:
            await self.store.close()
        self._delivering.close()
        self._started = False
        self._installed.forget()
        self._sealer.forget()

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

    # ------------------------------------------------------------ running

    def working(self, stop: asyncio.Event) -> AbstractAsyncContextManager[tuple[Worker, asyncio.Task[None]]]:
        """A worker that runs meanwhile, and its task: it ends when `stop` is set, or by an error."""
        return self._workers.working(stop)

    async def run_once(self, limit: int | None = None) -> int:
        """One pass over what is due; gives the deliveries settled."""
        return await self._workers.run_once(limit)

    async def drain(self, timeout: float = 30) -> int:
        """Pass after pass until nothing is due, or the time is over; gives the deliveries settled."""
        return await self._workers.drain(timeout, self._declared.clock)

    def new_worker(self, *, duties: bool = True) -> Worker:
        """Not registered yet."""
        self._orchestration.check()
        require_upcasts(handler.spec for handler in self._declared.routes.handlers.values())
        require_keys(self._declared.routes.subscribed(), self._declared.keys)
        options = self._declared.settings
        consumption = self._consumption() if self._consumes else None
        return Worker(
            self.store,
            [*self._destinations(), *(consumption.destinations() if consumption else ())],
            self.duties() if duties else [],
            self._declared.routes.policy,
            clock=self._declared.clock,
            watchers=Watchers(self._declared.hooks, self._erasing.abandonments.notice),
            options=WorkerOptions(
                lease=options.lane.lease,
                stall=options.lane.stall,
                poll_min=options.relay.poll_min_ms / 1000,
                poll_max=options.relay.poll_max_ms / 1000,
                shutdown_timeout=options.worker.shutdown_timeout,
                tick=min(1.0, options.lane.lease / 5),
            ),
            consumers=consumption.consumers() if consumption else (),
        )

    def duties(self) -> list[Duty]:
        """What a worker does besides delivering."""
        retention = self._declared.settings.retention
        kept = RetentionOptions(
            events_hours=retention.events_hours,
            receipts_hours=retention.receipts_hours,
            dead_hours=retention.dead_hours,
            inbox_hours=self._declared.settings.inbox.retention_hours,
        )
        upkeep = self.store.upkeep
        return [
            MakePartitions(upkeep, days=retention.partitions_ahead_days, interval=retention.interval),
            Retention(upkeep, kept, interval=retention.interval),
            Chain(upkeep, self.store.audits, lambda: self.audit.sinks),
            *self._orchestration.duties(),
        ]

    # ------------------------------------------------------------ inside

    def _destinations(self) -> list[Destination]:
        lending, lanes = self._delivering.lending(), self.lanes
        makers = (self._delivering, self._erasing, self._orchestration)
        return [one for maker in makers for one in maker.destinations(lending, lanes=lanes)]

    def _consumption(self) -> Consumption:
        seal = partial(self.outbox.seal, from_afar=True)
        parts = AcceptingParts(self._installed, self.store.scripts, self._handles, self.transaction, seal)
        return Consumption(self._declared, self.store.receiving, parts, self._preparing, self._sealer.open)

    async def _join(self, tx: Any) -> Preparing:
        return await self.outbox.join(tx)

    async def _hint(self) -> None:
        await self.store.hint()

    def _appended(self) -> None:
        """Somebody appended: wake the workers of this process, or hint to others, at most once in a while."""
        if not self._workers.hint() and self._started:
            self._hints.soon()
