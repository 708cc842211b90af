"""After a restore: who was erased since the backup is back, until the copy of the audit trail is replayed."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from postlude import ConfigurationError, DataMap, Delete, NaiveDatetime, Postlude, Settings

pytestmark = pytest.mark.sqlite


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "customer"
    id: Mapped[str] = mapped_column(primary_key=True)
    email: Mapped[str]


class Shop:
    """An app on one file, with its sessions and the copy of its trail."""

    def __init__(self, folder: Path) -> None:
        self.file, self.copy = folder / "shop.db", folder / "audit.jsonl"
        self.app = Postlude(
            f"sqlite:///{self.file}", settings=Settings.load(environ={}, audit={"file": str(self.copy)})
        )
        self.app.erasure.use(DataMap(anchor=Customer.id).table(Customer, Delete()).column(Customer.email, "email"))
        self.engine = create_async_engine(f"sqlite+aiosqlite:///{self.file}")
        self.sessions = async_sessionmaker(self.engine)

    async def erase(self, *ids: str) -> None:
        for one in ids:
            async with self.sessions.begin() as session:
                await self.app.erasure.erase_subject(session, one)
        await self.app.maintenance.run("chain")

    async def customers(self) -> list[str]:
        async with self.sessions() as session:
            return list(await session.scalars(select(Customer.id).order_by(Customer.id)))

    async def replay(self, since: datetime, *, dry_run: bool = False) -> int:
        return await self.app.erasure.replay(
            self.copy, since=since, sessions=self.sessions.begin, reason="restored", dry_run=dry_run
        )

    async def close(self) -> None:
        await self.app.close()
        await self.engine.dispose()


@pytest.fixture
async def shop(tmp_path: Path):
    shop = Shop(tmp_path)
    async with shop.engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await shop.app.start()
    async with AsyncSession(shop.engine) as session, session.begin():
        session.add_all(Customer(id=f"c-{number}", email=f"{number}@example.com") for number in range(6))
    yield shop
    await shop.close()


def restore(backup: Path, file: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{file}{suffix}").unlink(missing_ok=True)
    shutil.copy(backup, file)


async def test_a_restored_database_forgets_again(shop: Shop, tmp_path: Path) -> None:
    await shop.erase("c-0")
    backed_up = await shop.app.store.records.now()
    await shop.close()
    shutil.copy(shop.file, tmp_path / "backup.db")

    later = Shop(tmp_path)
    await later.erase("c-1", "c-2")
    assert await later.customers() == ["c-3", "c-4", "c-5"]
    await later.close()

    restore(tmp_path / "backup.db", shop.file)
    restored = Shop(tmp_path)
    try:
        assert await restored.customers() == ["c-1", "c-2", "c-3", "c-4", "c-5"], "nobody came back"
        assert await restored.replay(backed_up, dry_run=True) == 2
        assert await restored.customers() == ["c-1", "c-2", "c-3", "c-4", "c-5"]
        assert await restored.replay(backed_up) == 2
        assert await restored.customers() == ["c-3", "c-4", "c-5"]
        assert await restored.replay(backed_up) == 0, "a replay may be repeated"
        replayed = await restored.app.audit.list(action="erasure_replayed")
        subjects = {f"subject:{await restored.app.erasure.pseudonym(one)}" for one in ("c-1", "c-2")}
        assert {record.target for record in replayed} == subjects
        assert not [one for one in replayed if "c-1" in f"{one.actor} {one.target} {one.reason} {one.detail}"]
    finally:
        await restored.close()


async def test_a_replay_needs_a_map_and_a_time_zone(shop: Shop, tmp_path: Path) -> None:
    await shop.erase("c-0")
    with pytest.raises(NaiveDatetime):
        await shop.replay(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point
    bare = Postlude(f"sqlite:///{tmp_path / 'bare.db'}")
    with pytest.raises(ConfigurationError, match="data map"):
        await bare.erasure.replay(shop.copy, since=datetime.now().astimezone(), sessions=shop.sessions, reason="x")
