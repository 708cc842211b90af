"""Two services with a broker between them: a shop that relays what moves, and an office with two consumers of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from postlude import Context, Postlude, Settings
from tests.acceptance.chaos_app import Moved

SHOP, OFFICE, BROKER, OPTIONS = "CHAOS_SHOP", "CHAOS_OFFICE", "CHAOS_BROKER", "CHAOS_BROKER_OPTIONS"
TOPIC = "events.moved"
CONSUMERS = ("billing", "shipping")

EFFECTS = "CREATE TABLE effect (position bigserial, consumer text, event_id uuid, key text, n int, attempt int)"
"""No unique constraint: a second effect of an event must be able to happen, so that it would show."""


def environment(*, shop: str, office: str, broker: str, options: Mapping[str, Any]) -> dict[str, str]:
    """What the processes are told."""
    return {SHOP: shop, OFFICE: office, BROKER: broker, OPTIONS: json.dumps(options)}


def make_shop(told: Mapping[str, str]) -> Postlude:
    app = _app(told, told[SHOP])
    app.route(Moved)
    return app


def make_office(told: Mapping[str, str]) -> Postlude:
    app = _app(told, told[OFFICE])
    for consumer in CONSUMERS:
        _add_consumer(app, consumer)
    return app


def _app(told: Mapping[str, str], database: str) -> Postlude:
    broker = {"url": told[BROKER], "options": json.loads(told[OPTIONS])}
    return Postlude(database, settings=Settings.load(brokers={"default": broker}))


def _add_consumer(app: Postlude, consumer: str) -> None:
    @app.on(Moved, topic=TOPIC, consumer=consumer, name=consumer)
    async def note(moved: Moved, ctx: Context) -> None:
        sql = "INSERT INTO effect (consumer, event_id, key, n, attempt) VALUES ($1, $2, $3, $4, $5)"
        await ctx.tx.execute(sql, consumer, ctx.event_id, moved.key, moved.n, ctx.attempt)


if SHOP in os.environ:  # in a process of its own: `postlude run tests.acceptance.broker_app:shop`
    shop, office = make_shop(os.environ), make_office(os.environ)
