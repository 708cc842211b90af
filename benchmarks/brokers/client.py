"""A broker and its client library, as a scenario sees them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Protocol

from benchmarks.measuring.turns import say
from postlude.core.envelope import BrokerMessage

GROUP = "bench"


class Client(Protocol):
    """A topic is new for every turn: it is made before, counted after and removed, none of it in the measured time.
    `publish` and `consume` are measured as a whole, connecting included."""

    name: str

    def server(self) -> AbstractContextManager[str]:
        """The address of a private one."""

    def options(self, topic: str) -> Mapping[str, Any]:
        """What our adapter is told beside the address, so that both sides have the same topic."""

    async def make(self, url: str, topic: str) -> None:
        """With room for a group of that name."""

    async def stored(self, url: str, topic: str) -> int:
        """How many messages it has."""

    async def unread(self, url: str, topic: str) -> int:
        """How many of them the group has not acknowledged."""

    async def remove(self, url: str, topic: str) -> None: ...

    def ready(self, messages: Sequence[BrokerMessage]) -> Sequence[Any]:
        """Key, headers and payload in the form that the client takes: the same bytes as ours on the wire."""

    async def publish(self, url: str, topic: str, ready: Sequence[Any], batch: int) -> None:
        """Returns when the broker has confirmed all of them."""

    async def consume(self, url: str, topic: str, count: int, batch: int) -> list[bytes]:
        """The payloads of that many, received and acknowledged."""


@contextmanager
def server_of(client: Client) -> Iterator[str]:
    """The user's own, or a private one."""
    variable = f"POSTLUDE_BENCH_{client.name.upper()}"
    if url := os.environ.get(variable):
        say(f"using the server of {variable}")
        yield url
        return
    with ExitStack() as stack:
        try:
            url = stack.enter_context(client.server())
        except LookupError as error:
            raise SystemExit(f"bench: no {client.name}: {error}. Name a server in {variable}, or see --only.") from None
        yield url


def chunks(ready: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(ready), size):
        yield ready[start : start + size]
