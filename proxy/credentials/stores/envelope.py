"""The sealed form of the file store: AES-256-GCM in a JSON envelope, and its key file. Pure but for the random nonce.

Envelope: {"v": 1, "key_id": …, "nonce": base64, "ciphertext": base64}. Version and key id are authenticated too, as
associated data, so that neither can be changed without the key.

Key file: one key a line, 32 random bytes in base64. The first seals; the others only open, so that a change of keys
that is cut short between its two files leaves a store that still opens.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

FORMAT: Final = 1
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True, repr=False)
class Key:
    """One AES-256 key. `id` is public: a digest that tells keys apart and gives nothing away."""

    secret: bytes
    id: str

    def __repr__(self) -> str:
        return f"Key(•••, id={self.id})"


def new_key() -> Key:
    """A key from the system's random source."""
    return key_of(AESGCM.generate_key(KEY_BYTES * 8))


def format_keys(keys: Sequence[Key]) -> bytes:
    """Content of a key file."""
    return b"".join(base64.b64encode(key.secret) + b"\n" for key in keys)


def parse_keys(content: bytes) -> tuple[Key, ...]:
    """Keys of a key file, the sealing one first. Raises ValueError without their text."""
    try:
        secrets = [base64.b64decode(line, validate=True) for line in content.split()]
    except binascii.Error:
        raise ValueError("not base64; it must hold 32 random bytes in base64") from None
    if not secrets or any(len(secret) != KEY_BYTES for secret in secrets):
        raise ValueError("it must hold 32 random bytes in base64")
    return tuple(map(key_of, secrets))


def seal(plaintext: bytes, key: Key) -> bytes:
    """The envelope of `plaintext` under `key`, with a fresh nonce."""
    nonce = os.urandom(NONCE_BYTES)
    ciphertext = AESGCM(key.secret).encrypt(nonce, plaintext, _associated(key.id))
    envelope = {
        "v": FORMAT,
        "key_id": key.id,
        "nonce": base64.b64encode(nonce).decode(),
        "ciphertext": base64.b64encode(ciphertext).decode(),
    }
    return json.dumps(envelope).encode() + b"\n"


def unseal(content: bytes, keys: Sequence[Key]) -> bytes:
    """The plaintext of an envelope sealed with one of `keys`. Raises ValueError saying what does not fit."""
    key_id, nonce, ciphertext = _open_envelope(content)
    key = next((key for key in keys if key.id == key_id), None)
    if key is None:
        held = ", ".join(key.id for key in keys)
        raise ValueError(
            f"sealed with key {key_id}, and the key file holds {held}; put back the key file it was written with"
        )
    try:
        return AESGCM(key.secret).decrypt(nonce, ciphertext, _associated(key.id))
    except InvalidTag:
        raise ValueError("damaged or tampered with: its seal does not verify; restore it from a backup") from None


def _open_envelope(content: bytes) -> tuple[str, bytes, bytes]:
    try:
        envelope = json.loads(content)
        version, key_id = envelope["v"], envelope["key_id"]
        nonce = base64.b64decode(envelope["nonce"], validate=True)
        ciphertext = base64.b64decode(envelope["ciphertext"], validate=True)
    except (ValueError, KeyError, TypeError):
        raise ValueError("not a sealed store: it was cut short, or is another kind of file") from None
    if version != FORMAT:
        raise ValueError(f"written in format {version!r}; this release reads format {FORMAT}")
    if not isinstance(key_id, str) or not key_id.isalnum() or len(key_id) > 64 or len(nonce) != NONCE_BYTES:
        raise ValueError("not a sealed store: its envelope is malformed")
    return key_id, nonce, ciphertext


def key_of(secret: bytes) -> Key:
    """The key made of 32 bytes."""
    return Key(secret, hashlib.sha256(b"sluicegate store key id\0" + secret).hexdigest()[:16])


def _associated(key_id: str) -> bytes:
    return f"sluicegate store {FORMAT} {key_id}".encode()
