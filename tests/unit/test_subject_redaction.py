"""What a redaction does with each event, decided without a database."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postlude import NotEncodable
from postlude.core.envelope import check_headers
from postlude.core.incoming import read_message
from postlude.core.lifecycle import Status
from postlude.core.redaction import HEADER, OpenDelivery, is_redacted, steps_of
from postlude.core.saga.redacted import redacted
from postlude.testing.contracts.saga_arrange import BEGAN, saga

EVENTS = [UUID(int=n) for n in range(3)]
SAGAS = [UUID(int=100 + n) for n in range(2)]
deliveries = st.lists(
    st.tuples(
        st.sampled_from(EVENTS),
        st.sampled_from(["default", "handler:welcome", "saga:onboarding"]),
        st.sampled_from(Status),
        st.booleans(),
    ),
    max_size=6,
).map(lambda rows: [OpenDelivery(seq, *row) for seq, row in enumerate(rows)])
links = st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(SAGAS)), max_size=4)


@given(deliveries, links, st.sets(st.sampled_from(SAGAS)), st.booleans())
def test_nothing_that_is_open_or_alive_loses_its_content(
    given: list[OpenDelivery], linked: list[tuple[UUID, UUID]], held: set[UUID], discards: bool
) -> None:
    steps = steps_of(EVENTS, given, linked, held, discards=discards)
    discarded = set(steps.discard)
    for event_id in steps.redact:
        assert {one.seq for one in given if one.event_id == event_id} <= discarded
        assert not {saga_id for linked_id, saga_id in linked if linked_id == event_id} & held
    assert not steps.sagas & held
    for one in given:
        if one.seq in discarded:
            assert one.is_free
            assert one.status is not Status.claimed
            assert discards or one.status is Status.dead
            assert one.status is Status.dead or not one.destination.startswith("saga:")
    waiting = set(EVENTS) - set(steps.redact)
    assert bool(waiting) == bool(steps.waiting_deliveries or steps.waiting_sagas)


def test_a_redacted_saga_is_as_it_was_and_knows_nothing() -> None:
    one = saga("o-1")
    after = redacted(one, "customer-8", "f00d" * 8, BEGAN)
    assert (after.process_id, after.version, after.state) == ("o-1", 2, None)
    assert redacted(after, "customer-8", "f00d" * 8, BEGAN) is after


def test_only_we_say_what_is_redacted() -> None:
    with pytest.raises(NotEncodable):
        check_headers({HEADER: "1"})
    headers = {"ce_id": str(uuid4()), "ce_type": "t", "ce_source": "s", "ce_specversion": "1.0", HEADER.title(): "1"}
    headers |= {HEADER: "1", "mine": "2", "content-type": "application/json"}
    assert read_message(None, b"{}", headers).headers == {"mine": "2"}
    assert is_redacted({HEADER: "1"})
