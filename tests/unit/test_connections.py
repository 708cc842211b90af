"""URLs and settings reach the right adapter; what is missing is named."""

from __future__ import annotations

import sys

import pytest

from postlude import BadUrl, ConfigurationError, MissingExtra, Postlude, Settings
from postlude.brokers.memory import MemoryBroker
from postlude.connections import OPENINGS, open_broker

CLIENTS = {"kafka": "aiokafka", "amqp": "aiormq", "amqps": "aiormq", "redis": "redis", "rediss": "redis"}
CLIENTS |= {"nats": "nats", "tls": "nats"}


def test_every_scheme_is_listed_here() -> None:
    assert set(CLIENTS) == set(OPENINGS)


@pytest.mark.parametrize("scheme", OPENINGS)
async def test_each_scheme_has_its_adapter(scheme: str) -> None:
    broker = open_broker(f"{scheme}://user:secret@localhost")
    assert type(broker).__module__.startswith(f"postlude.brokers.{OPENINGS[scheme][0]}")
    assert "secret" not in repr(broker)


@pytest.mark.parametrize("scheme", CLIENTS)
def test_a_client_that_is_not_installed_is_named_with_its_extra(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith((f"postlude.brokers.{OPENINGS[scheme][0]}", f"{CLIENTS[scheme]}.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, CLIENTS[scheme], None)  # as Python marks what cannot be had
    with pytest.raises(MissingExtra, match=CLIENTS[scheme]) as missing:
        open_broker(f"{scheme}://localhost")
    assert f"postlude[{OPENINGS[scheme][0]}]" in missing.value.hint


def test_the_hint_lists_what_is_known() -> None:
    with pytest.raises(BadUrl) as refused:
        open_broker("carrier-pigeon://me:secret@loft")
    assert "secret" not in str(refused.value)
    assert not [
        scheme for scheme in ("memory", "kafka", "amqp", "redis", "nats") if f"{scheme}://" not in refused.value.hint
    ]


def test_memory_takes_no_options() -> None:
    assert isinstance(open_broker("memory://", {}), MemoryBroker)
    with pytest.raises(ConfigurationError, match="linger"):
        open_broker("memory://", {"linger": 1})


def test_a_memory_broker_with_a_name_is_shared_by_who_names_it() -> None:
    one, other = open_broker("memory://town"), open_broker("memory://town")
    assert one is other
    assert open_broker("memory://village") is not one
    assert open_broker("memory://") is not open_broker("memory://")


def test_options_of_settings_reach_their_broker() -> None:
    brokers = {
        "default": {"options": {"timeout": 3}},
        "other": {"url": "redis://other", "options": {"claim_after": 5}},
        "plain": {"url": "redis://plain"},
    }
    app = Postlude("sqlite://", settings=Settings.load(environ={}, broker="redis://first", brokers=brokers))
    timeouts = {name: app.broker(name)._options.timeout for name in ("default", "other", "plain")}
    assert timeouts == {"default": 3, "other": 10, "plain": 10}
    assert app.broker("other")._options.claim_after == 5
    assert app.broker() is app.broker("default")
