"""What a store in a directory promises beyond the contract: crashes, full disks, hostile names."""

import errno
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from outlive.errors import (
    AlreadyExists,
    Damaged,
    Denied,
    NoBucket,
    NotFound,
    StoreError,
    StoreFull,
    Unavailable,
)
from outlive.objects.local import LocalStore
from outlive.objects.local_errors import translated


def files_below(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


def test_makes_its_directory_with_the_first_put(tmp_path: Path) -> None:
    """A store whose directory isn't there yet is empty; the first put makes it."""
    store = LocalStore(tmp_path / "store")
    assert list(store.list("")) == []
    with pytest.raises(NotFound):
        store.get("a", at_most=1)
    assert not (tmp_path / "store").exists()
    store.put("run/a", b"x")
    assert files_below(tmp_path) == ["store/run/a"]


def test_a_missing_parent_is_no_empty_store(tmp_path: Path) -> None:
    """If not even the directory above is there, a disk isn't mounted: that is said, and nothing made."""
    store = LocalStore(tmp_path / "none" / "store")
    for call in (
        lambda: store.put("a", b""),
        lambda: store.get("a", at_most=1),
        lambda: list(store.list("")),
    ):
        with pytest.raises(NoBucket, match="none does not exist") as caught:
            call()
        assert "mkdir -p" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """No space left is StoreFull, and nothing half-written is left or listed."""
    mount = tmp_path / "small"
    mount.mkdir()
    program = f"""
import sys
from pathlib import Path
from outlive.errors import StoreFull
from outlive.objects.local import LocalStore
store = LocalStore(Path({str(mount)!r}) / "store")
store.put("small", bytes(100_000))
try:
    store.put("big", bytes(3_000_000))
except StoreFull as error:
    print(error, error.hint)
store.put("small2", bytes(100_000))
print([info.key for info in store.list("")])
"""
    mounted = f'mount -t tmpfs -o size=1m tmpfs {mount} && exec {sys.executable} -c "$1"'
    result = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", mounted, "sh", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == ""
    assert "big: No space left on device free some space" in result.stdout
    assert result.stdout.endswith("['small', 'small2']\n")


def test_a_writer_that_is_killed_leaves_nothing_visible(tmp_path: Path) -> None:
    """SIGKILL among 400 puts: every object that is there is whole, none is there that wasn't being put."""
    program = f"""
import sys
from pathlib import Path
from outlive.objects.local import LocalStore
store = LocalStore(Path({str(tmp_path)!r}) / "store")
for number in range(100_000):
    store.put(f"chunks/{{number % 400:03}}", bytes([number % 256]) * 50_000)
    if number == 150:
        print("ready", flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    with writer.stdout:
        assert writer.stdout.readline() == b"ready\n"
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    store = LocalStore(tmp_path / "store")
    infos = list(store.list(""))
    assert len(infos) >= 150
    for info in infos:
        assert info.key.startswith("chunks/")
        body = store.get(info.key, at_most=50_000)
        assert body == body[:1] * 50_000


def test_old_scraps_are_swept(tmp_path: Path) -> None:
    """What a killed writer left an hour ago goes with the next process's first put; a fresh scrap stays."""
    LocalStore(tmp_path).put("a", b"")
    scraps = tmp_path / ".outlive-tmp"
    for name in ("old", "fresh"):
        (scraps / name).write_bytes(b"half")
    old = (scraps / "old").stat().st_mtime - 3700
    os.utime(scraps / "old", (old, old))
    store = LocalStore(tmp_path)
    store.put("b", b"")
    assert [path.name for path in scraps.iterdir()] == ["fresh"]
    assert [info.key for info in store.list("")] == ["a", "b"]


def test_a_put_survives_the_sweeping_of_its_directories(tmp_path: Path) -> None:
    """If someone removes an emptied directory, the next put into it makes it again."""
    store = LocalStore(tmp_path)
    store.put("run/chunks/a", b"1")
    store.delete(["run/chunks/a"])
    (tmp_path / "run" / "chunks").rmdir()
    store.put("run/chunks/b", b"2")
    assert store.get("run/chunks/b", at_most=1) == b"2"


def test_never_leaves_its_directory(tmp_path: Path) -> None:
    """A symbolic link inside the store leads nowhere: not for reading, writing, deleting or listing."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"precious")
    store = LocalStore(tmp_path / "store")
    store.put("a", b"")
    (tmp_path / "store" / "link").symlink_to(outside)
    (tmp_path / "store" / "direct").symlink_to(outside / "file")
    for call in (
        lambda: store.put("link/file", b"overwritten"),
        lambda: store.get("link/file", at_most=100),
        lambda: store.delete(["link/file"]),
    ):
        with pytest.raises(StoreError, match="symbolic link"):
            call()
    with pytest.raises(Damaged, match="symbolic link"):
        store.get("direct", at_most=100)
    store.put("direct", b"replaces the link")
    assert [info.key for info in store.list("")] == ["a", "direct"]
    assert files_below(outside) == ["file"]
    assert (outside / "file").read_bytes() == b"precious"


def test_the_folder_of_scraps_is_no_key(tmp_path: Path) -> None:
    """Unfinished files can't be reached by any key."""
    store = LocalStore(tmp_path)
    with pytest.raises(StoreError, match="not a key here"):
        store.put(".outlive-tmp/x", b"")


def test_a_key_below_an_object_is_refused(tmp_path: Path) -> None:
    """A file is no directory: such a put says what to do and changes nothing."""
    store = LocalStore(tmp_path)
    store.put("a", b"file")
    store.put("b/c", b"")
    for key in ("a/b", "b"):
        with pytest.raises(StoreError):
            store.put(key, b"x")
    assert [info.key for info in store.list("")] == ["a", "b/c"]


def test_deletes_all_it_can_before_it_complains(tmp_path: Path) -> None:
    """One key that can't be removed is named, and the others are gone."""
    store = LocalStore(tmp_path)
    for key in ("a/1", "b/1", "c/1"):
        store.put(key, b"")
    subprocess.run(["chattr", "+i", tmp_path / "b" / "1"], check=True)
    try:
        with pytest.raises(Denied, match="b/1: Operation not permitted"):
            store.delete(["a/1", "b/1", "c/1"])
    finally:
        subprocess.run(["chattr", "-i", tmp_path / "b" / "1"], check=True)
    assert [info.key for info in store.list("")] == ["b/1"]


def test_a_reader_never_sees_half_an_object(tmp_path: Path) -> None:
    """While an object is replaced again and again, every read gives one of its versions, whole."""
    store = LocalStore(tmp_path)
    store.put("a", b"\0" * 200_000)
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(1, 60):
                store.put("a", bytes([number]) * 200_000)
        finally:
            done.set()

    with ThreadPoolExecutor(1) as writer:
        result = writer.submit(write)
        while not done.is_set():
            body = store.get("a", at_most=200_000)
            assert body == body[:1] * 200_000
        result.result()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EACCES, Denied),
        (errno.EROFS, Denied),
        (errno.EIO, Unavailable),
        (errno.ESTALE, Unavailable),
        (errno.ENOTDIR, StoreError),
        (errno.EMLINK, StoreError),
        (errno.EXDEV, StoreError),
    ],
)
def test_errors_name_store_and_key(number: int, kind: type[StoreError]) -> None:
    """What the system says becomes one of our errors with the place in it."""
    error = translated(OSError(number, os.strerror(number)), "/store", "run/a")
    assert type(error) is kind
    assert str(error) == f"/store: run/a: {os.strerror(number)}"


@pytest.mark.parametrize("kind", ["a named pipe", "a directory", "a symbolic link"])
def test_what_stands_in_an_objects_place_is_listed_and_damaged(tmp_path: Path, kind: str) -> None:
    """A pipe, a directory or a link is never waited for, followed or passed over in silence."""
    store = LocalStore(tmp_path / "store")
    store.put("run/a.json", b"x")
    place = tmp_path / "store" / "run" / "b.json"
    if kind == "a named pipe":
        os.mkfifo(place)
    elif kind == "a directory":
        place.mkdir()
        (place / "inside").write_bytes(b"y")
    else:
        place.symlink_to(tmp_path / "store" / "run" / "a.json")
    assert [info.key for info in store.list("run/")][:2] == ["run/a.json", "run/b.json"]
    for read in (
        lambda: store.get("run/b.json", at_most=9),
        lambda: store.read_into("run/b.json", memoryview(b"")),
    ):
        with pytest.raises(Damaged, match=f"run/b.json is {kind}"):
            read()
    with pytest.raises(AlreadyExists):
        store.put("run/b.json", b"z", create_only=True)


def test_a_file_in_the_stores_place_is_no_store(tmp_path: Path) -> None:
    """It is not empty, and no put pretends that its key was taken."""
    (tmp_path / "store").write_bytes(b"a file")
    store = LocalStore(tmp_path / "store")
    for call in (
        lambda: store.put("a", b"", create_only=True),
        lambda: store.get("a", at_most=1),
        lambda: list(store.list("")),
    ):
        with pytest.raises(NoBucket, match="is no directory"):
            call()


def test_a_file_on_the_way_is_no_object_that_exists_already(tmp_path: Path) -> None:
    """A create-only put that can't make its directory says so, instead of losing a race against nobody."""
    store = LocalStore(tmp_path / "store")
    store.put("run", b"a file")
    with pytest.raises(StoreError, match="run/a") as caught:
        store.put("run/a", b"", create_only=True)
    assert not isinstance(caught.value, AlreadyExists)
    assert "is a file already" in caught.value.hint


@pytest.mark.parametrize("create_only", [True, False])
def test_what_was_put_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, create_only: bool
) -> None:
    """When put returns, its bytes and every name that leads to them have been flushed, in that order."""
    done: list[tuple[str, Path]] = []
    fsync, mkdir, link, replace = os.fsync, Path.mkdir, Path.hardlink_to, Path.replace

    def flushing(file: int) -> None:
        fsync(file)
        done.append(("flushed", Path(f"/proc/self/fd/{file}").readlink()))

    def making(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        mkdir(path, mode, parents, exist_ok)
        done.append(("named", path))

    def linking(path: Path, target: Path) -> None:
        assert ("flushed", target) in done
        link(path, target)
        done.append(("named", path))

    def replacing(path: Path, target: Path) -> Path:
        assert ("flushed", path) in done
        done.append(("named", target))
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", flushing)
    monkeypatch.setattr(Path, "mkdir", making)
    monkeypatch.setattr(Path, "hardlink_to", linking)
    monkeypatch.setattr(Path, "replace", replacing)
    root = tmp_path / "store"
    store = LocalStore(root)
    store.put("run/chunks/a", b"x", create_only=create_only)
    for place in (root, root / "run", root / "run" / "chunks", root / "run" / "chunks" / "a"):
        assert ("flushed", place.parent) in done[done.index(("named", place)) :]
    done.clear()
    store.delete(["run/chunks/a"])
    assert done == [("flushed", root / "run" / "chunks")]
