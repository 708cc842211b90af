"""What a worker process logs: its own lines, and nothing by which clients of vendors would tell whom a call is about."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import httpx
import pytest

from postlude.cli import logs
from postlude.settings import LogSettings


@contextmanager
def unset() -> Iterator[None]:
    """Logging that nobody has set up; afterwards it is as it was. pytest's own handlers are there in every phase."""
    root = logging.getLogger()
    known = [root, *map(logging.getLogger, logs.CLIENTS)]
    levels, handlers = [one.level for one in known], root.handlers[:]
    root.handlers.clear()
    for one in known[1:]:
        one.setLevel(logging.NOTSET)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for one, level in zip(known, levels, strict=True):
            one.setLevel(level)


def ask_vendor() -> None:
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200))) as client:
        client.delete("https://vendor.example/customers/cus_ada")


@pytest.mark.parametrize("level", ["debug", "info"])
def test_a_client_does_not_log_whom_it_asked_about(
    capsys: pytest.CaptureFixture[str], level: Literal["debug", "info"]
) -> None:
    with unset():
        logs.configure(LogSettings(level=level))
        ask_vendor()
        logging.getLogger("shop").info("an order is packed")
    written = capsys.readouterr().err
    assert "an order is packed" in written
    assert "cus_ada" not in written


def test_an_app_that_wants_to_see_requests_sees_them(capsys: pytest.CaptureFixture[str]) -> None:
    with unset():
        logging.getLogger("httpx").setLevel(logging.INFO)
        logs.configure(LogSettings(level="info"))
        ask_vendor()
    assert "cus_ada" in capsys.readouterr().err
