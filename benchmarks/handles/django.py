"""Django's connection inside `transaction.atomic()`, through psycopg, with Django's own cursors for every row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.db import connection, connections, transaction

from benchmarks.handles.handle import LAYER_AIM, Handle, Transactions, encode
from benchmarks.measuring.engine import OrderPlaced
from benchmarks.measuring.plain import TOPIC, new_id
from postlude import Postlude

_ORDER = "INSERT INTO shop_order (order_id, note) VALUES (%s, %s)"
_RAW = "INSERT INTO plain_outbox (event_id, topic, payload) VALUES (%s, %s, %s)"


@contextmanager
def _django(url: str, app: Postlude) -> Iterator[Transactions]:
    _use(url)

    def ours(event: OrderPlaced) -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(_ORDER, (event.order_id, event.note))
            app.sync.outbox.append(connection, event)

    def raw(event: OrderPlaced) -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute(_ORDER, (event.order_id, event.note))
            with connection.cursor() as cursor:
                cursor.execute(_RAW, (new_id(), TOPIC, encode(event)))

    try:
        yield Transactions(ours, raw)
    finally:
        connections.close_all()


def _use(url: str) -> None:
    """A process has one set of databases for good: this is the only one."""
    parts = urlsplit(url)
    found = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
    }
    settings.configure(DATABASES={"default": found}, USE_TZ=True)
    django.setup()


HANDLES = (Handle(name="django", aim=LAYER_AIM, blocks=_django),)
