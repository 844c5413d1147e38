"""A store whose objects carry a seal: made with the user's key, and refused if anyone else wrote them.

``Encryption`` hides and guards, ``Signature`` only guards. The objects' keys stay as they are: who may list
the bucket sees how many objects there are, how large they are, and the digests in the chunks' names.
"""

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from hmac import compare_digest
from typing import Final, Protocol

from blake3 import blake3

from outlive.errors import ConfigError, Damaged
from outlive.objects.interface import Body, Limits, ObjectInfo, ObjectStore
from outlive.objects.keys import check_key
from outlive.objects.probe import Assuming
from outlive.objects.retry import Cuttable

ENCRYPTION_KEY: Final = "OUTLIVE_ENCRYPTION_KEY"
SIGNING_KEY: Final = "OUTLIVE_SIGNING_KEY"
SEAL_BYTES: Final = 32
"""A sealed object is longer by so much, whatever the seal."""
ENCRYPTED: Final = b"OLE1"
SIGNED: Final = b"OLS1"
SEALS: Final = (ENCRYPTED, SIGNED)
_NONCE_BYTES: Final = 12
_CONCURRENCY: Final = 6
"""Encrypting needs a second copy of each object under way: not more than 200 MB."""
_NAMED_BY_CONTENT: Final = re.compile(r"(?:.*/)?[0-9a-f]{64}")
"""Readers compare such an object with its name, so it needs no signature."""
_HINT: Final = "give the key that the run was begun with; where there was none, give none"


class Seal(Protocol):
    """How one object is sealed. ``opened`` raises ``Damaged`` for whatever was not sealed with this key."""

    concurrency: int
    variable: str
    """Where its key is given."""

    def covers(self, key: str) -> bool: ...

    def sealed(self, key: str, body: Body) -> bytes: ...

    def opened(self, key: str, raw: bytearray) -> Body: ...


class Encryption:
    """AES-256-GCM with a fresh nonce for each object; the object's key is authenticated too."""

    concurrency = _CONCURRENCY
    variable = ENCRYPTION_KEY

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # late: 10 MB that few need

        self._cipher = AESGCM(_derived(key, "outlive 2026 encryption of objects"))

    def covers(self, key: str) -> bool:
        del key
        return True

    def sealed(self, key: str, body: Body) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return b"".join((ENCRYPTED, nonce, self._cipher.encrypt(nonce, body, key.encode())))

    def opened(self, key: str, raw: bytearray) -> Body:
        from cryptography.exceptions import InvalidTag

        view = memoryview(raw)
        nonce, content = view[len(ENCRYPTED) : len(ENCRYPTED) + _NONCE_BYTES], view[16:]
        if not raw.startswith(ENCRYPTED):
            raise Damaged(f"{key} is not encrypted", hint=_HINT)
        try:
            return self._cipher.decrypt(bytes(nonce), content, key.encode())
        except InvalidTag:
            raise Damaged(f"{key} is altered, or was encrypted with another key", hint=_HINT) from None


class Signature:
    """A keyed BLAKE3 of the object's key and content, in front of the content."""

    concurrency = 10**6
    variable = SIGNING_KEY

    def __init__(self, key: bytes) -> None:
        self._key = _derived(key, "outlive 2026 signature of objects")

    def covers(self, key: str) -> bool:
        return not _NAMED_BY_CONTENT.fullmatch(key)

    def sealed(self, key: str, body: Body) -> bytes:
        return b"".join((self._mark(key, body), body))

    def opened(self, key: str, raw: bytearray) -> Body:
        content = memoryview(raw)[SEAL_BYTES:]
        if not raw.startswith(SIGNED):
            raise Damaged(f"{key} is not signed", hint=_HINT)
        if not compare_digest(bytes(raw[:SEAL_BYTES]), self._mark(key, content)):
            raise Damaged(f"{key} is altered, or was signed with another key", hint=_HINT)
        return content

    def _mark(self, key: str, body: Body) -> bytes:
        name = key.encode()
        mark = blake3(len(name).to_bytes(8, "big") + name, key=self._key).update(body)
        return SIGNED + mark.digest(SEAL_BYTES - len(SIGNED))


class Sealed:
    """Any store, behind a seal. What is not about seals, such as a full store, it says itself."""

    def __init__(self, store: ObjectStore, seal: Seal) -> None:
        self._store = store
        self._seal = seal

    def __repr__(self) -> str:
        return f"Sealed({self._store!r})"

    @property
    def inner(self) -> ObjectStore:
        """The store as it is without the seal."""
        return self._store

    @property
    def variable(self) -> str:
        """The variable that holds the seal's key."""
        return self._seal.variable

    @property
    def location(self) -> str:
        return self._store.location

    @property
    def limits(self) -> Limits:
        limits = self._store.limits
        return replace(limits, concurrency=min(limits.concurrency, self._seal.concurrency))

    def assume(self, *, create_only: bool) -> None:
        """Pass on what a probe has found."""
        if isinstance(self._store, Assuming):
            self._store.assume(create_only=create_only)

    def cut(self) -> None:
        """End the requests that are under way."""
        if isinstance(self._store, Cuttable):
            self._store.cut()

    def put(self, key: str, body: Body, *, create_only: bool = False) -> None:
        check_key(key)
        content = self._seal.sealed(key, body) if self._seal.covers(key) else body
        self._store.put(key, content, create_only=create_only)

    def get(self, key: str, *, at_most: int) -> bytes:
        check_key(key)
        if not self._seal.covers(key):
            return self._store.get(key, at_most=at_most)
        raw = bytearray(self._store.get(key, at_most=at_most + SEAL_BYTES))
        return bytes(self._opened(key, raw))

    def read_into(self, key: str, buffer: memoryview) -> None:
        check_key(key)
        if not self._seal.covers(key):
            self._store.read_into(key, buffer)
            return
        raw = bytearray(buffer.nbytes + SEAL_BYTES)
        self._store.read_into(key, memoryview(raw))
        buffer.cast("B")[:] = self._opened(key, raw)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        for info in self._store.list(prefix, after=after):
            covered = self._seal.covers(info.key)
            yield replace(info, size=max(0, info.size - SEAL_BYTES)) if covered else info

    def delete(self, keys: Sequence[str]) -> None:
        self._store.delete(keys)

    def now(self) -> datetime:
        return self._store.now()

    def _opened(self, key: str, raw: bytearray) -> Body:
        if len(raw) < SEAL_BYTES:
            raise Damaged(f"{self.location}: {key} has no seal", hint=_HINT)
        try:
            return self._seal.opened(key, raw)
        except Damaged as error:
            raise Damaged(f"{self.location}: {error}", hint=error.hint) from None


def find_seal(variables: Mapping[str, str]) -> Seal | None:
    """The seal that the environment, or a file of the same form, names; None if it names none.

    ``ConfigError`` if a key is not one, if both are given.
    """
    given = [name for name in (ENCRYPTION_KEY, SIGNING_KEY) if variables.get(name)]
    if not given:
        return None
    if len(given) > 1:
        raise ConfigError(f"both {ENCRYPTION_KEY} and {SIGNING_KEY} are set", hint="encryption signs too")
    text = variables[given[0]].strip()
    if not re.fullmatch(r"[0-9A-Fa-f]{64}", text):
        raise ConfigError(f"{given[0]} is not 64 hexadecimal digits", hint="make one: openssl rand -hex 32")
    key = bytes.fromhex(text)
    return Encryption(key) if given[0] == ENCRYPTION_KEY else Signature(key)


def variable_of(raw: Body) -> str | None:
    """The variable that held the key of an object which begins like this; None if it was not sealed."""
    names = {ENCRYPTED: ENCRYPTION_KEY, SIGNED: SIGNING_KEY}
    return names.get(bytes(raw[: len(ENCRYPTED)]))


def _derived(key: bytes, purpose: str) -> bytes:
    """A key for one purpose, so that one secret can serve several."""
    return blake3(key, derive_key_context=purpose).digest()


def _conforms(store: Sealed) -> ObjectStore:
    return store
