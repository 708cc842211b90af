"""Plain sqlite3 and no event loop: run this file. `postlude run plain_sqlite:app` would deliver as well."""

import sqlite3

from postlude import Event, Postlude, event

app = Postlude("sqlite:///shop.db")


@event(key="order_id")
class OrderPlaced(Event):
    order_id: str


@app.on(OrderPlaced)
def reserve(placed: OrderPlaced) -> None:
    print("reserve stock for", placed.order_id)


if __name__ == "__main__":
    app.sync.start()
    with sqlite3.connect("shop.db") as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT)")
        connection.execute("INSERT INTO orders VALUES ('o-1')")
        app.sync.outbox.append(connection, OrderPlaced(order_id="o-1"))
    app.sync.drain()
