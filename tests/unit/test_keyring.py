"""Key rings: where keys come from, what is refused, how long they are remembered."""

from __future__ import annotations

import builtins
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from postlude import ConfigurationError, KeyRing, KeysUnavailable, KeyUnknown, MissingExtra, Postlude, Settings
from postlude.privacy import cipher, keyring
from tests.sealing import key_of, listed


def coded(key_id: str) -> str:
    return b64encode(key_of(key_id)).decode()


async def test_the_first_key_of_the_environment_is_active() -> None:
    ring = KeyRing.from_env({"POSTLUDE_KEYS": f" k2:{coded('k2')} , k1:{coded('k1')},"})
    assert await ring.active() == ("k2", key_of("k2"))
    assert await ring.key("k1") == key_of("k1")
    assert ring.older == ("k1",)
    with pytest.raises(KeyUnknown, match="no key 'k3'"):
        await ring.key("k3")
    assert coded("k2") not in repr(ring)


async def test_a_callable_alone_is_a_ring_with_one_key() -> None:
    ring = KeyRing(lambda key_id: key_of("k1") if key_id == "default" else None)
    assert await ring.active() == ("default", key_of("k1"))


@pytest.mark.parametrize(
    "text", ["", "k1", "k1:", "k1:c2hvcnQ=", f":{'A' * 44}", "k 1:x", f"k1:{'A' * 43}=,k1:{'B' * 43}=", "k1:é"]
)
def test_what_is_no_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        KeyRing.from_env({"POSTLUDE_KEYS": text})
    assert "A" * 20 not in str(refused.value)
    assert "c2hvcnQ" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        f"# ours\nk2:{coded('k2')}\n\nk1:{coded('k1')}\n",
        f'k2 = "{coded("k2")}"\nk1 = "{coded("k1")}"\n',
    ],
)
async def test_a_file_has_lines_or_toml(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    file.chmod(0o600)
    ring = KeyRing.from_file(file)
    assert await ring.active() == ("k2", key_of("k2"))
    assert await ring.key("k1") == key_of("k1")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "keys"
    file.write_text(f"k1:{coded('k1')}\n")
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"mode {mode:o}") as refused:
        KeyRing.from_file(file)
    assert refused.value.hint == f"chmod 600 {file}"


@pytest.mark.parametrize("content", [b"\xff\xfe", b"k1 = \"x\"\nk1 = 'y'\n", b""])
def test_a_file_that_holds_no_keys_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ConfigurationError):
        KeyRing.from_file(file)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        KeyRing.from_file(tmp_path / "gone")


class Service:
    """A key service that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.active = "k1"
        self.is_down = False

    async def find(self, key_id: str) -> bytes | None:
        if self.is_down:
            raise OSError("no route to host")
        self.asked.append(key_id)
        return key_of(key_id) if key_id.startswith("k") else None

    async def name(self) -> str:
        return self.active


async def test_a_key_service_is_asked_once_in_a_while() -> None:
    now = 1000.0
    service = Service()
    ring = KeyRing(service.find, active=service.name, cache_seconds=60, cache_size=2)
    ring._clock = lambda: now
    assert await ring.active() == ("k1", key_of("k1"))
    service.active = "k2"
    assert await ring.active() == ("k1", key_of("k1"))
    assert service.asked == ["k1"]
    now += 61
    assert await ring.active() == ("k2", key_of("k2"))
    for key_id in ("k3", "k2", "k4", "k3"):
        await ring.key(key_id)
    assert service.asked == ["k1", "k2", "k3", "k4"], "two are remembered, and k3 is one of the last two"
    await ring.key("k2")
    assert service.asked[-1] == "k2"


async def test_a_key_service_says_no_or_is_down() -> None:
    service = Service()
    ring = KeyRing(service.find, active="k1")
    with pytest.raises(KeyUnknown):
        await ring.key("other")
    service.is_down = True
    with pytest.raises(KeysUnavailable, match="OSError") as failed:
        await ring.key("k9")
    assert "route" not in str(failed.value)
    plain = KeyRing({"k1": key_of("k1")}.__getitem__, active="k1")
    assert await plain.active() == ("k1", key_of("k1"))
    with pytest.raises(KeyUnknown):
        await plain.key("k2")
    tenants: dict[str, str] = {}
    with pytest.raises(KeysUnavailable, match="active key: KeyError"):  # nobody knows which one, not: there is none
        await KeyRing(service.find, active=lambda: tenants["ours"]).active()


async def test_a_key_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="not 32 bytes"):
        await KeyRing(lambda _: b"short", active="k1").active()
    with pytest.raises(ConfigurationError, match="id of a key"):
        await KeyRing(lambda _: key_of("x"), active="no good").active()


def test_settings_and_environment_name_the_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POSTLUDE_KEYS", raising=False)
    assert keyring.ring_of(None) is None
    file = tmp_path / "keys"
    file.write_text(f"k7:{coded('k7')}\n")
    file.chmod(0o600)
    settings = Settings.load(environ={"POSTLUDE_PRIVACY__KEYS_FILE": str(file)})
    app = Postlude("sqlite:///never.db", settings=settings)
    assert app._declared.keys is not None
    assert repr(app._declared.keys) == "KeyRing(active=k7)"
    monkeypatch.setenv("POSTLUDE_KEYS", listed("k8"))
    assert repr(keyring.ring_of(None)) == "KeyRing(active=k8)"
    assert Settings.load().privacy.keys_file is None, "the variable is no setting, and no mistake"


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra) as missing:
        cipher.require()
    assert missing.value.hint == "pip install 'postlude[privacy]'"
