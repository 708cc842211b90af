"""AES-256-GCM, by the package `cryptography`; the only module that imports it."""

from __future__ import annotations

import os
from typing import Any

from postlude.errors import BrokenSeal, MissingExtra

KEY_BYTES = 32
NONCE_BYTES = 12


def require() -> None:
    """Raises MissingExtra."""
    _cipher(bytes(KEY_BYTES))


def new_key() -> bytes:
    return os.urandom(KEY_BYTES)


def encrypt(key: bytes, plain: bytes, bound_to: bytes) -> bytes:
    """Nonce, ciphertext and tag."""
    nonce = os.urandom(NONCE_BYTES)
    sealed: bytes = nonce + _cipher(key).encrypt(nonce, plain, bound_to)
    return sealed


def decrypt(key: bytes, sealed: bytes, bound_to: bytes) -> bytes:
    cipher = _cipher(key)
    from cryptography.exceptions import InvalidTag

    try:
        plain: bytes = cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound_to)
    except (InvalidTag, ValueError) as error:  # ValueError: there is not even a nonce
        raise BrokenSeal("what was sealed was changed, or stands where it was not sealed") from error
    return plain


def _cipher(key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise MissingExtra("sealing needs the package cryptography", hint="pip install 'postlude[privacy]'") from error
    return AESGCM(key)
