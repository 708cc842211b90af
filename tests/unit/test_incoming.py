"""What came is read as the event it was, in both modes; whatever cannot be is refused, and nothing else is raised."""

from __future__ import annotations

import re
import string
from base64 import b64encode
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid5

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from postlude import Unreadable
from postlude.core.delivery import StoredEvent
from postlude.core.envelope import BrokerMessage, message
from postlude.core.identity import FOREIGN, identity
from postlude.core.incoming import MAX_TYPE, Incoming, read_message
from postlude.core.structured import enclosed
from tests.unit.test_envelope import TRACE, names, stored, values

OTHER_TRACE = TRACE.replace("4bf9", "1111")
STRUCTURED = "application/cloudevents+json"
LEAST = {"specversion": "1.0", "id": "a-1", "type": "order.placed", "source": "/shop"}


def binary(prefix: str = "ce_", **attributes: str) -> dict[str, str]:
    return {prefix + name: value for name, value in (LEAST | attributes).items()}


def structured(**members: Any) -> bytes:
    return msgspec.json.encode({name: value for name, value in (LEAST | members).items() if value is not ...})


def read(payload: bytes = b"{}", key: str | None = None, **headers: Any) -> Incoming:
    return read_message(key, payload, binary() | headers)


def read_structured(key: str | None = None, **members: Any) -> Incoming:
    return read_message(key, structured(**members), {"content-type": STRUCTURED})


def again(sent: BrokerMessage) -> Incoming:
    return read_message(sent.key, sent.payload, sent.headers)


def expected(event: StoredEvent) -> Incoming:
    same = {name: getattr(event, name) for name in Incoming.__struct_fields__ if name != "sent_at"}
    return Incoming(**same, sent_at=event.created_at)


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=30)
extensions = st.dictionaries(st.text(string.ascii_lowercase + string.digits, min_size=30), text, max_size=2)
events = st.builds(
    stored,
    event_id=st.uuids(),
    type=text,
    version=st.integers(1, 32_767),
    source=text,
    entity=st.none() | text,
    key=st.none() | text,
    content_type=st.sampled_from(["application/json", "text/json; charset=utf-8", "text/plain", "application/avro"]),
    payload=st.binary(max_size=50)
    | st.sampled_from([b"{}", b"null", b' {"a": 1}', b'{"a" :  "\\u0000"}\n', b'"x"', b"01"]),
    headers=st.builds(
        lambda own, others, trace: own | {f"ce_{name}": value for name, value in others.items()} | trace,
        st.dictionaries(names, values, max_size=5),
        extensions,
        st.sampled_from([{}, {"traceparent": TRACE}]),
    ),
    correlation_id=text,
    causation_id=st.none() | st.uuids(),
    created_at=st.datetimes(timezones=st.just(UTC)),
)


@given(event=events)
def test_an_event_comes_back_as_it_was(event: StoredEvent) -> None:
    sent = message(event)
    assert again(sent) == expected(event)
    assert again(enclosed(sent)) == expected(event)


@given(event=events)
def test_structured_mode_keeps_what_is_not_an_attribute(event: StoredEvent) -> None:
    sent, whole = message(event), enclosed(message(event))
    assert (whole.id, whole.topic, whole.key) == (sent.id, sent.topic, sent.key)
    own = {name: value for name, value in event.headers.items() if not name.startswith("ce_")}
    assert whole.headers == own | {"content-type": STRUCTURED}


def test_json_stands_in_the_envelope_as_it_is() -> None:
    whole = enclosed(message(stored(payload=b'{"a" : 1.50}', headers={"traceparent": TRACE})))
    assert b'"data":{"a" : 1.50}' in whole.payload
    assert msgspec.json.decode(whole.payload) == {
        "specversion": "1.0",
        "id": str(UUID(int=7)),
        "type": "order.placed",
        "source": "shop",
        "time": "2026-01-02T03:04:05Z",
        "subject": "order/o-1",
        "dataversion": "2",
        "partitionkey": "o-1",
        "correlationid": "c-1",
        "causationid": str(UUID(int=6)),
        "traceparent": TRACE,
        "datacontenttype": "application/json",
        "data": {"a": 1.5},
    }


@pytest.mark.parametrize(
    ("content_type", "payload"),
    [
        ("application/json", b"{broken"),
        ("application/json", b"\xff"),
        ("text/plain", b"{}"),
        ("application/json", b"1 "),
        ("application/json", b" 1"),
    ],
)
def test_what_is_not_json_stands_there_in_base64(content_type: str, payload: bytes) -> None:
    whole = enclosed(message(stored(payload=payload, content_type=content_type)))
    members = msgspec.json.decode(whole.payload)
    assert (members["data_base64"], "data" in members) == (b64encode(payload).decode(), False)


anything = st.text(st.characters(), max_size=20)
attribute_names = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["ce_", "CE-", "cloudEvents:", "cloudEvents_", ""]),
        st.sampled_from([*LEAST, "time", "dataversion", "partitionkey", "content-type", "traceparent"]) | anything,
    ),
)
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
envelopes = st.dictionaries(
    st.sampled_from([*LEAST, "data", "data_base64", "time", "dataversion"]) | st.text(max_size=5), json, max_size=8
)


@given(
    key=st.none() | anything,
    payload=st.binary(max_size=80) | envelopes.map(msgspec.json.encode) | envelopes.map(lambda one: structured(**one)),
    headers=st.dictionaries(attribute_names, anything, max_size=8),
    content_type=st.sampled_from([None, STRUCTURED, "application/cloudevents-batch+json"]),
    is_event=st.booleans(),
)
@example(None, b'{"specversion":' + b"[" * 100_000, {}, STRUCTURED, False)
@example(None, b'{"specversion":' + b"9" * 5000 + b"}", {}, STRUCTURED, False)
@example(None, b'{"specversion":"1.0","id":1e999}', {}, None, False)
@example(None, b"", {"ce_time": "0001-01-01T00:00:00+01:00"}, None, True)
@example("\0", b"", {"ce_partitionkey": "k"}, None, True)
def test_nothing_but_unreadable_is_raised(
    key: str | None, payload: bytes, headers: dict[str, str], content_type: str | None, is_event: bool
) -> None:
    told = (binary() if is_event else {}) | headers | ({"content-type": content_type} if content_type else {})
    try:
        found = read_message(key, payload, told)
    except Unreadable:
        return
    kept = [found.type, found.source, found.content_type, *found.headers, *found.headers.values()]
    kept += [one for one in (found.entity, found.key, found.correlation_id) if one is not None]
    for one in kept:
        assert "\0" not in one
        one.encode()
    assert found.key != ""
    assert found.sent_at is None or found.sent_at.tzinfo is UTC
    assert 1 <= found.version <= 32_767


class TestNames:
    @pytest.mark.parametrize("prefix", ["ce_", "ce-", "CE-", "Ce_", "cloudEvents:", "cloudEvents_", "cloudevents:"])
    def test_every_prefix_is_read(self, prefix: str) -> None:
        found = read_message(None, b"1", {**binary(prefix, subject="s"), "Content-Type": "text/plain"})
        assert (found.type, found.entity, found.content_type, found.headers) == ("order.placed", "s", "text/plain", {})

    @pytest.mark.parametrize("turned", [False, True])
    def test_our_own_spelling_wins(self, turned: bool) -> None:
        headers = list((binary() | {"CE-Type": "other", "cloudEvents:type": "another"}).items())
        assert read_message(None, b"", dict(reversed(headers) if turned else headers)).type == "order.placed"

    def test_own_headers_are_in_lower_case(self) -> None:
        assert read(b"{}", **{"X-Tenant": "T", "x-other": "o"}).headers == {"x-tenant": "T", "x-other": "o"}
        assert read(b"{}", **{"X-Tenant": "T", "x-tenant": "t"}).headers == {"x-tenant": "t"}

    def test_what_we_do_not_know_keeps_its_name(self) -> None:
        assert read(b"{}", **{"ce-dataschema": "https://s", "ce_tenant": "t"}).headers == {
            "ce_dataschema": "https://s",
            "ce_tenant": "t",
        }
        assert read_structured(tenant="t", sampled=True, rate=7, none=None).headers == {
            "ce_tenant": "t",
            "ce_sampled": "true",
            "ce_rate": "7",
        }

    def test_copies_among_the_headers_do_not_count_in_structured_mode(self) -> None:
        headers = {"content-type": STRUCTURED, "ce_type": "other", "ce_not-one": "kept", "own": "1"}
        found = read_message(None, structured(), headers)
        assert (found.type, found.headers) == ("order.placed", {"ce_not-one": "kept", "own": "1"})


class TestIdentity:
    def test_a_uuid_is_itself(self) -> None:
        one = UUID(int=1 << 100)
        for spelled in (str(one), str(one).upper(), one.hex, one.urn):
            assert read(ce_id=spelled).event_id == one

    def test_another_id_belongs_to_its_source(self) -> None:
        assert read().event_id == uuid5(FOREIGN, "5:/shopa-1") == identity("a-1", "/shop")
        assert read(ce_source="/other").event_id != read().event_id
        assert read_structured().event_id == read().event_id

    @pytest.mark.parametrize(
        "odd", ["0" * 29 + "1_1", " " * 30 + "11", "-".join("0" * 16) + "0" * 16, "{" + "0" * 32 + "}"]
    )
    def test_what_only_looks_like_a_uuid_is_none(self, odd: str) -> None:
        assert read(ce_id=odd).event_id == uuid5(FOREIGN, f"5:/shop{odd}")


class TestParts:
    def test_what_may_be_missing(self) -> None:
        found = read()
        assert (found.version, found.entity, found.key, found.content_type) == (1, None, None, "application/json")
        assert (found.correlation_id, found.causation_id, found.sent_at, found.headers) == (None, None, None, {})

    def test_the_key_is_the_partition_key_or_the_broker_s(self) -> None:
        assert read(key="broker").key == "broker"
        assert read(key="broker", ce_partitionkey="own").key == "own"
        assert read(key="broker", ce_partitionkey="").key == "broker"
        assert read(key="").key is None
        assert read_structured(key="broker").key == "broker"
        assert read_structured(key="broker", partitionkey="own").key == "own"
        assert read(key="k" * 512).key == "k" * 512

    def test_a_valid_traceparent_is_taken_from_either_place(self) -> None:
        assert read(traceparent=TRACE).headers == {"traceparent": TRACE}
        assert read(ce_traceparent=TRACE).headers == {"traceparent": TRACE}
        assert read(traceparent="none", ce_traceparent=TRACE).headers == {"traceparent": TRACE}
        assert read(traceparent=TRACE, ce_traceparent=OTHER_TRACE).headers == {"traceparent": TRACE}
        assert read(traceparent="none").headers == {}
        assert read_structured(traceparent=TRACE).headers == {"traceparent": TRACE}

    def test_a_cause_that_is_no_uuid_is_kept_aside(self) -> None:
        found = read(ce_causationid="a-0")
        assert (found.causation_id, found.headers) == (None, {"ce_causationid": "a-0"})
        assert read(ce_causationid=str(UUID(int=3))).causation_id == UUID(int=3)

    @pytest.mark.parametrize(
        ("time", "moment"),
        [
            ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
            ("2026-01-02T03:04:05.5+01:00", datetime(2026, 1, 2, 3, 4, 5, 500_000, timezone(timedelta(hours=1)))),
            ("2026-01-02T03:04:05.123456789Z", datetime(2026, 1, 2, 3, 4, 5, 123_457, tzinfo=UTC)),
        ],
    )
    def test_times_are_in_utc(self, time: str, moment: datetime) -> None:
        found = read(ce_time=time).sent_at
        assert found == moment
        assert found.tzinfo is UTC

    def test_a_later_minor_version_is_read(self) -> None:
        assert read(ce_specversion="1.1").type == "order.placed"

    def test_a_type_as_long_as_we_allow_is_read(self) -> None:
        assert len(read(ce_type="t" * MAX_TYPE).type) == MAX_TYPE

    def test_a_content_type_may_stand_where_it_does_not_belong(self) -> None:
        assert read(ce_datacontenttype="text/plain").content_type == "text/plain"


class TestStructured:
    @pytest.mark.parametrize("content_type", [STRUCTURED, "Application/CloudEvents+JSON; charset=UTF-8"])
    def test_data_is_the_very_text(self, content_type: str) -> None:
        payload = structured()[:-1] + b', "data" : {"a" :  1.50, "b":"\\u00fc"} }'
        found = read_message(None, payload, {"content-type": content_type})
        assert (found.payload, found.content_type) == (b'{"a" :  1.50, "b":"\\u00fc"}', "application/json")

    @pytest.mark.parametrize(
        ("members", "payload"),
        [
            ({}, b""),
            ({"data": None}, b"null"),
            ({"data": "a"}, b'"a"'),
            ({"data": "a", "datacontenttype": "application/vnd.shop+json"}, b'"a"'),
            ({"data": "\u00fc", "datacontenttype": "text/plain"}, "\u00fc".encode()),
            ({"data": {}, "datacontenttype": "text/plain"}, b"{}"),
            ({"data_base64": "/wA="}, b"\xff\0"),
            ({"data_base64": "/wA=", "data": None}, b"\xff\0"),
            ({"data_base64": None, "data": 1}, b"1"),
        ],
    )
    def test_data(self, members: dict[str, Any], payload: bytes) -> None:
        assert read_structured(**members).payload == payload

    def test_names_are_read_in_any_case_and_ours_wins(self) -> None:
        assert read_structured(Type="other", Subject="s").type == "order.placed"
        assert read_structured(Subject="s").entity == "s"

    def test_a_header_cannot_pass_for_data(self) -> None:
        found = again(enclosed(message(stored(payload=b"", headers={"ce_data": "forged"}))))
        assert (found.payload, found.headers) == (b"", {})

    def test_numbers_are_read_as_text(self) -> None:
        assert read_structured(dataversion=3).version == 3

    def test_a_message_without_any_header_may_be_one(self) -> None:
        assert read_message("k", structured(), {"own": "1"}).headers == {"own": "1"}


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({}, "no attributes"),
        ({"content-type": "application/json"}, "no attributes"),
        ({"x": "y"}, "no attributes"),
        ({"ce_tenant": "t"}, "no id, type, source, specversion"),
        *((binary(**{name: ""}), f"has no {name}$") for name in LEAST),
        *((dict(set(binary().items()) - {(f"ce_{name}", LEAST[name])}), f"has no {name}$") for name in LEAST),
        *((binary(specversion=spec), "not known") for spec in ("0.3", "2.0", "1", "1.x", "1.0 ", "11.0")),
        *(
            (binary(dataversion=odd), "dataversion")
            for odd in ("0", "-1", "1.0", "x", "32768", "9" * 5000, "\u0661", " 1")
        ),
        *(
            (binary(time=odd), "time")
            for odd in ("now", "2026-01-02", "2026-01-02T03:04:05", "0001-01-01T00:00:00+01:00")
        ),
        *(
            (binary() | {name: value}, "NUL")
            for name, value in [("x", "a\0"), ("x\0", "a"), ("x", "\ud800"), ("\udfff", "")]
        ),
        *(
            (binary(**{name: "a\0b"}), "NUL")
            for name in ("id", "type", "source", "subject", "correlationid", "partitionkey")
        ),
        (binary(partitionkey="k" * 513), "513 characters"),
        (binary(type="t" * 201), "201 characters"),
        (binary() | {"content-type": "application/cloudevents-batch+json"}, "batch"),
        (binary() | {"content-type": "application/cloudevents+avro"}, "format"),
    ],
)
def test_what_is_refused(headers: dict[str, str], says: str) -> None:
    with pytest.raises(Unreadable) as refused:
        read_message(None, b"{}", headers)
    assert re.search(says, str(refused.value).partition("\n")[0])
    assert refused.value.code == "unreadable"
    assert refused.value.hint


@pytest.mark.parametrize("key", ["k" * 513, "a\0b", "\ud800"])
def test_a_key_of_the_broker_that_is_refused(key: str) -> None:
    with pytest.raises(Unreadable, match="the key has"):
        read(key=key)
    assert read(key=key, ce_partitionkey="own").key == "own"


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b"", "no JSON object"),
        (b"[]", "no JSON object"),
        (b"{broken", "no JSON object"),
        (structured()[:-1] + b',"x":"\xff"}', "no JSON object"),
        (structured()[:-1] + b',"data":{broken}}', "no JSON object"),
        (structured()[:-1] + b',"data":"\xff"}', "no JSON object"),
        (b"{}", "no attributes"),
        (b'{"data": 1}', "no attributes"),
        (structured(id=...), "has no id"),
        (structured(id=None), "has no id"),
        (structured(type=""), "has no type"),
        (structured(specversion="0.3"), "not known"),
        (structured(x=1.5), "'x'"),
        (structured(x=[]), "'x'"),
        (structured(x={"a": 1}), "'x'"),
        (structured(x=10**30), "'x'"),
        (structured(x="a\0"), "NUL"),
        (structured(**{"x\0": "a"}), "NUL"),
        (structured(data=1, data_base64="AA=="), "both"),
        (structured(data_base64="A"), "base64"),
        (structured(data_base64="A A="), "base64"),
        (structured(data_base64="\u00fc"), "base64"),
        (structured(data_base64=1), "base64"),
        (structured(dataversion=True), "dataversion"),
        (structured(partitionkey="k" * 513), "513 characters"),
    ],
)
def test_what_is_refused_in_structured_mode(payload: bytes, says: str) -> None:
    with pytest.raises(Unreadable, match=says) as refused:
        read_message(None, payload, {"content-type": STRUCTURED})
    assert refused.value.hint


@pytest.mark.parametrize("name", ["partitionkey", "type", "dataversion", "time"])
def test_what_is_said_repeats_nothing_of_the_message(name: str) -> None:
    with pytest.raises(Unreadable) as refused:
        read(b"{}", **{f"ce_{name}": "ann@example.org" * 50})
    assert "ann" not in str(refused.value)
