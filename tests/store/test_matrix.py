"""A run on every kind of server: what each lacks is found, said, and worked around or refused."""

import os
import secrets
from datetime import timedelta
from typing import get_args

import pytest

from fakes.agents import wait_until
from fakes.checkpoints import begin, restored, snapshot
from fakes.servers import Kind, shared
from outlive.errors import StoreError, Superseded
from outlive.objects.credentials import Credentials
from outlive.objects.interface import ObjectStore
from outlive.objects.location import open_store
from outlive.objects.probe import probe
from outlive.store.newest import checkpoints, read_manifest
from outlive.store.prune import prune
from outlive.store.retention import Keep
from outlive.store.survey import survey
from outlive.store.verify import verify

CREATE_ONLY = {"moto", "ministack", "rgw"}
"""One writer wins there; several do with Swift, and all of them with the others."""


@pytest.fixture(params=get_args(Kind))
def kind(request: pytest.FixtureRequest) -> str:
    """Each of them."""
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture
def store(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A place of its own there, opened as agents open it, and probed."""
    server = shared(kind)
    if server.ca_bundle:
        monkeypatch.setenv("AWS_CA_BUNDLE", server.ca_bundle)
    keys = Credentials(access_key=server.access_key, secret_key=server.secret_key)
    opened = open_store(
        server.location(secrets.token_hex(6)), credentials=keys, endpoint=server.endpoint, region="us-east-1"
    )
    probe(opened)
    return opened


def test_what_it_lacks_is_found(kind: Kind, store: ObjectStore) -> None:
    """Whether one of many writers wins is tried, all at once; a person is told where it is not so."""
    found = probe(store)
    assert found.create_only == (kind in CREATE_ONLY)
    assert any("several writers" in line for line in found.missing) == (kind not in CREATE_ONLY)


def test_a_run_is_saved_taken_over_restored_and_pruned(store: ObjectStore) -> None:
    """Two lives save, the first is fenced off, the newest state comes back whole, what is let go goes."""
    frozen, last = os.urandom(200_000), b""
    first = begin(store)
    for step in (10, 20, 30):
        last = os.urandom(300_000)
        first.commit(snapshot(step, frozen, last))
    second = begin(store)
    with pytest.raises(Superseded):
        first.commit(snapshot(40, frozen, os.urandom(1000)))
    found = restored(store)
    assert found is not None
    manifest, image = found
    assert (manifest.step, image[:200_000]) == (40, frozen), "the superseded life's save is a checkpoint, too"
    second.commit(snapshot(50, frozen, last))

    def tidy() -> bool:
        """Nothing is left that nobody names. (A server's times are whole seconds: what is new has no age.)"""
        prune(store, "gpt", Keep(last=1), owner=second, grace=timedelta(0))
        seen = survey(store, "gpt")
        named = {blob.blake3 for left in seen.manifests.values() for blob in left.blobs()}
        return {key.rpartition("/")[2] for key in seen.chunks} == named

    wait_until(tidy, what="all that nobody names is gone")
    assert [(found.life, found.step) for found in checkpoints(store, "gpt")] == [(2, 50), (1, 30)]
    assert all(verify(store, read_manifest(store, "gpt", left)).ok for left in checkpoints(store, "gpt"))
    found = restored(store)
    assert found is not None
    assert found[1].startswith(frozen)
    assert last in found[1]


@pytest.mark.parametrize("kind", ["pys3local"])
def test_a_server_that_lists_one_page_only_is_refused(store: ObjectStore) -> None:
    """In words, instead of being believed: who sees half the chunks would prune the others' checkpoints."""
    for number in range(1005):
        store.put(f"gpt/chunks/{number:05}", b"x")
    with pytest.raises(StoreError, match="stands still") as refused:
        list(store.list("gpt/"))
    assert "use another store" in refused.value.hint
