"""What commands show, and what they never show."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID, uuid4

import msgspec
import pytest

from postlude.cli import render
from postlude.cli.events import event_json
from postlude.core.delivery import StoredEvent

ID = UUID("0190a0a0-0000-7000-8000-000000000001")


def test_what_moves_a_cursor_is_not_sent_to_a_terminal() -> None:
    assert render.cell("a\x1b[31mb\r\x07").plain == "a\N{REPLACEMENT CHARACTER}[31mb" + "\N{REPLACEMENT CHARACTER}" * 2


@pytest.mark.parametrize("columns", ["40", "60", "80", "140", "200"])
def test_tables_fit_and_keep_ids_whole(columns: str, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    rows = [(uuid4(), "order.placed", "handler:reserve", "dead", "an error that is quite long " * 4)]
    render.table(("event", "type", "destination", "status", "error"), rows, optional=("type", "destination"))
    shown = capsys.readouterr().out
    assert str(rows[0][0]) in shown
    assert "dead" in shown
    assert max(map(len, shown.splitlines())) <= int(columns)
    assert ("order.placed" in shown) == (columns != "80"), "an optional column gives way; a paragraph has all of them"
    assert "an error that" in shown


def test_markup_in_data_is_only_data(capsys) -> None:
    render.table(("error",), [("[red]not red[/red] :smile:",)])
    assert "[red]not red[/red] :smile:" in capsys.readouterr().out


def test_an_error_for_programs_is_one_object(capsys) -> None:
    render.error("a.code", "no postgresql://a:b@c/d", "do this", as_json=True)
    said = capsys.readouterr()
    assert json.loads(said.out) == {"error": {"code": "a.code", "message": "no postgresql://a@c/d", "hint": "do this"}}
    assert said.err == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.0 s"), (59.94, "59.9 s"), (60, "1 min"), (7300, "2 h"), (200_000, "2 d")]
)
def test_ages_are_short(seconds: float, text: str) -> None:
    assert render.age_text(seconds) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (5 * 1024**4, "5.0 TiB")])
def test_sizes_are_short(size: int, text: str) -> None:
    assert render.bytes_text(size) == text


def _event(payload: bytes, content_type: str = "application/json") -> StoredEvent:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return StoredEvent(ID, "t", 1, "s", None, None, "events.t", content_type, payload, {}, str(ID), None, None, now)


def test_a_payload_is_exported_digit_for_digit_on_one_line() -> None:
    payload = b'{\n  "amount": 1.10,\n  "big": 123456789012345678901234567890,\n  "text": "a\\nb"\n}'
    line = msgspec.json.encode(event_json(_event(payload)))
    assert b'"amount":1.10' in line
    assert b"123456789012345678901234567890" in line
    assert b"\n" not in line
    assert json.loads(line)["payload"]["text"] == "a\nb"


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [(b"{broken", "application/json"), (b"\xff\xfe", "application/json"), (b'{"a": 1} extra', "application/json"), (b"{}", "application/avro")],
)  # fmt: skip
def test_what_is_not_json_is_exported_as_base64(payload: bytes, content_type: str) -> None:
    line = json.loads(msgspec.json.encode(event_json(_event(payload, content_type))))
    assert "payload" not in line
    assert msgspec.convert(line["payload_base64"], bytes) == payload
