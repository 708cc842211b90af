"""Flask with SQLAlchemy: `flask --app flask_shop:web run`, and `postlude run flask_shop:postlude` beside it."""

from flask import Flask
from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker

from postlude import Context, Event, Postlude, event

URL = "sqlite:///shop.db"
sessions = sessionmaker(create_engine(URL))
postlude = Postlude(URL, transactions=sessions)
web = Flask(__name__)
with sessions.begin() as session:
    session.execute(text("CREATE TABLE IF NOT EXISTS orders (id TEXT, state TEXT)"))
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
