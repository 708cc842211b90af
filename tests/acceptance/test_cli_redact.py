"""`postlude privacy`: a data subject is taken out of Postlude's own tables, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from postlude import Postlude
from tests.acceptance.cli_shop import ONE_OF_EACH, InProcess, OrderPlaced, on_shop
from tests.databases import Databases

ADA = "customer-4711"


@pytest.fixture(params=ONE_OF_EACH)
def url(request: pytest.FixtureRequest, databases_on: Callable[[str], Databases]) -> str:
    return databases_on(request.param).fresh()


@pytest.fixture
def redact(capsys: pytest.CaptureFixture[str], url: str) -> Callable[..., Any]:
    run = InProcess(capsys)
    return lambda *words: run("privacy", "redact", *words, "--database", url)


def order(url: str) -> None:
    """Three deliveries: a broker and two handlers."""

    async def work(shop: Postlude) -> None:
        async with shop.transaction() as tx:
            await shop.outbox.append(tx, OrderPlaced(order_id="o-1"), subjects=[ADA])

    on_shop(url, work)


def test_what_must_finish_first_is_said_and_then_it_is_done(redact: Callable[..., Any], url: str) -> None:
    order(url)
    given = (ADA, "--pending", "publish-first", "--reason", "request 17")
    waiting = redact(*given)
    assert waiting.code == 1
    assert "3 open deliveries and sagas must finish first" in waiting.out
    assert "run this again" in waiting.out + waiting.err
    assert on_shop(url, lambda shop: shop.drain()) == 3
    done = redact(*given, "--json")
    assert done.code == 0
    assert done.json["is_complete"] is True
    counts = {name: done.json["redaction"][name] for name in ("events", "deliveries", "sagas", "waits")}
    assert counts == {"events": 1, "deliveries": 0, "sagas": 0, "waits": 0}
    assert ADA not in waiting.out + waiting.err + done.out + done.err


def test_what_is_pending_is_discarded_on_request(redact: Callable[..., Any], url: str) -> None:
    order(url)
    done = redact(ADA, "--pending", "discard", "--reason", "request 17", "--actor", "ann")
    assert done.code == 0
    assert "1 events" not in done.out
    assert "1 event and 0 sagas redacted, 3 deliveries discarded." in done.out
    assert on_shop(url, lambda shop: shop.drain()) == 0


@pytest.mark.parametrize(
    "words",
    [
        (ADA, "--reason", "request 17"),
        (ADA, "--pending", "later", "--reason", "request 17"),
        (ADA, "--pending", "discard"),
        (ADA, "--pending", "discard", "--reason", f"{ADA} asked"),
    ],
)
def test_the_choice_and_a_reason_are_needed(redact: Callable[..., Any], words: tuple[str, ...]) -> None:
    assert redact(*words).code == 2
