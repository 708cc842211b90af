from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postlude import NotEncodable
from postlude.core.delivery import StoredEvent
from postlude.core.envelope import MAX_HEADER_BYTES, MAX_HEADERS, check_headers, message, traceparent

VALID = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
names = st.from_regex(r"x[a-z0-9_.-]{0,20}", fullmatch=True)
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\x00"), max_size=50)
bits = st.integers(0, (1 << 192) - 1)


def stored(**given_: Any) -> StoredEvent:
    told: dict[str, Any] = {
        "event_id": UUID(int=7),
        "type": "order.placed",
        "version": 2,
        "source": "shop",
        "entity": "order/o-1",
        "key": "o-1",
        "topic": "orders",
        "content_type": "application/json",
        "payload": b"{}",
        "headers": {"traceparent": TRACE},
        "correlation_id": "c-1",
        "causation_id": UUID(int=6),
        "saga_id": None,
        "created_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    }
    return StoredEvent(**(told | given_))


def test_a_message_is_a_cloud_event_in_binary_mode() -> None:
    sent = message(stored(headers={"x-tenant": "t", "traceparent": TRACE}))
    assert (sent.id, sent.topic, sent.key, sent.payload) == (UUID(int=7), "orders", "o-1", b"{}")
    assert sent.headers == {
        "x-tenant": "t",
        "traceparent": TRACE,
        "content-type": "application/json",
        "ce_specversion": "1.0",
        "ce_id": str(UUID(int=7)),
        "ce_type": "order.placed",
        "ce_source": "shop",
        "ce_subject": "order/o-1",
        "ce_time": "2026-01-02T03:04:05Z",
        "ce_dataversion": "2",
        "ce_partitionkey": "o-1",
        "ce_correlationid": "c-1",
        "ce_causationid": str(UUID(int=6)),
    }


def test_what_is_not_known_is_left_out() -> None:
    sent = message(stored(entity=None, key=None, causation_id=None))
    assert not {"ce_subject", "ce_partitionkey", "ce_causationid"} & sent.headers.keys()


def test_a_route_may_give_another_topic() -> None:
    assert message(stored(), topic="elsewhere").topic == "elsewhere"


@given(own=st.dictionaries(st.sampled_from(["ce_id", "ce_type", "content-type", "ce_time", "x-mine"]), values))
def test_our_headers_win_over_what_a_raw_producer_wrote(own: dict[str, str]) -> None:
    expected = message(stored(headers={}))
    sent = message(stored(headers=own))
    assert expected.headers.items() <= sent.headers.items()
    assert sent.headers.get("x-mine") == own.get("x-mine")


@given(headers=st.dictionaries(names, values, max_size=10))
def test_own_headers_pass_unchanged(headers: dict[str, str]) -> None:
    assert check_headers(headers) == headers


def test_names_are_lowered_and_none_means_none() -> None:
    assert check_headers({"X-Tenant": "T"}) == {"x-tenant": "T"}
    assert check_headers(None) == {}


@pytest.mark.parametrize(
    "headers",
    [
        {"ce_id": "x"},
        {"CE-Type": "x"},
        {"Content-Type": "x"},
        {"postlude-x": "x"},
        {"message_id": "x"},
        {"correlation_id": "x"},
        {"causation_id": "x"},
        {"": "x"},
        {"sp ace": "x"},
        {"x": "a\nb"},
        {"x": "a\x00b"},
        {"x": "\ud800"},
        {"x": 1},
        {1: "x"},
        {"x" * 129: "x"},
        {"x": "y" * (MAX_HEADER_BYTES + 1)},
        {f"x{n}": "y" for n in range(MAX_HEADERS + 1)},
    ],
)
def test_what_is_ours_or_cannot_be_sent_is_refused(headers: Any) -> None:
    with pytest.raises(NotEncodable) as refused:
        check_headers(headers)
    assert refused.value.hint


@given(
    given_=st.none() | st.text(max_size=60) | st.just(TRACE), parent=st.none() | st.text() | st.just(TRACE), chance=bits
)
def test_a_traceparent_is_always_valid(given_: str | None, parent: str | None, chance: int) -> None:
    made = traceparent(given_, parent, chance)
    assert VALID.fullmatch(made)
    version, trace, span, _ = made.split("-")
    assert version != "ff"
    assert int(trace, 16) != 0
    assert int(span, 16) != 0


@given(chance=bits)
def test_a_child_stays_in_its_parent_s_trace_with_a_span_of_its_own(chance: int) -> None:
    _, trace, span, flags = traceparent(None, TRACE, chance).split("-")
    assert (trace, flags) == (TRACE.split("-")[1], "01")
    assert int(span, 16) == chance & (1 << 64) - 1 or (span == "0000000000000001" and chance & (1 << 64) - 1 == 0)


def test_a_given_one_is_kept() -> None:
    other = TRACE.replace("4bf9", "1111")
    assert traceparent(TRACE, other, 1) == TRACE


@pytest.mark.parametrize(
    "wrong",
    [TRACE.upper(), "ff" + TRACE[2:], f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01", TRACE + "\n"],
)
def test_a_wrong_one_is_replaced(wrong: str) -> None:
    assert traceparent(wrong, None, 5) != wrong
