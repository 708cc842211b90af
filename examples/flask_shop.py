"""Flask with SQLAlchemy: `flask --app flask_shop:web run`, and `postlude run flask_shop:postlude` beside it.

It expects a table: `CREATE TABLE orders (id TEXT, state TEXT)`.
"""

from flask import Flask
from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker

from postlude import Context, Event, Postlude, event

web = Flask(__name__)
sessions = sessionmaker(create_engine("sqlite:///shop.db"))
postlude = Postlude("sqlite:///shop.db", transactions=sessions)
postlude.sync.start()


@event(key="order_id")
class OrderPlaced(Event):
    order_id: str


@postlude.on(OrderPlaced)
def reserve(placed: OrderPlaced, ctx: Context) -> None:
    ctx.tx.execute(text("UPDATE orders SET state = 'reserved' WHERE id = :id"), {"id": placed.order_id})


@web.post("/orders/<order_id>")
def place(order_id: str) -> str:
    with sessions.begin() as session:
        session.execute(text("INSERT INTO orders VALUES (:id, 'new')"), {"id": order_id})
        postlude.sync.outbox.append(session, OrderPlaced(order_id=order_id))
    return "placed"
