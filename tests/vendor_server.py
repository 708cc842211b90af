"""The vendors of tests/vendors.py behind a real HTTP server: `python -m tests.vendor_server [--seed N] [--rate P] ...`.

As a process it prints its URL as its first line and ends when its input does. `InThread` is the same server inside a
test's process. `VendorAdmin` is how a test speaks to either.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import httpx
import msgspec

from tests.source_tree import ROOT
from tests.vendors import Asked, Effect, Plan, Told, Vendors
from tools.processes import bound


class VendorServer:
    """One port that stays ours while nobody listens on it."""

    def __init__(self, vendors: Vendors) -> None:
        self.vendors = vendors
        self._reserved = _socket(0)
        self.port: int = self._reserved.getsockname()[1]
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, sock=_socket(self.port), backlog=512)

    async def stop(self) -> None:
        """Connections are refused from now on, and those that are open are cut."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._connections):
            writer.transport.abort()

    async def close(self) -> None:
        await self.stop()
        self._reserved.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while (asked := await _read(reader)) and await self._answer(asked, reader, writer):
                    pass
        finally:
            self._connections.discard(writer)
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Is the connection still of use?"""
        told = self._administer(asked) if asked.path[0] == "admin" else self.vendors.answer(asked)
        match told.fault:
            case "drop" | "lost_drop":
                return False
            case "hang" | "lost_hang":
                await reader.read()  # until the client has had enough
                return False
            case _:
                writer.write(_written(told))
                await writer.drain()
                return True

    def _administer(self, asked: Asked) -> Told:
        given = msgspec.json.decode(asked.body) if asked.body else {}
        return Told(200, getattr(self.vendors, asked.path[1])(**given))


class VendorAdmin:
    """What a test asks of the server, from the outside: `/admin/NAME` is the method of that name of `Vendors`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client = httpx.Client(base_url=url, timeout=30)

    def give(self, kind: str, vendor: str, subjects: Sequence[str], values: Mapping[str, Any] | None = None) -> None:
        """Subjects that the vendor has stored from now on."""
        self._ask("give", kind=kind, vendor=vendor, subjects=list(subjects), values=values or {})

    def fail(self, vendor: str, kind: str) -> None:
        """Whatever the plan says, until `heal`."""
        self._ask("fail", vendor=vendor, kind=kind)

    def heal(self, vendor: str) -> None:
        self._ask("heal", vendor=vendor)

    def expire(self, vendor: str, subject: str) -> None:
        self._ask("expire", vendor=vendor, subject=subject)

    def values(self, vendor: str, subject: str) -> dict[str, Any] | None:
        return msgspec.convert(self._ask("values", vendor=vendor, subject=subject), dict[str, Any] | None)

    def left(self, vendor: str) -> list[str]:
        return msgspec.convert(self._ask("left", vendor=vendor), list[str])

    def journal(self) -> list[Effect]:
        return msgspec.convert(self._ask("done"), list[Effect])

    def effects(self) -> Counter[tuple[str, str, str]]:
        """How often each (vendor, idempotency key, target) had an effect. More than once is what must not be."""
        return Counter((one.vendor, one.key, one.target) for one in self.journal())

    def keys(self) -> dict[tuple[str, str], dict[str, int]]:
        """By vendor and subject: the keys that came with requests to change something, and how often each came."""
        found: dict[tuple[str, str], dict[str, int]] = {}
        for vendor, subject, key, count in msgspec.convert(self._ask("keyed"), list[tuple[str, str, str, int]]):
            found.setdefault((vendor, subject), {})[key] = count
        return found

    def told(self) -> dict[str, int]:
        """Answers by vendor and status or fault, such as "crm lost"."""
        return msgspec.convert(self._ask("answers"), dict[str, int])

    def close(self) -> None:
        self._client.close()

    def _ask(self, what: str, **given: Any) -> Any:
        return self._client.post(f"/admin/{what}", content=msgspec.json.encode(given)).raise_for_status().json()


class InThread:
    """The server in a thread of its own, with a loop of its own: what hangs there hangs nobody else."""

    def __init__(self, vendors: Vendors | None = None) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vendors", daemon=True)
        self._server = VendorServer(vendors or Vendors())
        self.url = f"http://127.0.0.1:{self._server.port}"
        self.admin = VendorAdmin(self.url)

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def start(self) -> None:
        self._run(self._server.start())

    def stop(self) -> None:
        self._run(self._server.stop())

    def __exit__(self, *_: object) -> None:
        self.admin.close()
        self._run(self._server.close())
        self._run(_finished())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()

    def _run(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)


@contextlib.contextmanager
def vendor_process(plan: Plan, *, retention: float = 30 * 86400.0) -> Iterator[VendorAdmin]:
    """The server as a process of its own, that ends with the block or with this process."""
    options = {"seed": plan.seed, "rate": plan.rate, "most": plan.most, "refused": plan.refused, "retention": retention}
    given = [f"--{name}={value}" for name, value in options.items()]
    command = bound([sys.executable, "-m", "tests.vendor_server", *given])
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        admin = VendorAdmin(process.stdout.readline().strip())
        try:
            yield admin
        finally:
            admin.close()
            process.stdin.close()
            process.wait(30)


async def _finished() -> None:
    """Every connection has noticed that it is cut."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=20)


def _socket(port: int) -> socket.socket:
    bound_socket = socket.socket()
    bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound_socket.bind(("127.0.0.1", port))
    return bound_socket


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    return Asked(method, target, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def _written(told: Told) -> bytes:
    body = b"" if told.status == 204 else msgspec.json.encode(told.body)
    lines = [f"HTTP/1.1 {told.status} told", "content-type: application/json", f"content-length: {len(body)}"]
    if told.status == 429:
        lines.append("retry-after: 1")
    return "\r\n".join([*lines, "", ""]).encode() + body


async def main(vendors: Vendors) -> None:
    server = VendorServer(vendors)
    await server.start()
    sys.stdout.write(f"http://127.0.0.1:{server.port}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await server.close()
    await _finished()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, kind in (("seed", int), ("rate", float), ("most", int), ("refused", float), ("retention", float)):
        parser.add_argument(f"--{name}", type=kind, required=True)
    options = vars(parser.parse_args())
    retention = options.pop("retention")
    asyncio.run(main(Vendors(Plan(**options), retention=retention)))
