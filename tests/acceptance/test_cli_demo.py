"""`postlude demo`: the books balance, on both databases, and would show it if they did not."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from postlude.app import Postlude
from postlude.cli.demo import shop, tables
from postlude.cli.demo.books import Books, close_books
from postlude.cli.demo.shop import Shop
from postlude.settings import Settings
from tests.acceptance.cli_shop import Answer, end, finish, postlude, start
from tests.engine import query, until

NOWHERE = "postgresql://me:s3cret@127.0.0.1:1/shop"
SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname = 'postlude_demo'"


def _check(answer: Answer, orders: int) -> None:
    assert answer.code == 0, answer
    books = answer.json
    assert books["appended"] == books["delivered"] + books["dead"] == orders * 4
    assert (books["lost"], books["dead"]) == (0, 0)
    assert books["effects"] == books["orders"] == orders
    assert books["duplicates_suppressed"] >= 1
    assert books["retried"] >= 1
    assert 0 < books["elapsed_s"] < 90


def test_demo_balances_on_an_embedded_file() -> None:
    _check(postlude("demo", "--json", "--orders", "25", POSTLUDE_RELAY__BATCH_SIZE="not for the demo"), 25)


def test_demo_balances_on_postgresql_and_leaves_nothing_behind(any_postgres_url: str) -> None:
    _check(postlude("demo", "--json", "--orders", "25", "--database", any_postgres_url), 25)
    assert asyncio.run(query(any_postgres_url, SCHEMAS)) == []


def test_demo_tells_people_what_happened() -> None:
    answer = postlude("demo", "--orders", "5")
    assert answer.code == 0, answer
    assert "Reject at" in answer.out
    assert "The books balance: 20 appended = 20 delivered + 0 dead" in answer.out
    assert "1 requeued" in answer.err


def test_demo_keeps_off_a_schema_that_is_not_its_own(any_postgres_url: str) -> None:
    asyncio.run(query(any_postgres_url, "CREATE SCHEMA postlude_demo"))
    answer = postlude("demo", "--json", "--database", any_postgres_url)
    assert answer.code == 2
    assert answer.json["error"]["code"] == "configuration.refused"
    assert asyncio.run(query(any_postgres_url, SCHEMAS)) == [("postlude_demo",)]


def test_demo_replaces_what_a_killed_demo_left(any_postgres_url: str) -> None:
    asyncio.run(query(any_postgres_url, "CREATE SCHEMA postlude_demo"))
    asyncio.run(query(any_postgres_url, f"COMMENT ON SCHEMA postlude_demo IS '{tables.MARK}'"))
    asyncio.run(query(any_postgres_url, "CREATE TABLE postlude_demo.demo_order (old text)"))
    _check(postlude("demo", "--json", "--orders", "4", "--database", any_postgres_url), 4)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_demo_leaves_nothing_behind(any_postgres_url: str, number: signal.Signals) -> None:
    process = start("demo", "--json", "--orders", "20000", "--database", any_postgres_url)
    try:

        async def is_open() -> bool:
            return bool(
                await query(any_postgres_url, f"{SCHEMAS} AND to_regclass('postlude_demo.demo_mail') IS NOT NULL")
            )

        asyncio.run(until(is_open))
        process.send_signal(number)
        answer = finish(process)
    finally:
        end(process)
    assert (answer.code, answer.out) == (130, "")
    assert "Traceback" not in answer.err
    assert asyncio.run(query(any_postgres_url, SCHEMAS)) == []


@pytest.mark.parametrize("options", [["--json"], []], ids=["json", "people"])
def test_a_server_that_cannot_be_reached_is_said_without_the_password(options: list[str]) -> None:
    answer = postlude("demo", *options, "--database", NOWHERE)
    assert answer.code == 3
    assert "s3cret" not in answer.out + answer.err
    assert "Traceback" not in answer.err
    if options:
        assert answer.json["error"]["code"] == "database.unavailable"
    else:
        assert "hint:" in answer.err


@pytest.fixture
def settled_shop(tmp_path, monkeypatch):
    """A function that runs the shop to its end in this process, then spoils something, then closes the books."""
    monkeypatch.setattr(shop, "SELLING", 0.1)

    async def play(spoil: str) -> Books:
        settings = Settings.load({}, tmp_path, retry={"base_delay_seconds": 0})
        app = Postlude(f"sqlite:///{tmp_path}/shop.db", broker="memory://", settings=settings)
        try:
            shop = Shop(app, 6)
            shop.bug_is_fixed = True
            await tables.prepare(app)
            await shop.sell()
            await app.drain()
            async with app.transaction() as tx:
                await tables.run_sql(tx, spoil)
            return await close_books(app, 1.0)
        finally:
            await app.close()

    return lambda spoil: asyncio.run(play(spoil))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        ("SELECT 1", {"lost": 0, "delivered": 24}),
        ("DELETE FROM postlude_receipt WHERE rowid = (SELECT min(rowid) FROM postlude_receipt)", {"lost": 1}),
        ("DELETE FROM demo_mail WHERE rowid = 1", {"lost": 1}),
        ("INSERT INTO demo_effect SELECT * FROM demo_effect LIMIT 1", {"lost": 0, "effects_doubled": 1, "effects": 7}),
        ("INSERT INTO demo_order VALUES ('o-99', 'ada', 'no event')", {"lost": 3, "orders_without_event": 1}),
        ("DELETE FROM demo_order WHERE order_id = 'o-1'", {"events_without_order": 1}),
    ],
    ids=["nothing", "receipt", "mail", "effect-twice", "order-without-event", "event-without-order"],
)
def test_the_books_would_show_a_loss(settled_shop, spoil, expected) -> None:
    books = settled_shop(spoil)
    assert {name: getattr(books, name) for name in expected} == expected
    assert books.is_balanced == (spoil == "SELECT 1"), json.dumps(expected)
