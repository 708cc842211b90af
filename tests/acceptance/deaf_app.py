"""An app whose vendors do not hear that a call is cancelled."""

from __future__ import annotations

import asyncio
import os
import threading

from postlude import Erasure, Postlude, SubjectRef
from tests.acceptance.cli_shop import DATABASE

APP = "tests.acceptance.deaf_app:app"


class Deaf:
    name = "deaf"

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue


class Blocking:
    """Its client has no timeout, and hangs in a thread."""

    name = "blocking"

    async def erase_subject(self, ref: SubjectRef, *, idempotency_key: str) -> Erasure:
        await asyncio.to_thread(threading.Event().wait)
        return Erasure()


def deaf_on(url: str) -> Postlude:
    deaf = Postlude(url)
    for vendor in (Deaf(), Blocking()):
        deaf.resolvers.register(vendor, timeout=600)
    return deaf


app = deaf_on(os.environ.get(DATABASE, "sqlite:///nowhere.db"))


async def ask(url: str, vendor: str) -> None:
    """Have somebody erased there."""
    async with deaf_on(url) as deaf, deaf.transaction() as tx:
        await deaf.erasure.erase_subject(tx, "ada-4711", [SubjectRef(vendor, "cus_ada")])
