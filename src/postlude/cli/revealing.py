"""Payloads on a screen: masked, unless somebody says why not; that is audited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import typer

from postlude.app import Postlude
from postlude.cli.acting import actor_name
from postlude.core.delivery import StoredEvent
from postlude.errors import ConfigurationError

Reveal = Annotated[bool, typer.Option("--reveal", help="Show payloads, and open what is sealed; audited.")]
Why = Annotated[str | None, typer.Option("--reason", help="Why they are revealed; it stands in the audit record.")]
AT_ONCE = 100


class Revealing:
    """What a command line says about it."""

    def __init__(self, *, reveal: bool, reason: str | None, actor: str | None) -> None:
        if reveal and not (reason or "").strip():
            raise ConfigurationError("--reveal needs --reason", hint="Say why; it stands in the audit record.")
        if reason is not None and not reveal:
            raise ConfigurationError("--reason goes with --reveal", hint="Without it everything is masked.")
        self.is_wanted = reveal
        self._reason = reason or ""
        self._actor = actor

    def masks(self, app: Postlude) -> bool:
        return app.settings.privacy.mask and not self.is_wanted

    async def audit(self, app: Postlude, target: str) -> None:
        """Before anything is shown."""
        if self.is_wanted:
            await app.privacy.audit_reveal(target, actor=actor_name(self._actor), reason=self._reason)

    async def opened(self, app: Postlude, events: AsyncIterator[StoredEvent]) -> AsyncIterator[StoredEvent]:
        """As they are stored, or opened where they can be."""
        page: list[StoredEvent] = []
        async for event in events:
            if not self.is_wanted:
                yield event
                continue
            page.append(event)
            if len(page) == AT_ONCE:
                for one in await app.privacy.opened(page):
                    yield one
                page.clear()
        for one in await app.privacy.opened(page) if page else ():
            yield one
