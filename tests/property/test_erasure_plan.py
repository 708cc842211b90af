"""Random schemas, random rows, random maps: an erasure keeps every reference whole and touches nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from sqlalchemy import Column, Connection, Engine, ForeignKey, Integer, MetaData, String, Table, create_engine, select
from sqlalchemy import event as listening
from sqlalchemy.orm import Session

from postlude import Anonymise, ConfigurationError, DataMap, Delete, Retain
from postlude.core.at_once import at_once
from postlude.core.data_map import Path, Strategy
from postlude.ports.subject_data import Local
from tests.databases import Databases
from tests.shop_data import engine_on

MAX_TABLES = 5
SUBJECT = 1
ACTIONS = (None, "RESTRICT", "CASCADE", "SET NULL")


class Reference(NamedTuple):
    """From a table to another, by their numbers."""

    source: int
    target: int
    nullable: bool
    on_delete: str | None
    number: int

    @property
    def column(self) -> str:
        return f"r{self.number}_t{self.target}"


class World(NamedTuple):
    tables: int
    references: tuple[Reference, ...]
    rows: dict[str, dict[int, dict[str, Any]]]
    treatment: dict[int, str]
    """Of mapped tables: delete, anonymise, retain."""
    paths: dict[int, Reference]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    tables = draw(st.integers(2, MAX_TABLES))
    references: list[Reference] = []
    for number in range(draw(st.integers(2, 9))):
        source, target = draw(st.integers(0, tables - 1)), draw(st.integers(0, tables - 1))
        # Rows of tables that refer to each other by NOT NULL could never be written.
        nullable = target >= source or draw(st.booleans())
        references.append(Reference(source, target, nullable, draw(st.sampled_from(ACTIONS)), number))
    treatment = {0: draw(st.sampled_from(["delete", "delete", "anonymise"]))}
    paths = {}
    for table in range(1, tables):
        leading = [one for one in references if one.source == table and one.target < table]
        if leading and draw(st.integers(0, 4)) > 0:
            treatment[table] = draw(st.sampled_from(["delete", "delete", "anonymise", "retain"]))
            paths[table] = draw(st.sampled_from(leading))
    return World(tables, tuple(references), _rows(draw, tables, references), treatment, paths)


def _rows(draw: st.DrawFn, tables: int, references: list[Reference]) -> dict[str, dict[int, dict[str, Any]]]:
    ids = {table: list(range(1, draw(st.integers(2, 4)) + 1)) for table in range(tables)}
    return {
        f"t{table}": {
            row: {"id": row, "data": f"{table}-{row}"}
            | {
                one.column: draw(st.sampled_from([*ids[one.target], *([None] if one.nullable else [])]))
                for one in references
                if one.source == table
            }
            for row in ids[table]
        }
        for table in range(tables)
    }


def _metadata(world: World) -> MetaData:
    metadata = MetaData()
    for table in range(world.tables):
        Table(
            f"t{table}",
            metadata,
            Column("id", Integer, primary_key=True, autoincrement=False),
            Column("data", String),
            *(
                Column(
                    one.column,
                    Integer,
                    ForeignKey(
                        f"t{one.target}.id",
                        ondelete=one.on_delete,
                        name=f"fk_{one.source}_{one.number}",
                        use_alter=one.target > one.source,
                    ),
                    nullable=one.nullable,
                )
                for one in world.references
                if one.source == table
            ),
        )
    return metadata


def _map(world: World, metadata: MetaData) -> DataMap:
    data = DataMap(metadata.tables["t0"].c.id)
    for number, treatment in world.treatment.items():
        table = metadata.tables[f"t{number}"]
        path = table.c[world.paths[number].column] if number in world.paths else None
        data.table(table, Delete() if treatment == "delete" else None, path=path)
        strategies: dict[str, Strategy] = {"anonymise": Anonymise(), "retain": Retain("law")}
        data.column(table.c.data, "data", strategies.get(treatment))
    return data


def _insert(world: World, metadata: MetaData, connection: Connection) -> None:
    """References to what is not there yet are written afterwards."""
    for number in range(world.tables):
        table = metadata.tables[f"t{number}"]
        late = [one.column for one in world.references if one.source == number and one.nullable]
        for row in world.rows[table.name].values():
            connection.execute(table.insert().values({k: v for k, v in row.items() if k not in late}))
    for table in metadata.tables.values():
        for row in world.rows[table.name].values():
            connection.execute(table.update().where(table.c.id == row["id"]).values(row))


def _read(metadata: MetaData, session: Session) -> dict[str, dict[int, dict[str, Any]]]:
    return {
        table.name: {row.id: dict(row._mapping) for row in session.execute(select(table))}
        for table in metadata.tables.values()
    }


def _owned(world: World, path: Path, table: str) -> set[int]:
    """Rows from which the path leads to the subject, row by row."""
    found = set()
    for number, row in world.rows[table].items():
        at: Any = number
        place = world.rows[table].get(number)
        for hop in path:
            at = place[hop.columns[0]] if place else None
            place = world.rows[hop.target].get(at) if at is not None else None
        if at == SUBJECT and place:
            found.add(number)
        assert row["id"] == number
    return found


def _check(world: World, data: DataMap, done: Local, after: dict[str, dict[int, dict[str, Any]]]) -> None:
    paths = data.plan().paths
    gone = {name: rows.keys() - after[name].keys() for name, rows in world.rows.items()}
    counted = {name: done.tables.get(name, {}) for name in world.rows}
    assert {name: kinds.get("deleted", 0) for name, kinds in counted.items()} == {
        n: len(rows) for n, rows in gone.items()
    }
    for number in range(world.tables):
        name = f"t{number}"
        treatment = world.treatment.get(number)
        owned = _owned(world, paths[name][0], name) if treatment else set()
        if treatment == "delete":
            assert owned <= gone[name]
        if treatment in {"anonymise", "retain"}:
            assert not gone[name]
            assert counted[name][{"anonymise": "anonymised", "retain": "retained"}[treatment]] == len(owned)
        for row in world.rows[name].values():
            _check_row(world, number, row, gone, after[name].get(row["id"]), is_own=row["id"] in owned)


def _check_row(
    world: World,
    number: int,
    row: dict[str, Any],
    gone: dict[str, set[int]],
    now: dict[str, Any] | None,
    *,
    is_own: bool,
) -> None:
    mine = [one for one in world.references if one.source == number]
    lost = [one for one in mine if row[one.column] in gone[f"t{one.target}"]]
    if now is None:
        # Of others, only what the database itself would have taken along.
        assert is_own or any(one.on_delete == "CASCADE" for one in lost)
        return
    is_anonymised = is_own and world.treatment[number] == "anonymise"
    assert now["data"] == (None if is_anonymised else row["data"])
    for one in mine:
        assert now[one.column] == (None if one in lost else row[one.column])


def _erased(world: World, engine: Engine) -> None:
    metadata = _metadata(world)
    data = _map(world, metadata)
    try:
        plan = data.plan()
    except ConfigurationError:
        event("refused")  # which and why, the unit tests say
        return
    event(f"steps: {min(len(plan.steps), 6)}")
    metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        _insert(world, metadata, session.connection())
    with Session(engine) as session, session.begin():
        done = at_once(data.erase(session, str(SUBJECT)))
    with Session(engine) as session:
        after = _read(metadata, session)
        if engine.dialect.name == "sqlite":
            from sqlalchemy import text

            assert not session.execute(text("PRAGMA foreign_key_check")).all()
    _check(world, data, done, after)


@given(worlds())
@settings(max_examples=300)
def test_on_sqlite_no_reference_breaks_and_nobody_else_is_touched(world: World) -> None:
    engine = create_engine("sqlite://")
    listening.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = ON"))
    _erased(world, engine)
    engine.dispose()


@pytest.fixture
def postgres_engine(any_postgres_database: Databases) -> Iterator[Engine]:
    engine = engine_on(any_postgres_database.fresh(schema=False))
    yield engine
    engine.dispose()


@contextmanager
def _emptied(engine: Engine) -> Iterator[None]:
    yield
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")


@given(world=worlds())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_on_postgresql_no_reference_breaks_and_nobody_else_is_touched(postgres_engine: Engine, world: World) -> None:
    with _emptied(postgres_engine):
        _erased(world, postgres_engine)
