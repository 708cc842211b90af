"""The demo's books: every number is counted in the database and at the destinations, none is remembered."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from postlude.app import Postlude
from postlude.cli.demo import tables
from postlude.cli.demo.shop import OrderPlaced, StockReserved
from postlude.core.event import spec_of
from postlude.insight.views import DeliveryView

PAGE = 1000
STOCK, MAIL, BROKER = "handler:reserve_stock", "handler:send_mail", "default"


class Books(msgspec.Struct, frozen=True, kw_only=True):
    """`appended`, `delivered` and `dead` count deliveries: an event has one for each destination."""

    appended: int
    delivered: int
    dead: int
    lost: int
    effects: int
    duplicates_suppressed: int
    elapsed_s: float
    orders: int
    events: int
    open: int
    retried: int
    effects_doubled: int
    settled_twice: int
    orders_without_event: int
    events_without_order: int

    @property
    def is_balanced(self) -> bool:
        """Nothing lost, nothing half-done, nothing twice."""
        wrong = (self.lost, self.open, self.effects_doubled, self.settled_twice)
        return not any((*wrong, self.orders_without_event, self.events_without_order)) and self.effects == self.orders


class ShopRows(msgspec.Struct, frozen=True):
    """What the shop and its partners wrote down themselves."""

    orders: list[str]
    clicks: int
    effects: list[str]
    mails: dict[str, int]


async def close_books(app: Postlude, elapsed: float) -> Books:
    """What was ordered must have gone everywhere it goes, and be found there."""
    shop = await _shop_rows(app)
    events = {str(event.event_id) async for event in app.insight.export(type=spec_of(OrderPlaced).type)}
    reserved = {str(event.event_id) async for event in app.insight.export(type=spec_of(StockReserved).type)}
    wanted = {(one, to) for one in shop.orders for to in (BROKER, STOCK, MAIL)} | {(one, BROKER) for one in reserved}
    # One reservation announced for each order whose stock is reserved; one that is missing is a loss too.
    appended = len(shop.orders) * 3 + len(set(shop.effects))
    receipts = [one async for one in _pages(app, "sent")]
    settled = [(str(one.event_id), one.destination) for one in receipts]
    dead = {(str(one.event_id), one.destination) async for one in _pages(app, "dead")}
    delivered = set(settled) & _arrived(app, shop) & wanted
    counts = await app.insight.counts()
    suppressed = shop.clicks - len(shop.orders) + sum(shop.mails.values()) - len(shop.mails)
    return Books(
        appended=appended,
        delivered=len(delivered),
        dead=len(dead),
        lost=appended - len(delivered) - len(dead & wanted),
        effects=len(shop.effects),
        duplicates_suppressed=suppressed,
        elapsed_s=round(elapsed, 2),
        orders=len(shop.orders),
        events=len(events) + len(reserved),
        open=sum(entries for status, entries in counts.items() if status != "dead"),
        retried=sum(one.attempts > 1 for one in receipts),
        effects_doubled=len(shop.effects) - len(set(shop.effects)),
        settled_twice=len(settled) - len(set(settled)),
        orders_without_event=len(set(shop.orders) - events),
        events_without_order=len(events - set(shop.orders)),
    )


def _arrived(app: Postlude, shop: ShopRows) -> set[tuple[str, str]]:
    """A receipt alone proves little: what was delivered is also found where it went."""
    published = {(str(message.id), BROKER) for message in app.broker().messages()}
    return published | {(one, STOCK) for one in shop.effects} | {(one, MAIL) for one in shop.mails}


async def _shop_rows(app: Postlude) -> ShopRows:
    async with app.transaction() as tx:
        orders = await tables.run_sql(tx, tables.ORDERS)
        clicks = await tables.run_sql(tx, tables.CLICKS)
        effects = await tables.run_sql(tx, tables.EFFECTS)
        mails = await tables.run_sql(tx, tables.MAILS)
    return ShopRows([row[0] for row in orders], clicks[0][0], [row[0] for row in effects], dict(mails))


async def _pages(app: Postlude, status: str) -> AsyncIterator[DeliveryView]:
    after: str | None = None
    while True:
        page = await app.insight.list(status, limit=PAGE, after=after)
        for one in page.items:
            yield one
        if page.after is None:
            return
        after = page.after
