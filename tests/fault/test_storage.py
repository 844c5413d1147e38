"""Every way in which a store or the way to it goes wrong, and what becomes of the run: docs/RELIABILITY.md.

A life claims, saves twice, is restored and pruned, on a real S3 server behind a proxy that goes wrong.
Whatever happens, what was acknowledged restores, and no checkpoint names a chunk that is not there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import pytest

from fakes.checkpoints import Passed, begin, keys, snapshot
from fakes.faults import (
    Fault,
    altered,
    answer_lost,
    cut_on_the_way_down,
    cut_on_the_way_up,
    refused,
    shortened,
)
from fakes.proxy import Proxy, Request, proxied
from fakes.servers import shared
from outlive.errors import Damaged, Denied, OutliveError, StoreFull, Throttled, Unavailable
from outlive.objects.credentials import Credentials
from outlive.objects.interface import ObjectStore
from outlive.objects.location import open_store
from outlive.objects.presets import Endpoint
from outlive.objects.retry import Backoff, Retrying
from outlive.objects.s3 import S3Store
from outlive.store.commit import Committer
from outlive.store.fetch import Restored, restore_newest
from outlive.store.manifest import Manifest
from outlive.store.prune import prune
from outlive.store.retention import Keep
from outlive.store.verify import verify

ALWAYS = 10**9
BIG = bytes(range(256)) * 8192
"""2 MiB: bulk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``what`` happens to so many requests with this method whose path holds ``where``; ``error`` results."""

    name: str
    what: Fault
    method: str
    where: str
    times: int = 3
    error: type[OutliveError] | None = None


PASSING = (
    Case(name="503 SlowDown", what=refused(503, "SlowDown"), method="PUT", where="/chunks/"),
    Case(name="429", what=refused(429, "TooManyRequests"), method="PUT", where="/chunks/"),
    Case(name="500", what=refused(500, "InternalError"), method="PUT", where="/checkpoints/"),
    Case(name="400 RequestTimeout", what=refused(400, "RequestTimeout"), method="PUT", where="/chunks/"),
    Case(
        name="409 on a claim", what=refused(409, "ConditionalRequestConflict"), method="PUT", where="/lives/"
    ),
    Case(name="SlowDown on deletions", what=refused(503, "SlowDown"), method="DELETE", where="run-"),
    Case(name="502 on listings", what=refused(502, ""), method="GET", where="list-type"),
    Case(name="lost: claim", what=answer_lost, method="PUT", where="/lives/", times=1),
    Case(name="lost: chunk", what=answer_lost, method="PUT", where="/chunks/"),
    Case(name="lost: manifest", what=answer_lost, method="PUT", where="/checkpoints/", times=1),
    Case(name="lost: deletion", what=answer_lost, method="DELETE", where="run-", times=1),
    Case(name="reset while sending", what=cut_on_the_way_up, method="PUT", where="/chunks/"),
    Case(name="reset while reading", what=cut_on_the_way_down, method="GET", where="/chunks/"),
    Case(name="altered on the way", what=altered, method="GET", where="/chunks/", times=1),
    Case(name="shortened on the way", what=shortened, method="GET", where="/chunks/", times=1),
)
LASTING = (
    Case(name="overloaded", what=refused(503, "SlowDown"), method="PUT", where="/chunks/", error=Throttled),
    Case(
        name="expired keys", what=refused(403, "ExpiredToken"), method="PUT", where="/chunks/", error=Denied
    ),
    Case(
        name="no right", what=refused(403, "AccessDenied"), method="PUT", where="/checkpoints/", error=Denied
    ),
    Case(
        name="wrong clock",
        what=refused(403, "RequestTimeTooSkewed"),
        method="PUT",
        where="/chunks/",
        error=Unavailable,
    ),
    Case(name="full", what=refused(507, ""), method="PUT", where="/chunks/", error=StoreFull),
    Case(
        name="full quota", what=refused(403, "QuotaExceeded"), method="PUT", where="/chunks/", error=StoreFull
    ),
    Case(name="dead", what=cut_on_the_way_up, method="PUT", where="/chunks/", error=Unavailable),
)


@dataclass
class Trouble:
    """Lets a case happen so many times, once it is switched on."""

    case: Case = PASSING[0]
    left: int = 0

    def __call__(self, request: Request) -> Fault | None:
        if self.left and request.method == self.case.method and self.case.where in request.path:
            self.left -= 1
            return self.case.what
        return None


@dataclass
class Scene:
    """A run as its life sees it, through the proxy, and as it is."""

    case: Case
    run: str
    trouble: Trouble
    proxy: Proxy
    seen: ObjectStore
    real: ObjectStore

    def begin(self) -> Committer:
        return begin(self.seen, self.run)

    def goes_wrong(self, times: int) -> None:
        self.trouble.case, self.trouble.left, self.proxy.hit = self.case, times, 0

    def restored(self, passed: Passed) -> Restored:
        found = restore_newest(
            self.seen, self.run, lambda size: memoryview(bytearray(size)), on_damaged=passed
        )
        assert found is not None
        return found

    def check(self, acknowledged: Manifest) -> None:
        """Past the proxy: what was acknowledged is there, whole, and no newer one is broken."""
        assert verify(self.real, acknowledged).ok
        passed = Passed()
        found = restore_newest(
            self.real, self.run, lambda size: memoryview(bytearray(size)), on_damaged=passed
        )
        assert found is not None
        assert found.manifest.step >= acknowledged.step
        assert passed.ids == []


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Trouble, Proxy, ObjectStore, ObjectStore]]:
    """One server, one proxy, and a client each way."""
    server = shared("moto")
    keys = Credentials(access_key=server.access_key, secret_key=server.secret_key)
    trouble = Trouble()
    with proxied(server.endpoint, trouble) as proxy:
        seen = S3Store(
            Endpoint(url=proxy.endpoint, signing_region="us-east-1"),
            bucket=server.bucket,
            prefix="faults",
            credentials=keys,
        )
        backoff = Backoff(first_seconds=0.001, most_seconds=0.01, deadline_seconds=1.0)
        real = open_store(server.location("faults"), credentials=keys, endpoint=server.endpoint)
        yield trouble, proxy, Retrying(seen, backoff=backoff), real
        seen.close()


@pytest.fixture
def scene(request: pytest.FixtureRequest, world: tuple[Trouble, Proxy, ObjectStore, ObjectStore]) -> Scene:
    return Scene(request.param, f"run-{uuid4().hex[:12]}", *world)


def named(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("scene", PASSING, indirect=True, ids=named)
def test_what_passes(scene: Scene) -> None:
    """A fault that passes costs time only: all is saved, restored and pruned as if nothing had been."""
    scene.goes_wrong(scene.case.times)
    life = scene.begin()
    life.commit(snapshot(1, BIG, b"first"))
    saved = life.commit(snapshot(2, BIG, b"second")).manifest
    passed = Passed()
    found = scene.restored(passed)
    assert found.manifest == saved
    assert bytes(found.image[: len(BIG)]) == BIG
    assert passed.ids == []
    plan = prune(scene.seen, scene.run, Keep(last=1), owner=life, grace=timedelta(0))
    assert [gone.step for gone in plan.checkpoints] == [1]
    assert scene.proxy.hit == scene.case.times
    lives = keys(scene.real, f"{scene.run}/lives/")
    assert lives == [f"{scene.run}/lives/000001.adopted.json", f"{scene.run}/lives/000001.json"]
    scene.check(saved)


@pytest.mark.parametrize("scene", LASTING, indirect=True, ids=named)
def test_what_lasts(scene: Scene) -> None:
    """A fault that lasts fails that save alone, by its name; the one before stands, the next one succeeds."""
    life = scene.begin()
    first = life.commit(snapshot(1, BIG, b"first")).manifest
    scene.goes_wrong(ALWAYS)
    assert scene.case.error is not None
    with pytest.raises(scene.case.error) as raised:
        life.commit(snapshot(2, BIG[::-1], b"second"))
    assert type(raised.value) is scene.case.error
    assert raised.value.hint
    scene.check(first)
    scene.goes_wrong(0)
    scene.check(life.commit(snapshot(3, BIG[::-1], b"third")).manifest)


@pytest.mark.parametrize(
    "scene",
    [
        Case(name="altered in the store", what=altered, method="GET", where="/chunks/000001-000000000002/"),
        Case(
            name="shortened in the store", what=shortened, method="GET", where="/chunks/000001-000000000002/"
        ),
    ],
    indirect=True,
    ids=named,
)
def test_what_can_not_be_read(scene: Scene) -> None:
    """A checkpoint that reads wrong twice is passed over, by name, for the one before."""
    life = scene.begin()
    life.commit(snapshot(1, b"first"))
    life.commit(snapshot(2, b"second"))
    scene.goes_wrong(ALWAYS)
    passed = Passed()
    assert scene.restored(passed).manifest.step == 1
    assert [checkpoint.step for checkpoint in passed.ids] == [2]
    assert all(isinstance(error, Damaged) for error in passed.errors)
