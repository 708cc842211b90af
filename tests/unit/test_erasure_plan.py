"""What a data map may say: each thing that cannot work is refused with a hint, and the plan can be read."""

from __future__ import annotations

import pytest

from postlude.core.data_map import (
    Anonymise,
    Column,
    Declaration,
    Delete,
    ForeignKey,
    MappedColumn,
    MappedTable,
    Retain,
    Strategy,
    Table,
)
from postlude.core.erasure_plan import plan_erasure, problems_of
from postlude.errors import ConfigurationError


def _key(source: str, column: str, target: str, on_delete: str = "") -> ForeignKey:
    return ForeignKey(source, (column,), target, ("id",), on_delete)


def _table(name: str, *keys: ForeignKey, nullable: bool = True, text: Column | None = None) -> Table:
    columns = (Column("id", nullable=False, primary_key=True, unique=True), text or Column("text"))
    return Table(name, (*columns, *(Column(name, nullable=nullable) for key in keys for name in key.columns)), keys)


USERS = _table("users")
ORDERS = _table("orders", _key("orders", "user_id", "users"))
FIRM = _table("orders", _key("orders", "user_id", "users"), nullable=False)


def _declaration(*tables: Table, mapped: list[MappedTable], columns: list[MappedColumn] | None = None) -> Declaration:
    schema = {table.name: table for table in tables}
    return Declaration(schema, ("users", "id"), {one.name: one for one in mapped}, tuple(columns or ()))


def _text(table: str, strategy: Strategy | None = None) -> MappedColumn:
    return MappedColumn(table, "text", "name", strategy)


def _problem(declaration: Declaration) -> str:
    problems = problems_of(declaration)
    assert len(problems) == 1, problems
    return str(problems[0])


GONE = MappedTable("users", is_deleted=True)
KEPT = MappedTable("orders")


def test_children_go_before_parents_and_the_plan_can_be_read() -> None:
    items = _table("items", _key("items", "order_id", "orders"), nullable=False)
    plan = plan_erasure(
        _declaration(
            USERS,
            FIRM,
            items,
            mapped=[GONE, MappedTable("orders", is_deleted=True), MappedTable("items", is_deleted=True)],
        )
    )
    assert str(plan).splitlines() == [
        "1. lock the subject: users by id",
        "2. delete rows of items: items.order_id -> orders.user_id -> users",
        "3. delete rows of orders: orders.user_id -> users",
        "4. delete rows of users: the subject itself",
    ]


def test_a_row_that_stays_lets_go_of_its_subject_after_it_was_anonymised() -> None:
    plan = plan_erasure(_declaration(USERS, ORDERS, mapped=[GONE, KEPT], columns=[_text("orders", Anonymise("x"))]))
    assert str(plan).splitlines()[1:] == [
        "2. anonymise text of orders: orders.user_id -> users",
        "3. set user_id of orders to NULL: where it refers to a row of users that is deleted",
        "4. delete rows of users: the subject itself",
    ]


def test_what_the_database_deletes_along_stands_in_the_plan() -> None:
    logins = _table("logins", _key("logins", "user_id", "users", "cascade"), nullable=False)
    devices = _table("devices", _key("devices", "login_id", "logins", "cascade"), nullable=False)
    plan = plan_erasure(_declaration(USERS, logins, devices, mapped=[GONE]))
    assert str(plan).splitlines()[1:3] == [
        "2. delete rows of devices: devices.login_id -> logins.user_id -> users (ON DELETE CASCADE)",
        "3. delete rows of logins: logins.user_id -> users (ON DELETE CASCADE)",
    ]


def test_tables_that_refer_to_each_other_work_when_one_can_let_go() -> None:
    users = _table("users", _key("users", "home_id", "places"))
    places = _table("places", _key("places", "user_id", "users"), nullable=False)
    plan = plan_erasure(_declaration(users, places, mapped=[GONE, MappedTable("places", is_deleted=True)]))
    assert [str(step).split(":")[0] for step in plan.steps] == [
        "set home_id of users to NULL",
        "delete rows of places",
        "delete rows of users",
    ]


def test_a_table_that_refers_to_itself_works() -> None:
    users = _table("users", _key("users", "referrer_id", "users"))
    plan = plan_erasure(_declaration(users, mapped=[GONE]))
    assert [str(step).split(":")[0] for step in plan.steps] == [
        "set referrer_id of users to NULL",
        "delete rows of users",
    ]


def test_the_path_of_a_table_counts_for_tables_behind_it() -> None:
    orders = _table("orders", _key("orders", "user_id", "users"), _key("orders", "approver_id", "users"))
    items = _table("items", _key("items", "order_id", "orders"))
    mapped = [MappedTable("orders", path=(("orders", "user_id"),)), MappedTable("items")]
    plan = plan_erasure(_declaration(USERS, orders, items, mapped=mapped, columns=[_text("orders"), _text("items")]))
    assert "anonymise text of items: items.order_id -> orders.user_id -> users" in str(plan)


def test_a_column_without_a_constraint_may_hold_the_subjects_id() -> None:
    visits = Table("visits", (Column("id", primary_key=True), Column("who")))
    plan = plan_erasure(
        _declaration(USERS, visits, mapped=[GONE, MappedTable("visits", is_deleted=True, path=(("visits", "who"),))])
    )
    assert "delete rows of visits: visits.who -> users" in str(plan)


def test_everything_wrong_is_told_at_once() -> None:
    apart = _table("apart")
    declaration = _declaration(
        USERS,
        apart,
        mapped=[GONE, MappedTable("apart")],
        columns=[MappedColumn("users", "emial", "email"), _text("apart")],
    )
    with pytest.raises(ConfigurationError) as refused:
        plan_erasure(declaration)
    assert "for 2 reasons" in str(refused.value)
    assert "users.emial: there is no such column. The table has: id, text." in str(refused.value)
    assert "apart: no foreign keys lead from it to the subject. Give path=" in str(refused.value)


def test_several_paths_are_refused_with_their_columns() -> None:
    letters = _table("letters", _key("letters", "sender", "users"), _key("letters", "recipient", "users"))
    told = _problem(_declaration(USERS, letters, mapped=[MappedTable("letters")], columns=[_text("letters")]))
    assert "several paths lead to the subject (letters.sender -> users; letters.recipient -> users)" in told
    assert "path= with letters.sender or letters.recipient" in told


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ((("orders", "nothing"),), "there is no column orders.nothing"),
        ((("users", "id"),), "its path goes on with users.id, but stands at orders"),
        ((("orders", "user_id"), ("items", "id")), "belongs to 0 foreign keys"),
    ],
    ids=["unknown", "elsewhere", "astray"],
)
def test_a_path_that_leads_nowhere_is_refused(path: tuple[tuple[str, str], ...], what: str) -> None:
    items = _table("items", _key("items", "order_id", "orders"))
    mapped = [MappedTable("orders", path=path)]
    assert what in _problem(_declaration(USERS, ORDERS, items, mapped=mapped, columns=[_text("orders")]))


def test_the_subjects_own_table_needs_no_path() -> None:
    assert "needs no path" in _problem(_declaration(USERS, mapped=[MappedTable("users", True, (("users", "id"),))]))


@pytest.mark.parametrize("on_delete", ["", "cascade", "set null", "restrict"])
def test_a_kept_row_cannot_hold_on_to_a_deleted_one(on_delete: str) -> None:
    orders = _table("orders", _key("orders", "user_id", "users", on_delete), nullable=False)
    told = _problem(_declaration(USERS, orders, mapped=[GONE, KEPT], columns=[_text("orders")]))
    assert told.startswith("orders.user_id: it is NOT NULL and refers to users, whose rows are deleted")
    assert ("ON DELETE CASCADE would delete what the map keeps" in told) == (on_delete == "cascade")
    assert "make the column nullable" in told


def test_an_unmapped_table_cannot_hold_on_to_a_deleted_row() -> None:
    told = _problem(_declaration(USERS, FIRM, mapped=[GONE]))
    assert "Map orders with Delete(), or make it nullable or ON DELETE CASCADE" in told


def test_rows_of_other_subjects_cannot_hold_on_to_a_deleted_one() -> None:
    posts = _table("posts", _key("posts", "author", "users"), nullable=False)
    comments = _table(
        "comments", _key("comments", "author", "users"), _key("comments", "post", "posts"), nullable=False
    )
    mapped = [
        GONE,
        MappedTable("posts", is_deleted=True),
        MappedTable("comments", is_deleted=True, path=(("comments", "author"),)),
    ]
    assert "while rows of other subjects may refer to them" in _problem(
        _declaration(USERS, posts, comments, mapped=mapped)
    )


def test_a_cascade_that_comes_back_to_its_table_is_let_go_or_refused() -> None:
    users = _table("users", _key("users", "boss", "users", "cascade"), nullable=False)
    assert "users.boss: it is NOT NULL" in _problem(_declaration(users, mapped=[GONE]))


def test_nobody_is_told_to_make_a_cascade_of_a_cascade() -> None:
    users = _table("users", _key("users", "boss", "users", "cascade"), nullable=False)
    told = _problem(_declaration(users, mapped=[GONE]))
    assert "Make it nullable; or anonymise" in told


def test_paths_in_a_circle_are_refused() -> None:
    left = _table("left", _key("left", "right_id", "right"), _key("left", "user_id", "users"))
    right = _table("right", _key("right", "left_id", "left"), _key("right", "user_id", "users"))
    mapped = [
        MappedTable("left", is_deleted=True, path=(("left", "right_id"), ("right", "user_id"))),
        MappedTable("right", is_deleted=True, path=(("right", "left_id"), ("left", "user_id"))),
    ]
    assert "left, right: each is found through rows that another one deletes first" in _problem(
        _declaration(USERS, left, right, mapped=mapped)
    )


@pytest.mark.parametrize(
    ("table", "column", "strategy", "what"),
    [
        ("orders", "text", Delete(), "a column cannot be deleted"),
        ("users", "text", Retain("law"), "retained in a row that is deleted"),
        ("users", "text", Anonymise("x"), "anonymised in a row that is deleted"),
        ("orders", "id", Anonymise("x"), "part of the primary key"),
        ("orders", "user_id", Anonymise("x"), "part of a foreign key"),
    ],
)
def test_a_strategy_that_cannot_be_followed_is_refused(table: str, column: str, strategy: Strategy, what: str) -> None:
    columns = [MappedColumn(table, column, "name", strategy)]
    mapped = [GONE, *([MappedTable("orders")] if table == "orders" else [])]
    assert what in _problem(_declaration(USERS, ORDERS, mapped=mapped, columns=columns))


def test_the_anchor_and_what_others_refer_to_cannot_be_anonymised() -> None:
    users = Table("users", (Column("id", unique=True), Column("login", unique=True)))
    orders = Table("orders", (Column("login"),), (ForeignKey("orders", ("login",), "users", ("login",)),))
    for name, role in (("id", "the anchor"), ("login", "what a foreign key refers to")):
        columns = [MappedColumn("users", name, "name")]
        assert role in _problem(_declaration(users, orders, mapped=[MappedTable("users")], columns=columns))


def test_half_of_a_key_is_no_anchor() -> None:
    """Of two people with one id, in two tenants, a request would erase both."""
    half = Table("users", (Column("tenant", primary_key=True), Column("id", primary_key=True)))
    assert "may name several subjects" in _problem(_declaration(half, mapped=[GONE]))
    whole = Table("users", (Column("tenant", primary_key=True), Column("id", primary_key=True, unique=True)))
    assert plan_erasure(_declaration(whole, mapped=[GONE])).steps


def test_not_null_and_unique_columns_need_a_value_that_fits() -> None:
    firm = _table("users", text=Column("text", nullable=False))
    alone = _table("users", text=Column("text", unique=True))
    mapped = [MappedTable("users")]
    assert "NOT NULL and cannot be anonymised with NULL" in _problem(
        _declaration(firm, mapped=mapped, columns=[_text("users")])
    )
    assert "a second subject could not get the same constant" in _problem(
        _declaration(alone, mapped=mapped, columns=[_text("users", Anonymise("x"))])
    )
    assert not problems_of(_declaration(alone, mapped=mapped, columns=[_text("users", Anonymise(lambda: "x"))]))
    assert not problems_of(_declaration(alone, mapped=mapped, columns=[_text("users")]))


def test_a_table_of_which_nothing_is_said_is_refused() -> None:
    assert "nothing is said of it but its name" in _problem(_declaration(USERS, ORDERS, mapped=[KEPT]))


def test_a_column_twice_or_without_a_category_is_refused() -> None:
    mapped = [MappedTable("users")]
    twice = [_text("users"), _text("users")]
    assert "declared 2 times" in _problem(_declaration(USERS, mapped=mapped, columns=twice))
    nameless = [MappedColumn("users", "text", " ")]
    assert "it has no category" in _problem(_declaration(USERS, mapped=mapped, columns=nameless))


def test_unknown_tables_are_refused() -> None:
    assert "ghosts: there is no such table" in _problem(_declaration(USERS, mapped=[GONE, MappedTable("ghosts", True)]))


def test_what_is_retained_has_a_basis() -> None:
    with pytest.raises(ValueError, match="legal basis"):
        Retain(" ")
