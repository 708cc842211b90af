"""Django in one file: `python django_shop.py runserver`, and `postlude run django_shop:postlude` beside it."""

import sys

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse

settings.configure(
    SECRET_KEY="example",  # noqa: S106
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}},
)
django.setup()

from django.db import connection, transaction  # noqa: E402
from django.urls import path  # noqa: E402

from postlude import Context, Event, Postlude, event  # noqa: E402
from postlude.enlist.django import atomic, database_url  # noqa: E402

postlude = Postlude(database_url(), transactions=atomic())
postlude.sync.start()


@event(key="order_id")
class OrderPlaced(Event):
    order_id: str


@postlude.on(OrderPlaced)
def reserve(placed: OrderPlaced, ctx: Context) -> None:
    with ctx.tx.cursor() as cursor:  # or Order.objects.filter(...).update(...): models use the same connection
        cursor.execute("UPDATE orders SET state = 'reserved' WHERE id = %s", (placed.order_id,))


def place(_: HttpRequest, order_id: str) -> HttpResponse:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT, state TEXT)")
            cursor.execute("INSERT INTO orders VALUES (%s, 'new')", (order_id,))
        postlude.sync.outbox.append(connection, OrderPlaced(order_id=order_id))
    return HttpResponse("placed")


urlpatterns = [path("orders/<order_id>", place)]

if __name__ == "__main__":
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
