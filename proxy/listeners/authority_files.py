"""The certificate authority on disk: `ca.key` (0600) and `ca.crt` in one directory.

Files that an operator put there are used and never written. Where there are none, or where ours is near its end, a new
pair is written under a lock and by renaming, so that processes that start together end up with the same authority.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from proxy.errors import ConfigurationError, Fault
from proxy.listeners.certificates import Authority, SigningKey, authority_certificate, flaw, generate_key, made_by_us

KEY_FILE: Final = "ca.key"
CERTIFICATE_FILE: Final = "ca.crt"
RENEWED_BEFORE_END: Final = 5 * 86400.0
"""Seconds before its end at which an authority of ours gets a new certificate."""

FileStates: TypeAlias = tuple[tuple[int, int, int, int], ...]
"""What tells that a file was replaced: device, inode, modification time and size of certificate and key."""


def open_authority(directory: Path, *, required: bool, now: float) -> Authority:
    """The authority of a directory; made there when missing, renewed when near its end, unless `required`.

    Raises ConfigurationError naming the file: missing though required, unreadable, readable by others, not a pair,
    not an authority, expired.
    """
    found = _read(directory)
    if found is not None and (required or not is_due(found, now)):
        return _usable(found, directory, now)
    if required:
        raise _fault(directory / CERTIFICATE_FILE, "missing, and `ca.required` forbids making an authority")
    return _make(directory, now)


def file_states(directory: Path) -> FileStates | None:
    """FileStates of both files now, None while one of them is missing."""
    try:
        states = [os.stat(directory / name) for name in (CERTIFICATE_FILE, KEY_FILE)]
    except OSError:
        return None
    return tuple((state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size) for state in states)


def certificate_pem(authority: Authority) -> str:
    """What clients have to trust: every certificate of the file, never the key."""
    return b"".join(map(_pem, authority.chain)).decode()


def read_certificate_pem(directory: Path) -> str | None:
    """The certificates on disk, None without any. Needs no access to the key."""
    path = directory / CERTIFICATE_FILE
    return b"".join(map(_pem, _certificates(path))).decode() if path.exists() else None


def certificate_end(file: Path) -> float | None:
    """Epoch seconds at which the first certificate of a PEM file ends; None for what is no certificate now."""
    try:
        return x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc.timestamp()
    except (OSError, ValueError):
        return None


def _make(directory: Path, now: float) -> Authority:
    """A new pair, or a new certificate for the key that is there, so that clients trusting the old one go on."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(directory):
            found = _read(directory)
            if found is not None and not is_due(found, now):
                return _usable(found, directory, now)
            return _write(directory, now)
    except OSError as error:
        raise _fault(directory, f"cannot hold the certificate authority: {error.strerror}") from None


def _write(directory: Path, now: float) -> Authority:
    """The key goes first: a certificate on disk always has its key, and a key alone is taken up at the next start."""
    key_path = directory / KEY_FILE
    if key_path.exists():
        key = _key(key_path)
    else:
        key = generate_key()
        _replace(key_path, _key_pem(key), 0o600)
    certificate = authority_certificate(key, now)
    _replace(directory / CERTIFICATE_FILE, _pem(certificate), 0o644)
    return Authority(certificate, key, (certificate,))


def is_due(authority: Authority, now: float) -> bool:
    """Whether an authority of ours is so near its end that it gets a new certificate."""
    certificate = authority.certificate
    return made_by_us(certificate) and certificate.not_valid_after_utc.timestamp() - now < RENEWED_BEFORE_END


def _read(directory: Path) -> Authority | None:
    """The pair on disk, None without a certificate."""
    key_path, certificate_path = directory / KEY_FILE, directory / CERTIFICATE_FILE
    if not certificate_path.exists():
        return None
    chain, key = _certificates(certificate_path), _key(key_path)
    if chain[0].public_key() != key.public_key():
        raise _fault(certificate_path, f"does not belong to {KEY_FILE}")
    return Authority(chain[0], key, chain)


def _usable(authority: Authority, directory: Path, now: float) -> Authority:
    wrong = flaw(authority.certificate, now)
    if wrong:
        raise _fault(directory / CERTIFICATE_FILE, wrong)
    return authority


def _certificates(path: Path) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(path.read_bytes()))
    except OSError as error:
        raise _fault(path, f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise _fault(path, "is not a PEM certificate") from None


def _key(path: Path) -> SigningKey:
    try:
        with path.open("rb") as file:
            _check_private(path, os.fstat(file.fileno()))
            key = serialization.load_pem_private_key(file.read(), password=None)
    except OSError as error:
        raise _fault(path, f"cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _fault(path, "is not an unencrypted PEM private key") from None
    if not isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        raise _fault(path, "is neither an ECDSA nor an RSA key, which is what TLS clients accept")
    return key


def _check_private(path: Path, state: os.stat_result) -> None:
    """Only we may read it. A file of root's that we can read by our group is a Kubernetes Secret under `fsGroup`."""
    mounted = state.st_uid == 0 and os.geteuid() != 0
    if stat.S_IMODE(state.st_mode) & (0o037 if mounted else 0o077):
        raise _fault(path, "can be read by others; set its mode to 0600")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory / ".lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes, mode: int) -> None:
    """Writes a file whole or not at all. The lock keeps others from the temporary name."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask says: clients of another user read the certificate
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    os.replace(temporary, path)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: SigningKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _fault(path: Path, message: str) -> ConfigurationError:
    return ConfigurationError([Fault(str(path), 0, message)])
