"""`once`: for users who consume by themselves, and for our own consumers."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from postlude.core.identity import identity
from postlude.errors import ConfigurationError
from postlude.outbox.installed import Installed
from postlude.outbox.outbox import Handles
from postlude.ports.scripts import Scripts

MAX_NAME = 200


class Inbox:
    """Remembers, in the caller's transaction, what a consumer has seen."""

    def __init__(self, scripts: Scripts, handles: Handles, installed: Installed) -> None:
        self._scripts = scripts
        self._handles = handles
        self._installed = installed

    async def once(self, tx: Any, consumer: str, event_id: UUID | str, *, source: str | None = None) -> bool:
        """True: this is the first time, so do it, in this transaction. False: it was done before.

        An id that is no UUID belongs to its `source`: both together are the identity.
        """
        if not consumer or len(consumer) > MAX_NAME:
            raise ConfigurationError(
                f"a consumer needs a name of at most {MAX_NAME} characters", hint="Such as 'billing'; keep it for ever."
            )
        adapter = self._handles.adapter(tx)
        adapter.require_transaction(tx)
        if not self._installed.is_known:
            self._installed.learn(await adapter.play(tx, self._scripts.lanes()))
        return await adapter.play(tx, self._scripts.once(consumer, identity(event_id, source)))
