"""The outbox: events join the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Unpack
from uuid import UUID

from postlude.errors import ConfigurationError
from postlude.outbox.installed import Installed
from postlude.outbox.options import AppendOptions
from postlude.outbox.prepare import Message, Preparing
from postlude.ports.append import Prepared
from postlude.ports.enlist import Adapter
from postlude.ports.privacy import Sealing
from postlude.ports.scripts import Scripts


class Handles:
    """The adapters of one dialect: which one knows this handle?"""

    def __init__(self, dialect: str, adapters: Sequence[Adapter]) -> None:
        self._dialect = dialect
        self._adapters = adapters
        self._known: dict[type[object], Adapter] = {}

    def adapter(self, handle: object) -> Adapter:
        """Refuses what nobody knows, and handles of another database."""
        known = self._known.get(type(handle))
        if known is None:
            known = self._known[type(handle)] = self._find(handle)
        if (dialect := known.dialect(handle)) != self._dialect:
            raise ConfigurationError(
                f"a {dialect} handle was given to an app on {self._dialect}",
                hint="Append on a handle of the database the app was made for.",
            )
        return known

    def _find(self, handle: object) -> Adapter:
        for adapter in self._adapters:
            if adapter.fits(handle):
                return adapter
        raise ConfigurationError(
            f"{type(handle).__module__}.{type(handle).__qualname__} is not a handle Postlude can join",
            hint="Give what your transaction runs on: a connection of asyncpg, psycopg, sqlite3 or aiosqlite, an"
            " SQLAlchemy session or connection, a Django connection, or app.transaction().",
        )


class Outbox:
    """`append` writes an event and its deliveries in the caller's transaction; it never commits."""

    def __init__(
        self,
        preparing: Preparing,
        installed: Installed,
        scripts: Scripts,
        handles: Handles,
        *,
        appended: Callable[[], None],
        sealing: Sealing | None = None,
    ) -> None:
        self._sealing = sealing
        self._preparing = preparing
        self._installed = installed
        self._scripts = scripts
        self._handles = handles
        self._appended = appended

    async def append(self, tx: Any, event: object, **options: Unpack[AppendOptions]) -> UUID:
        """Append one event. Same id and same content again is a no-op that gives the id back."""
        return (await self._write(tx, [Message(event, **options)]))[0]

    async def append_many(self, tx: Any, events: Sequence[object]) -> list[UUID]:
        """Append events or `Message(event, **options)`, in order, in one statement."""
        messages = [event if isinstance(event, Message) else Message(event) for event in events]
        return await self._write(tx, messages) if messages else []

    async def _write(self, tx: Any, messages: Sequence[Message]) -> list[UUID]:
        await self.join(tx)
        return await self.write(tx, [self._preparing.one(message) for message in messages])

    async def join(self, tx: Any) -> Preparing:
        """Refuse a handle that is in no transaction. What is prepared from now on knows the lanes."""
        adapter = self._handles.adapter(tx)
        adapter.require_transaction(tx)
        if not self._installed.is_known:
            self._installed.learn(await adapter.play(tx, self._scripts.lanes()))
        return self._preparing

    async def write(self, tx: Any, prepared: Sequence[Prepared]) -> list[UUID]:
        """Append what is prepared already, in one statement."""
        if any(one.seals is not None for one in prepared):
            prepared = await self.seal(tx, prepared)
        ids = await self._handles.adapter(tx).play(tx, self._scripts.append(prepared))
        self.hint()
        return ids

    async def seal(self, tx: Any, prepared: Sequence[Prepared], *, from_afar: bool = False) -> Sequence[Prepared]:
        """As it is to be stored."""
        if self._sealing is None or all(one.seals is None for one in prepared):
            return prepared
        return await self._sealing.seal(partial(self._handles.adapter(tx).play, tx), prepared, from_afar=from_afar)

    def hint(self) -> None:
        """Somebody appended: whoever works should look."""
        self._appended()
