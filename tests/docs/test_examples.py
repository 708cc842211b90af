"""The examples run as they are, in a folder and on a database of their own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from postlude import Event, Postlude, event
from tests.databases import finish
from tests.docs.pages import DOCS, Block, blocks
from tests.source_tree import ROOT

EXAMPLES = ROOT / "examples"
MAIN = [sys.executable, "-m", "postlude.cli.main"]
PATHS = os.pathsep.join([str(EXAMPLES), str(ROOT / "src")])
ORDERS = [
    "o-1 completed ",
    "o-2 compensated charge_payment:CardDeclined",
    "o-3 compensated ship_order:NoCourier",
    "o-1: stock reserved, payment charged, shipped, customer notified",
    "o-2: stock reserved, stock released",
    "o-3: stock reserved, payment charged, payment refunded, stock released",
]
"""What the order saga prints."""
FORGOTTEN = [
    "gone everywhere, after 1 call",
    "support erasure_requested",
    "support erasure_local_completed",
    "postlude erasure_step_succeeded",
    "postlude erasure_completed",
    "postlude erasure_external_verified",
    "left at the mailer: sub_8",
    "2 calls, 1 key",
]
"""What the erasure prints."""
REGISTERS = """
import asyncio
from convention_init.registry import app, register

async def main():
    async with app:
        for convention in (("urn:c:1", "Fossils", ["age", "site"]), ("urn:c:2", "Bones", ["taken"])):
            view = await app.sagas.wait(await register(*convention), timeout=40)
            print(view.process_id, view.status, view.error or "")

asyncio.run(main())
"""


def test_quickstart_appends_and_a_worker_delivers(tmp_path: Path) -> None:
    assert _run([sys.executable, EXAMPLES / "quickstart.py"], tmp_path) == ""
    delivered = _run([*MAIN, "run", "quickstart:app", "--once"], tmp_path, PYTHONPATH=str(EXAMPLES))
    assert delivered.splitlines()[0] == "reserve stock for o-1"


def test_quickstart_is_that_of_the_readme() -> None:
    shown = next(block for block in blocks(ROOT / "README.md") if block.language == "python")
    assert (EXAMPLES / "quickstart.py").read_text().partition('"""\n\n')[2] == shown.text


def test_quickstart_has_at_most_sixteen_lines_of_code() -> None:
    """Fifteen, and the one that makes a table."""
    lines = (EXAMPLES / "quickstart.py").read_text().partition('"""\n\n')[2].splitlines()
    assert len([line for line in lines if line.strip()]) <= 16


def test_service_works_while_it_runs(tmp_path: Path) -> None:
    assert _run([sys.executable, EXAMPLES / "service.py"], tmp_path) == "welcome ada grace\n"


def test_consumer_has_one_effect_for_what_comes_twice(tmp_path: Path) -> None:
    printed = _run([sys.executable, EXAMPLES / "consumer.py"], tmp_path)
    assert printed == "invoice for o-1 42\n2 received, 1 dropped as duplicate\n"


def test_shop_on_postgresql(tmp_path: Path, any_postgres_url: str) -> None:
    printed = _run([sys.executable, EXAMPLES / "shop_postgres.py", any_postgres_url], tmp_path)
    types = sorted(line.split()[1] for line in printed.splitlines())
    # Two orders of different keys: either may be the one that gets the lamps.
    assert types == ["1", "order.placed", "order.placed", "stock.reserved", "stock.short"]


def test_plain_sqlite_needs_no_event_loop(tmp_path: Path) -> None:
    assert _run([sys.executable, EXAMPLES / "plain_sqlite.py"], tmp_path) == "reserve stock for o-1\n"


@pytest.mark.parametrize("name", ["plain_sqlite", "fastapi_shop", "flask_shop", "django_shop"])
def test_each_kind_of_user_needs_about_fifteen_lines(name: str) -> None:
    """Besides the imports; Flask and Django want one line more, for their answer and their URL."""
    lines = (EXAMPLES / f"{name}.py").read_text().partition('"""\n\n')[2].splitlines()
    code = [line for line in lines if line.strip() and not line.startswith(("import ", "from "))]
    assert len(code) <= 16


def test_fastapi_shop_delivers_inside_the_web_process(tmp_path: Path) -> None:
    drive = """
import asyncio, httpx
from fastapi_shop import api, sessions, text

async def state():
    async with sessions() as session:
        return await session.scalar(text("SELECT state FROM orders"))

async def main():
    transport = httpx.ASGITransport(api)
    async with api.router.lifespan_context(api), httpx.AsyncClient(transport=transport, base_url="http://shop") as web:
        (await web.post("/orders/o-1")).raise_for_status()
        while await state() == "new":
            await asyncio.sleep(0.01)
        print(await state())
    await sessions.kw["bind"].dispose()

asyncio.run(main())
"""
    _make_orders(tmp_path)
    assert _drive(drive, tmp_path) == "reserved\n"


def test_flask_shop_delivers_in_a_worker(tmp_path: Path) -> None:
    _make_orders(tmp_path)
    drive = "from flask_shop import web; print(web.test_client().post('/orders/o-1').text)"
    assert _drive(drive, tmp_path) == "placed\n"
    _run([*MAIN, "run", "flask_shop:postlude", "--once"], tmp_path, PYTHONPATH=str(EXAMPLES))
    assert _states(tmp_path) == [("o-1", "reserved")]


def test_django_shop_delivers_in_a_worker(tmp_path: Path) -> None:
    _make_orders(tmp_path)
    django = {"PYTHONPATH": str(EXAMPLES), "DJANGO_SETTINGS_MODULE": "django_settings"}
    drive = (
        "import django; django.setup(); from django.test import Client;"
        " print(Client().post('/orders/o-1').content.decode())"
    )
    assert _run([sys.executable, "-c", drive], tmp_path, **django) == "placed\n"
    _run([*MAIN, "run", "django_shop:postlude", "--once"], tmp_path, **django)
    assert _states(tmp_path) == [("o-1", "reserved")]


def test_erasure_finishes_at_the_vendor_and_prints_its_trail(tmp_path: Path) -> None:
    assert _run([sys.executable, EXAMPLES / "erasure.py"], tmp_path, PYTHONPATH=PATHS).splitlines() == FORGOTTEN


def test_order_saga_ends_each_order_in_a_known_state(tmp_path: Path) -> None:
    assert _run([sys.executable, EXAMPLES / "order_saga.py"], tmp_path, PYTHONPATH=PATHS).splitlines() == ORDERS


def test_order_saga_tells_of_it_on_rabbitmq(tmp_path: Path, rabbitmq_url: str) -> None:
    exchange = _names_of_our_own(tmp_path, "tower")
    env = {"PYTHONPATH": PATHS, "POSTLUDE_BROKER": f"{rabbitmq_url}?{exchange}"}
    printed = _run([sys.executable, EXAMPLES / "order_saga.py"], tmp_path, **env)
    assert printed.splitlines() == ORDERS


def test_convention_init_in_one_process(tmp_path: Path) -> None:
    printed = _run([sys.executable, "-m", "convention_init"], tmp_path, PYTHONPATH=PATHS).splitlines()
    assert printed[0] == "urn:c:1 completed "
    assert printed[1].startswith("urn:c:2 compensated create_feature_tables:")
    assert printed[2] == "[('urn:c:1', 'age'), ('urn:c:1', 'schema'), ('urn:c:1', 'site')]"


def test_convention_init_with_participants_in_another_process(tmp_path: Path, rabbitmq_url: str) -> None:
    exchange = _names_of_our_own(tmp_path, "schemas", "features", "saga-convention_init")
    env = {**os.environ, "PYTHONPATH": PATHS, "POSTLUDE_BROKER": f"{rabbitmq_url}?{exchange}"}
    # Each has made its schema and its queues before it is asked to do anything.
    for service in ("participants", "registry"):
        _run([*MAIN, "run", f"convention_init.{service}:app", "--once"], tmp_path, **env)
    with ExitStack() as running:
        for service in ("participants", "registry"):
            worker = subprocess.Popen([*MAIN, "run", f"convention_init.{service}:app"], cwd=tmp_path, env=env)
            running.callback(worker.kill)
            running.callback(worker.wait, 30)
            running.callback(worker.terminate)
        printed = _run([sys.executable, "-c", REGISTERS], tmp_path, **env).splitlines()
    assert printed[0] == "urn:c:1 completed "
    assert printed[1].startswith("urn:c:2 compensated create_feature_tables:")
    with closing(sqlite3.connect(tmp_path / "participants.db")) as connection:
        made = connection.execute("SELECT srn, what FROM made ORDER BY what").fetchall()
    assert made == [("urn:c:1", "age"), ("urn:c:1", "schema"), ("urn:c:1", "site")]


def _names_of_our_own(folder: Path, *consumers: str) -> str:
    """On a server that others use too: settings for groups, and the option of a URL for the exchange."""
    own = uuid4().hex[:8]
    (folder / "postlude.toml").write_text(
        "\n".join(f'[postlude.consumers.{name}]\ngroup = "{name}-{own}"' for name in consumers)
    )
    return f"exchange=examples-{own}"


def _make_orders(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.execute("CREATE TABLE orders (id TEXT, state TEXT)")


@pytest.mark.parametrize("name", ["django", "flask"])
def test_what_a_guide_shows_of_an_example_stands_in_it(name: str) -> None:
    """Pages that need a process of their own; what they show runs there."""
    shown = [block.text.strip() for block in blocks(DOCS / "guides" / f"{name}.md") if block.language == "py"]
    source = (EXAMPLES / f"{name}_shop.py").read_text().replace("  # noqa: E402", "")
    assert shown
    assert not [text for text in shown if text not in source]


def test_raw_sql_is_that_of_the_guide() -> None:
    text = (EXAMPLES / "raw_sql.sql").read_text()
    assert "".join(line for line in text.splitlines(keepends=True) if not line.startswith("--")) == _raw_sql()[0].text


def test_raw_sql_on_postgresql(any_postgres_url: str) -> None:
    async def produce() -> None:
        connection = await asyncpg.connect(any_postgres_url)
        try:
            await connection.execute("CREATE TABLE orders (id text, total integer)")
            await connection.execute((EXAMPLES / "raw_sql.sql").read_text())
        finally:
            await connection.close()

    finish(produce())
    assert finish(_deliver(any_postgres_url)) == [("o-1", 42)]


def test_raw_sql_on_sqlite(sqlite_url: str) -> None:
    script = _raw_sql()[1].text
    command = [sys.executable, "-c", "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])"]
    subprocess.run([*command, sqlite_url.removeprefix("sqlite:///"), script], check=True)
    assert finish(_deliver(sqlite_url)) == [("o-1", 42)]


@pytest.mark.parametrize(
    "script",
    [*sorted(EXAMPLES.glob("*.py")), *sorted(one.parent for one in EXAMPLES.glob("*/__main__.py"))],
    ids=lambda script: script.name,
)
def test_every_example_is_tried(script: Path) -> None:
    assert script.stem in Path(__file__).read_text()


def _raw_sql() -> list[Block]:
    return [block for block in blocks(DOCS / "guides" / "raw-sql.md") if block.language == "sql"]


async def _deliver(url: str) -> list[tuple[str, int]]:
    @event(key="order_id")
    class OrderPlaced(Event):
        order_id: str
        total: int

    handled = []

    async def note(placed: OrderPlaced) -> None:
        handled.append((placed.order_id, placed.total))

    app = Postlude(url)
    app.on(OrderPlaced, name="note")(note)
    async with app:
        await app.drain()
    return handled


def _drive(script: str, folder: Path) -> str:
    return _run([sys.executable, "-c", script], folder, PYTHONPATH=str(EXAMPLES))


def _states(folder: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        return connection.execute("SELECT id, state FROM orders").fetchall()


def _run(command: list[str | Path], folder: Path, **environment: str) -> str:
    """What it prints. Warnings are errors, there too."""
    env = {**os.environ, **environment, "PYTHONWARNINGS": "error"}
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
