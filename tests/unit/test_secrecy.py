"""What is never shown: passwords in URLs, in texts, and in what drivers say about URLs."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postlude import BadUrl, DatabaseUnavailable, PostludeError, Settings
from postlude.connections import open_store
from postlude.secrecy import is_secret, shown_url, without_secrets
from postlude.storage.postgres.urls import plain_url
from postlude.testing.clock import ManualClock


@pytest.mark.parametrize(
    "text",
    [
        "cannot reach postgresql://me:s3cret@host:5432/shop?x=1 now",
        "postgresql://me:s3/cret@host/shop",
        "postgresql://me:s3@cret@host/shop",
        "postgresql://:s3cret@host/shop",
        "'me:s3cret@host' is no URL",
        "postgresql://host/shop?user=me&password=s3cret&x=1",
        "postgresql://host/shop?sslpassword=s3cret",
        "host=host user=me password='s3 cret' port=5432",
        "POSTLUDE_HTTP__TOKEN=s3cret on host",
        "kafka://host/?sasl_password=s3cret, and more",
    ],
)
def test_no_password_is_left_in_a_text(text: str) -> None:
    shown = without_secrets(text)
    assert "s3" not in shown
    assert "cret" not in shown
    assert "host" in shown


@pytest.mark.parametrize(
    "text",
    ["sqlite:///shop.db", "postgresql://me@host:5432/shop", "at 10:00 a@b", "", "tokens = 3", "key='ada@example.org'"],
)
def test_other_texts_are_left_alone(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pa%3Ass@host:5432/shop?password=x", "postgresql://me@host:5432/shop"),
        ("sqlite:////var/shop.db", "sqlite:////var/shop.db"),
        ("postgresql://me:p@ss@host/shop", "postgresql://me@host/shop"),
        ("postgresql://me:p/a?s#s@host/shop", "postgresql://me@host/shop"),
        ("postgresql://me@host/shop", "postgresql://me@host/shop"),
        ("postgresql://host/shop?password=x&options=a@b", "postgresql://host/shop"),
        ("redis://:secret@host", "redis://host"),
        ("me:secret@host?password=x", "host"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


@given(st.text(min_size=1), st.sampled_from(["postgresql", "amqp", "kafka"]))
def test_no_password_whatever_is_in_it_is_part_of_what_is_shown(noise: str, scheme: str) -> None:
    url = f"{scheme}://me:{noise}s3cret{noise}@host/shop?password=s3cret"
    assert "s3cret" not in shown_url(url)


def test_names_of_secrets() -> None:
    assert all(map(is_secret, ["password", "sasl.password", "sslpassword", "api-key", "TOKEN", "client_secret"]))
    assert not any(map(is_secret, ["acks", "key", "compression.type", "tokens"]))


def test_an_error_of_ours_carries_no_password() -> None:
    error = PostludeError("no postgresql://me:s3cret@host/x", hint="try postgresql://me:s3cret@other/x")
    assert "s3cret" not in f"{error} {error!r} {error.args} {error.hint}"


UNREADABLE = [
    "postgresql://me:s3/cret@127.0.0.1/shop",
    "postgresql://me:s3#cret@127.0.0.1/shop",
    "postgresql://me:s3?cret@127.0.0.1/shop",
    "postgresql://me:1?s3cret@127.0.0.1/shop",
    "postgresql://me:1/s3cret@127.0.0.1/shop",
    "postgresql://me:s3[cret@127.0.0.1/shop",
    "postgresql://me:s3\N{ACCOUNT OF}cret@127.0.0.1/shop",
    "postgresql://me:s3%00cret@127.0.0.1/shop",
    "postgresql://me:s3cret@127.0.0.1:port/shop",
    "postgresql://me:s3cret@127.0.0.1:0/shop",
    "postgresql://me:s3cret@127.0.0.1:99999/shop",
    "postgresql://me:s3cret@127.0.0.1:1,127.0.0.1:x/shop",
]


@pytest.mark.parametrize("url", UNREADABLE)
def test_what_a_driver_would_complain_of_is_refused_before_it_can_repeat_the_password(url: str) -> None:
    with pytest.raises(BadUrl) as refused:
        open_store(url, Settings(), ManualClock())
    assert refused.value.__context__ is None
    assert "127.0.0.1" in str(refused.value)
    assert "%2F" in refused.value.hint
    _shows_nothing(refused.value)


UNREACHABLE = [
    "postgresql://me:s3cret@127.0.0.1:1/shop",
    "postgresql://me:s3@cret@127.0.0.1:1/shop",
    "postgresql://me:s3 cret@127.0.0.1:1/shop",
    "postgresql://me:s3%zzcret@127.0.0.1:1/shop",
    "postgresql://127.0.0.1:1/shop?user=me&password=s3cret",
    "postgresql://me:s3cret@127.0.0.1:1,localhost:2/shop",
    "postgresql://me:s3cret@[::1]:1/shop",
    "postgresql://me:s3cret@/shop?host=/nowhere",
    "postgresql://me:s3cret@127.0.0.1:1/shop?sslmode=nonsense",
]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
@pytest.mark.parametrize("url", UNREACHABLE)
async def test_no_error_of_a_connection_shows_the_password_nor_does_what_caused_it(
    url: str, driver: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    _, _, rest = url.partition("://")
    with pytest.raises((DatabaseUnavailable, BadUrl)) as refused:
        await _opened(f"postgresql+{driver}://{rest}")
    _shows_nothing(refused.value)
    assert "cret" not in caplog.text


async def _opened(url: str) -> None:
    store = open_store(url, Settings.load({}, pool={"command_timeout": 1}), ManualClock())
    assert "cret" not in repr(store)
    try:
        await store.open()
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("postgres://h/d", "postgresql://h/d"),
        ("postgresql+asyncpg://me:a@b c%@h:1,[::1]:2/d?x=1", "postgresql://me:a%40b%20c%25@h:1,[::1]:2/d?x=1"),
        ("postgresql://%2Fvar%2Frun/d", "postgresql://%2Fvar%2Frun/d"),
        ("postgresql:///d?host=/run&options=a@b", "postgresql:///d?host=/run&options=a@b"),
    ],
)
def test_every_driver_reads_the_same_url(url: str, plain: str) -> None:
    assert plain_url(url) == plain


def _shows_nothing(error: BaseException) -> None:
    """Neither as it is printed, nor in anything it carries."""
    printed = "".join(traceback.format_exception_only(error))
    cause: BaseException | None = error
    while cause is not None:
        printed += f"{cause} {cause!r} {cause.args}"
        cause = cause.__cause__ or cause.__context__
    assert "s3" not in printed
    assert "cret" not in printed
