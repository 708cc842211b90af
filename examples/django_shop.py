"""Django: with `DJANGO_SETTINGS_MODULE=django_settings`, `django-admin runserver`, and beside it
`postlude run django_shop:postlude`. It expects a table: `CREATE TABLE orders (id TEXT, state TEXT)`.
"""

from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path

from postlude import Context, Event, Postlude, event
from postlude.enlist.django import atomic, database_url

postlude = Postlude(database_url(), transactions=atomic())
postlude.sync.start()


@event(key="order_id")
class OrderPlaced(Event):
    order_id: str


@postlude.on(OrderPlaced)
def reserve(placed: OrderPlaced, ctx: Context) -> None:
    ctx.tx.cursor().execute("UPDATE orders SET state = 'reserved' WHERE id = %s", (placed.order_id,))


def place(_: HttpRequest, order_id: str) -> HttpResponse:
    with transaction.atomic():
        connection.cursor().execute("INSERT INTO orders VALUES (%s, 'new')", (order_id,))
        postlude.sync.outbox.append(connection, OrderPlaced(order_id=order_id))
    return HttpResponse("placed")


urlpatterns = [path("orders/<order_id>", place)]
