"""A small shop with every kind of reference to its users, and its data map."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import date
from typing import Any, NamedTuple, TypeVar
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, ForeignKey, create_engine, event, func, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from postlude import Anonymise, DataMap, Delete, Retain
from postlude.core.at_once import at_once
from postlude.enlist.sqlalchemy_schema import table_of
from tests.databases import configured_servers

T = TypeVar("T")


class Model(DeclarativeBase):
    pass


class User(Model):
    __tablename__ = "users"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    referrer_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    home_id: Mapped[int | None] = mapped_column(ForeignKey("places.id", use_alter=True))


class Place(Model):
    __tablename__ = "places"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    street: Mapped[str]


class Order(Model):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    approver_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    ship_to: Mapped[str]
    phone: Mapped[str | None]
    code: Mapped[str] = mapped_column(unique=True)


class Item(Model):
    __tablename__ = "items"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    engraving: Mapped[str | None]


class Invoice(Model):
    __tablename__ = "invoices"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))
    name: Mapped[str]


class Login(Model):
    """Not mapped: the database deletes it with the user."""

    __tablename__ = "logins"
    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))


class Visit(Model):
    """No constraint, only the id of a user."""

    __tablename__ = "visits"
    id: Mapped[int] = mapped_column(primary_key=True)
    who: Mapped[int]
    ip: Mapped[str | None]


USERS = (1, 2, 3)
KINDS_OF_DATABASE = [
    pytest.param("sqlite", marks=pytest.mark.sqlite),
    pytest.param(configured_servers()[0].name, marks=pytest.mark.postgres),
]
"""For `databases_on`: nothing here depends on the version of PostgreSQL."""

TABLES = (User, Place, Order, Item, Invoice, Login, Visit)
MARK = "Ada-Lovelace-"
"""In every personal value, so that it can be searched for."""


def shop_map() -> DataMap:
    data = DataMap(anchor=User.id)
    data.table(User, Delete())
    data.column(User.email, "email")
    data.table(Place, Delete(), path=Place.user_id)
    data.column(Place.street, "address")
    data.table(Order, path=Order.user_id)
    data.column(Order.ship_to, "name", Anonymise("erased"))
    data.column(Order.phone, "phone")
    data.column(Order.code, "code", Anonymise(func.random))
    data.column(Item.engraving, "name", Anonymise())
    data.column(Invoice.name, "name", Retain("tax law, ten years", until=date(2036, 1, 1)))
    data.table(Visit, Delete(), path=Visit.who)
    data.column(Visit.ip, "ip")
    return data


def fill(session: Session, *users: int) -> None:
    """For each user the same rows, the numbers made of the user's; all are referred by, and approve for, the first."""
    first = users[0]
    for user in users:
        session.add(User(id=user, email=f"{MARK}{user}", referrer_id=first))
        session.flush()
        session.add(Place(id=user, user_id=user, street=f"{MARK}{user}"))
        session.flush()
        session.get_one(User, user).home_id = user
        for number in (1, 2):
            key = user * 10 + number
            session.add(
                Order(
                    id=key,
                    user_id=user,
                    approver_id=first,
                    ship_to=f"{MARK}{user}",
                    phone=f"{MARK}{user}",
                    code=str(key),
                )
            )
            session.flush()
            session.add(Item(id=key, order_id=key, engraving=f"{MARK}{user}"))
            session.add(Invoice(id=key, order_id=key, name=f"{MARK}{user}"))
        session.add_all([Login(user_id=user), Visit(id=user, who=user, ip=f"{MARK}{user}")])
        session.flush()


def dump(session: Session, *models: type[Any]) -> dict[str, list[tuple[Any, ...]]]:
    tables = [table_of(model) for model in models or TABLES]
    return {
        table.name: [tuple(row) for row in session.execute(select(table).order_by(*table.primary_key))]
        for table in tables
    }


def engine_on(url: str) -> Engine:
    """With foreign keys enforced on SQLite too."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    if url.startswith("sqlite"):
        event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = ON"))
    return engine


class Sync(NamedTuple):
    """Sessions without an event loop."""

    url: str

    async def play(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        engine = engine_on(self.url)
        try:
            with Session(engine) as session, session.begin():
                return at_once(work(session))
        finally:
            engine.dispose()


class Async(NamedTuple):
    url: str

    async def play(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        async with self.opened() as session, session.begin():
            return await work(session)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[AsyncSession]:
        url = self.url.replace("postgresql://", "postgresql+asyncpg://").replace("sqlite://", "sqlite+aiosqlite://")
        engine = create_async_engine(url)
        if url.startswith("sqlite"):
            event.listen(
                engine.sync_engine,
                "connect",
                lambda connection, _: connection.cursor().execute("PRAGMA foreign_keys = ON"),
            )
        try:
            async with AsyncSession(engine) as session:
                yield session
        finally:
            await engine.dispose()


def dumped(url: str) -> dict[str, list[tuple[Any, ...]]]:
    engine = engine_on(url)
    with Session(engine) as session:
        found = dump(session)
    engine.dispose()
    return found
