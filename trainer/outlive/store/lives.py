"""Lives: claiming the next one, knowing whether it is still the newest, and what each resumed from."""

import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from blake3 import blake3

from outlive.errors import AlreadyExists, Damaged, NotFound, StoreError, Superseded
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.document import NONCE, Fields, decode, encode, is_text, printable, stamp
from outlive.store.layout import MAX_LIFE, CheckpointId
from outlive.store.manifest import read_pair

CLAIM_BYTES: Final = 2 * 1024 * 1024
_MOST_WORDS: Final = 64
_WORD_CHARS: Final = 1000
_MOST_ATTEMPTS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who claims: for people who ask later which machine it was. Nothing is decided by it."""

    host: str
    machine: str
    pid: int
    command: tuple[str, ...]
    cwd: str

    @classmethod
    def here(cls, command: Sequence[str]) -> "Identity":
        """This process. ``machine`` is derived from the machine's id, which itself is not for publishing."""
        try:
            machine = blake3(b"outlive " + Path("/etc/machine-id").read_bytes().strip()).hexdigest()[:32]
        except OSError:
            machine = ""
        try:
            cwd = str(Path.cwd())
        except OSError:  # it was removed under us
            cwd = ""
        return cls(
            host=socket.gethostname(), machine=machine, pid=os.getpid(), command=tuple(command), cwd=cwd
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The document behind a life."""

    run: str
    life: int
    nonce: str
    claimed_at: datetime
    identity: Identity

    def encode(self) -> bytes:
        who = self.identity
        return encode(
            "life",
            {
                "run": self.run,
                "life": self.life,
                "nonce": self.nonce,
                "claimed_at": stamp(self.claimed_at),
                "host": printable(who.host),
                "machine": printable(who.machine),
                "pid": who.pid,
                "command": [printable(word, most=_WORD_CHARS) for word in who.command[:_MOST_WORDS]],
                "cwd": printable(who.cwd),
            },
        )

    @classmethod
    def decode(cls, raw: bytes, *, where: str = "the claim") -> "Claim":
        fields = decode(raw, "life", where=where)
        words = fields.sequence("command", most=_MOST_WORDS)
        identity = Identity(
            host=fields.text("host"),
            machine=fields.text("machine"),
            pid=fields.integer("pid"),
            command=tuple(word for word in words if is_text(word)),
            cwd=fields.text("cwd"),
        )
        return cls(
            run=fields.text("run", pattern=layout.RUN_NAME),
            life=fields.integer("life", low=1, high=MAX_LIFE),
            nonce=fields.text("nonce", pattern=NONCE),
            claimed_at=fields.time("claimed_at"),
            identity=identity,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A life that this process owns."""

    run: str
    number: int
    nonce: str
    claim: Claim | None = field(default=None, compare=False, repr=False)
    """What stands in the store; None in an agent that went on with the life of another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What a life resumed from; null when there was nothing. ``rewind`` if it went back there on purpose."""

    life: int
    nonce: str
    checkpoint: CheckpointId | None
    rewind: bool


def claim(store: ObjectStore, run: str, *, identity: Identity) -> Life:
    """A life of ``run`` that is ours alone. Choose what to resume from only after it, never before.

    A claim that fails half-way leaves at most a number that nobody uses.
    """
    layout.check_run_name(run)
    nonce = secrets.token_hex(16)
    number = _highest(store, run) + 1
    for _ in range(_MOST_ATTEMPTS):
        if number > MAX_LIFE:
            raise StoreError(
                f"run {run} in {store.location} has used up all {MAX_LIFE} lives", hint="use a new run name"
            )
        now = datetime.now(timezone.utc)
        document = Claim(run=run, life=number, nonce=nonce, claimed_at=now, identity=identity)
        _put_claim(store, document)
        rivals = _rivals(store, run, number=number, nonce=nonce)
        if not rivals:
            return Life(run=run, number=number, nonce=nonce, claim=document)
        # Rivals who all gave way go on to different numbers, or they would meet again at each one.
        rank = 0 if store.limits.create_only else sorted([*rivals, nonce]).index(nonce)
        number = max(number, _highest(store, run)) + 1 + rank
    raise StoreError(
        f"no life of run {run} in {store.location} could be claimed in {_MOST_ATTEMPTS} attempts",
        hint="many machines claim this run at once: find out which, and stop them",
    )


def newest_life(store: ObjectStore, run: str, *, after: int = 0) -> int:
    """The highest life above ``after`` that was ever claimed, or ``after``."""
    newest = after
    for info in store.list(layout.lives(run), after=layout.of_life(run, after) if after else ""):
        key = layout.parse_claim(run, info.key)
        newest = max(newest, key.life if key else 0)
    return newest


def is_newest(store: ObjectStore, life: Life) -> bool:
    """Whether nobody has claimed a higher number, and the number is still ours."""
    try:
        return _holds(store, life)
    except Superseded:
        return False


def holds(store: ObjectStore, life: Life) -> bool:
    """True if ``life`` is ours and the newest, False if its claim is gone. ``Superseded``."""
    return _holds(store, life)


def check_newest(store: ObjectStore, life: Life) -> None:
    """``Superseded``, naming the machine that took over, unless ``life`` is still the newest.

    ``StoreError`` if its claim was removed from outside, and nobody else has taken the number.
    """
    if not _holds(store, life):
        raise StoreError(
            f"the claim of life {life.number} of run {life.run} was removed from {store.location}",
            hint="its next save puts it back",
        )


def hold(store: ObjectStore, life: Life) -> bool:
    """The same, and puts a claim that was removed back. True if it had to: look what else is gone.

    The put decides, as for a new life: whoever took the number meanwhile keeps it, and we are superseded.
    """
    if _holds(store, life):
        return False
    newest = _highest(store, life.run, after=life.number)  # its claim may be gone as well
    if newest > life.number:
        raise _superseded(store, life, newest)
    now = datetime.now(timezone.utc)
    document = life.claim or Claim(
        run=life.run, life=life.number, nonce=life.nonce, claimed_at=now, identity=Identity.here(())
    )
    _put_claim(store, document)
    if not _holds(store, life, alone=True):
        raise StoreError(f"{layout.life(life.run, life.number)} in {store.location} is removed again")
    return True


def read_claim(store: ObjectStore, run: str, number: int) -> Claim:
    """Who claimed life ``number``; where rivals met at it, one of them. ``NotFound``, ``Damaged``."""
    for info in store.list(layout.of_life(run, number)):
        if layout.parse_claim(run, info.key):
            return Claim.decode(store.get(info.key, at_most=CLAIM_BYTES), where=info.key)
    raise NotFound(f"run {run} in {store.location} has no life {number}")


def adopt(store: ObjectStore, life: Life, checkpoint: CheckpointId | None, *, rewind: bool = False) -> None:
    """Record what ``life`` resumes from, before it trains. ``rewind`` abandons all that is newer."""
    if checkpoint is not None and checkpoint.life >= life.number:
        raise Superseded(
            f"life {life.number} of run {life.run} in {store.location} can't resume from {checkpoint}",
            hint="somebody else trains this run, and its claim was removed: stop one of the two",
        )
    pair = None if checkpoint is None else [checkpoint.life, checkpoint.step]
    body = encode(
        "adopted",
        {"run": life.run, "life": life.number, "nonce": life.nonce, "checkpoint": pair, "rewind": rewind},
    )
    key = layout.adopted(life.run, life.number, rewind=rewind)
    try:
        store.put(key, body, create_only=store.limits.create_only)
    except AlreadyExists as error:
        if store.get(key, at_most=CLAIM_BYTES) != body:
            raise StoreError(f"{key} in {store.location} says something else already") from error


def read_adoption(store: ObjectStore, run: str, number: int) -> Adoption | None:
    """What life ``number`` resumed from, or None if it never got that far. ``Damaged``."""
    for rewind in (True, False):
        key = layout.adopted(run, number, rewind=rewind)
        try:
            raw = store.get(key, at_most=CLAIM_BYTES)
        except NotFound:
            continue
        return _adoption(decode(raw, "adopted", where=key), run=run, number=number, rewind=rewind)
    return None


def _adoption(fields: Fields, *, run: str, number: int, rewind: bool) -> Adoption:
    checkpoint = read_pair(fields, "checkpoint")
    if fields.text("run") != run or fields.integer("life") != number or fields.flag("rewind") != rewind:
        raise fields.wrong("run, life or rewind")
    if checkpoint is not None and checkpoint.life >= number:
        raise fields.wrong("checkpoint")
    return Adoption(
        life=number, nonce=fields.text("nonce", pattern=NONCE), checkpoint=checkpoint, rewind=rewind
    )


def _put_claim(store: ObjectStore, document: Claim) -> None:
    if not store.limits.create_only:
        store.put(layout.keyed_life(document.run, document.life, nonce=document.nonce), document.encode())
        return
    with suppress(AlreadyExists):  # perhaps by ourselves, and the answer was lost: reading it back tells
        store.put(layout.life(document.run, document.life), document.encode(), create_only=True)


def _highest(store: ObjectStore, run: str, *, after: int = 0) -> int:
    """The highest life that has left anything at all: where claims were removed, the rest still counts."""
    highest = newest_life(store, run, after=after)
    for tree in layout.traces(run):
        # Usually one short question: nothing lies above the newest claim.
        for info in store.list(tree, after=f"{tree}{highest:06d}~"):
            highest = max(highest, layout.life_in(info.key.removeprefix(tree)) or 0)
    return highest


def _holds(store: ObjectStore, life: Life, *, alone: bool = False) -> bool:
    """True if the life is ours and the newest, False if there is no claim of its number. ``Superseded``.

    A claim that came beside ours afterwards (a request that was long under way) takes nothing from us, unless
    we are only about to own the number: then it must be ours ``alone``.
    """
    newest = newest_life(store, life.run, after=life.number)
    if newest > life.number:
        raise _superseded(store, life, newest)
    keyed, shared = _claims(store, life.run, life.number)
    if life.nonce in keyed and not (alone and (shared or len(keyed) > 1)):
        return True
    if shared:
        key = layout.life(life.run, life.number)
        try:
            holder = Claim.decode(store.get(key, at_most=CLAIM_BYTES), where=key).nonce
        except NotFound:  # removed since it was listed
            return False
        except Damaged as error:
            raise StoreError(
                f"the claim of life {life.number} of run {life.run} in {store.location} is altered: {error}",
                hint=f"remove {key}: its life puts it back",
            ) from error
        if holder == life.nonce and not (alone and keyed):
            return True
    if shared or keyed:
        raise _superseded(store, life, life.number)
    return False


def _superseded(store: ObjectStore, life: Life, newest: int) -> Superseded:
    by = f"life {newest}" if newest > life.number else "another owner of the same number"
    try:
        who = read_claim(store, life.run, newest)
    except (Damaged, NotFound):  # who it is, is only for the message
        who = None
    at = f" on {who.identity.host} (pid {who.identity.pid})" if who else ""
    return Superseded(
        f"life {life.number} of run {life.run} in {store.location} is superseded by {by}{at}",
        hint="only one machine at a time should train a run; this one has stopped",
    )


def _rivals(store: ObjectStore, run: str, *, number: int, nonce: str) -> set[str]:
    """The nonces of others that claim ``number``. Who sees none after its own claim was answered, owns it."""
    keyed, shared = _claims(store, run, number)
    if nonce in keyed:
        return (keyed | ({""} if shared else set())) - {nonce}
    return (keyed | {_holder(store, run, number) if shared else ""}) - {nonce}


def _claims(store: ObjectStore, run: str, number: int) -> tuple[set[str], bool]:
    """The nonces in the keys of this number's claims, and whether there is one whose key has none."""
    claims = [layout.parse_claim(run, info.key) for info in store.list(layout.of_life(run, number))]
    keyed = {claim.nonce for claim in claims if claim and claim.nonce}
    return keyed, any(claim is not None and claim.nonce is None for claim in claims)


def _holder(store: ObjectStore, run: str, number: int) -> str:
    """The nonce in a claim whose key has none, or "" if it can't be read: then it is not ours."""
    key = layout.life(run, number)
    try:
        return Claim.decode(store.get(key, at_most=CLAIM_BYTES), where=key).nonce
    except (Damaged, NotFound):
        return ""
