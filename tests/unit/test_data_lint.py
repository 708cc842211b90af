"""The linter of data maps, its words, and what can be given to a map at all."""

from __future__ import annotations

import pytest
import typer
from sqlalchemy import Boolean, Column, DateTime, ForeignKey, Integer, LargeBinary, MetaData, String, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from postlude import Anonymise, ConfigurationError, DataMap, Delete
from postlude.cli import erasure_lint
from postlude.core.personal_words import looks_personal
from tests.shop_data import shop_map


@pytest.mark.parametrize(
    "name",
    [
        "email", "e_mail", "billing_email", "shipToEmail", "phone", "mobile_number", "first_name", "surname", "address",
        "street", "zip_code", "birth_date", "dob", "ssn", "iban", "ip", "client_ip", "passport_no", "gender", "lat", "lon",
        "longitude", "user_agent", "username", "tax_id", "card_number",
    ],
)  # fmt: skip
def test_names_that_look_personal(name: str) -> None:
    assert looks_personal(name, near_subject=False)


@pytest.mark.parametrize(
    "name",
    [
        "filename", "hostname", "file_name", "host_name", "table_name", "description", "recipe", "shipped", "relation",
        "latency", "plate", "status", "ship", "zipped", "balance", "flat", "user_id", "gendered_nothing", "tip",
        "host_address",
    ],
)  # fmt: skip
def test_names_that_do_not(name: str) -> None:
    assert looks_personal(name, near_subject=True) is None


def test_a_plain_name_counts_only_near_the_subject() -> None:
    assert looks_personal("name", near_subject=True) == "name"
    assert looks_personal("name", near_subject=False) is None


METADATA = MetaData()
USERS = Table(
    "users",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("email", String),
    Column("email_verified", Boolean),
    Column("phone_checked_at", DateTime),
    Column("birth_at", DateTime),
    Column("nickname", String),
)
NOTES = Table(
    "notes",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("user_id", ForeignKey("users.id")),
    Column("content", String),
)
LOGINS = Table(
    "logins",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("user_id", ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    Column("ip", String),
)
PRODUCTS = Table("products", METADATA, Column("id", Integer, primary_key=True), Column("name", String))
LETTERS = Table("newsletter", METADATA, Column("id", Integer, primary_key=True), Column("email", String))
OURS = Table("postlude_event", METADATA, Column("id", Integer, primary_key=True), Column("email", String))


def test_what_is_missing_is_found() -> None:
    data = DataMap(USERS.c.id).table(USERS, Delete())
    found = {(one.kind, one.where) for one in data.column(USERS.c.nickname, "name").lint()}
    assert found == {
        ("unmapped_column", "users.email"),
        ("unmapped_column", "users.birth_at"),
        ("unmapped_table", "notes"),
        ("unmapped_column", "newsletter.email"),
    }


def test_what_was_looked_at_is_not_asked_again() -> None:
    data = DataMap(USERS.c.id).table(USERS, Delete())
    data.not_personal(USERS.c.email, USERS.c.birth_at, USERS.c.nickname, NOTES, LETTERS)
    assert not data.lint()


def test_other_metadata_is_looked_at_when_given() -> None:
    other = MetaData()
    Table("people", other, Column("id", Integer, primary_key=True), Column("passport", String))
    assert "people.passport" in {one.where for one in DataMap(USERS.c.id).table(USERS, Delete()).lint(other)}


def test_what_cannot_work_is_among_the_findings() -> None:
    data = DataMap(USERS.c.id).table(USERS, Delete()).table(LETTERS, Delete())
    unreachable = next(one for one in data.lint() if one.kind == "refused")
    assert str(unreachable).startswith("newsletter: no foreign keys lead from it to the subject. Give path=")


def test_the_command_ends_with_one_when_something_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert erasure_lint.report(DataMap(USERS.c.id).table(USERS, Delete()), as_json=False) == 1
    assert "users.email" in capsys.readouterr().out
    assert erasure_lint.report(shop_map(), as_json=True) == 0
    assert capsys.readouterr().out == '{"findings":[]}\n'


def test_the_command_wants_an_app_with_a_map(monkeypatch: pytest.MonkeyPatch) -> None:
    holder = type("Holder", (), {"erasure": type("Erasure", (), {"data": shop_map()})})
    monkeypatch.setattr(erasure_lint, "load_app", lambda _: holder)
    with pytest.raises(typer.Exit) as ended:
        erasure_lint.lint(app="shop:app")
    assert ended.value.exit_code == 0
    monkeypatch.setattr(erasure_lint, "load_app", lambda _: object())
    with pytest.raises(ConfigurationError, match="no data map"):
        erasure_lint.lint(app="shop:app")


class Model(DeclarativeBase):
    pass


class Person(Model):
    __tablename__ = "person"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    boss_id: Mapped[int | None] = mapped_column(ForeignKey("person.id"))
    boss: Mapped[Person | None] = relationship(remote_side=[id])


def test_what_is_no_column_or_table_is_refused_together() -> None:
    data = (
        DataMap(Person.id).table(Person, Delete()).table("person").column(Person.boss, "boss").column("email", "email")
    )
    with pytest.raises(ConfigurationError, match="for 3 reasons") as refused:
        data.plan()
    assert "category 'boss'" in str(refused.value)
    assert {one.kind for one in data.lint()} == {"refused"}


def test_a_table_is_declared_once_and_columns_may_come_first() -> None:
    data = DataMap(Person.id).column(Person.email, "email").table(Person, Delete())
    assert "delete rows of person" in str(data.plan())
    with pytest.raises(ConfigurationError, match="person: it is declared twice"):
        data.table(Person).plan()


def test_rows_are_deleted_or_stay() -> None:
    with pytest.raises(ConfigurationError, match="rows are deleted or stay"):
        DataMap(Person.id).table(Person, Anonymise()).plan()  # type: ignore[arg-type]  # what a reader might try


def test_an_anchor_of_another_type_is_refused() -> None:
    table = Table("keys", MetaData(), Column("id", LargeBinary, primary_key=True))
    with pytest.raises(ConfigurationError, match=r"keys\.id holds bytes, which is no type of ids"):
        DataMap(table.c.id).table(table, Delete()).plan()


def test_a_forgotten_category_or_parentheses_are_noticed() -> None:
    data = DataMap(Person.id).table(Person)
    data.column(Person.email, Anonymise("x"))  # type: ignore[arg-type]  # what a reader might try
    data.column(Person.email, "email", Anonymise)  # type: ignore[arg-type]  # the same
    with pytest.raises(ConfigurationError, match="for 2 reasons") as refused:
        data.plan()
    assert "person.email: it has no category" in str(refused.value)
    assert "with the parentheses" in str(refused.value)


def test_a_foreign_key_to_what_was_not_imported_is_refused() -> None:
    table = Table("pets", MetaData(), Column("id", Integer, primary_key=True), Column("of", ForeignKey("people.id")))
    with pytest.raises(ConfigurationError, match="not declared"):
        DataMap(table.c.id).table(table, Delete()).plan()


class Firm(DeclarativeBase):
    pass


class Member(Firm):
    __tablename__ = "member"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]


class Worker(Member):
    __tablename__ = "worker"
    id: Mapped[int] = mapped_column(ForeignKey("member.id"), primary_key=True)
    badge: Mapped[str]


def test_inherited_columns_belong_to_the_table_that_has_them() -> None:
    data = DataMap(Member.id).table(Member, Delete()).table(Worker, Delete())
    data.column(Worker.email, "email").column(Worker.badge, "badge")
    assert str(data.plan()).splitlines()[1:] == [
        "2. delete rows of worker: worker.id -> member",
        "3. delete rows of member: the subject itself",
    ]
    assert not data.lint()
