"""What people move checkpoints with today, at its best settings, and outlive: each keeps one state.

Everything on this side lies in memory (``folder`` is under /dev/shm), so that no disk is measured.
"""

import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import boto3
import numpy as np
import torch
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from safetensors.torch import load_file, save_file

from fakes.servers import Server
from outlive.objects.credentials import Credentials
from outlive.objects.location import open_store
from outlive.store.commit import Committer, Snapshot
from outlive.store.commit import Image as RankImage
from outlive.store.fetch import fetch
from outlive.store.lives import Identity, claim
from outlive.store.manifest import Manifest
from outlive.store.table import TensorEntry, TensorTable

MIB = 1 << 20
TENSOR_BYTES = 4 * MIB
FILE_BYTES = 32 * MIB


Image: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"


class Peer(Protocol):
    """Keeps one state, an image of float32 numbers, in the bucket."""

    name: str

    def prepare(self, image: Image) -> None:
        """Take the state over in the form this system starts from; not measured."""

    def save(self) -> None:
        """Return when it is durable."""

    def restore(self) -> None:
        """Bring it back as tensors, or as what stands for them."""

    def same(self, image: Image) -> bool:
        """Whether what came back is what was saved; not measured."""

    def forget(self) -> None:
        """Remove it from the bucket and from here."""


class Outlive:
    """From an image in memory, as a snapshot is, to a checkpoint, and back into an image."""

    name = "outlive"

    def __init__(self, server: Server, folder: Path) -> None:
        del folder
        keys = Credentials(access_key=server.access_key, secret_key=server.secret_key)
        self._store = open_store(
            server.location("outlive"),
            credentials=keys,
            endpoint=server.endpoint,
            ca_bundle=server.ca_bundle,
        )
        self._round = 0
        self._manifest: Manifest
        self._back = memoryview(b"")

    def prepare(self, image: Image) -> None:
        self._image = image
        self._round += 1
        identity = Identity(host="bench", machine="0" * 32, pid=os.getpid(), command=("bench",), cwd="/")
        life = claim(self._store, f"bench-{self._round}", identity=identity)
        self._committer = Committer(self._store, life, parent=None)
        if len(self._back) != image.nbytes:
            # The arena is made and touched while Python imports torch.
            self._back = memoryview(mmap.mmap(-1, image.nbytes, mmap.MAP_SHARED | mmap.MAP_POPULATE))

    def save(self) -> None:
        entries = [
            TensorEntry(
                path=f"model/{number}",
                dtype="float32",
                shape=(TENSOR_BYTES // 4,),
                offset=offset,
                bytes=TENSOR_BYTES,
                device="cpu",
            )
            for number, offset in enumerate(range(0, self._image.nbytes, TENSOR_BYTES))
        ]
        snapshot = Snapshot(
            step=1,
            epoch=0,
            reason="interval",
            images=(
                RankImage(
                    table=TensorTable(bytes=self._image.nbytes, tensors=tuple(entries)).encode(),
                    values=b"{}",
                    image=self._image.data.cast("B"),
                ),
            ),
        )
        self._manifest = self._committer.commit(snapshot).manifest

    def restore(self) -> None:
        fetch(self._store, self._manifest, self._back)

    def same(self, image: Image) -> bool:
        return bool(np.array_equal(np.frombuffer(self._back, dtype=np.float32), image))

    def forget(self) -> None:
        self._store.delete([info.key for info in self._store.list(f"bench-{self._round}/chunks/")])


class S5cmd:
    """The floor: files that lie ready in memory, in pieces as large as ours, copied there and back."""

    name = "s5cmd"

    def __init__(self, server: Server, folder: Path) -> None:
        self._there = folder / "there"
        self._back = folder / "back"
        self._server = server
        self._url = f"s3://{server.bucket}/s5cmd/"

    def prepare(self, image: Image) -> None:
        self.forget()
        self._there.mkdir(parents=True)
        content = image.data.cast("B")
        for number, at in enumerate(range(0, len(content), FILE_BYTES)):
            (self._there / f"{number:04}").write_bytes(content[at : at + FILE_BYTES])

    def save(self) -> None:
        self._run("cp", f"{self._there}/", self._url)

    def restore(self) -> None:
        self._run("cp", f"{self._url}*", f"{self._back}/")

    def same(self, image: Image) -> bool:
        pieces = [np.fromfile(path, dtype=np.float32) for path in sorted(self._back.iterdir())]
        return bool(np.array_equal(np.concatenate(pieces), image))

    def forget(self) -> None:
        shutil.rmtree(self._there, ignore_errors=True)
        shutil.rmtree(self._back, ignore_errors=True)

    def _run(self, *arguments: str) -> None:
        server = self._server
        keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
        tool = str(Path(sys.executable).with_name("s5cmd"))
        # It takes no CA bundle: it encrypts, and does not look whom it talks to.
        command = [tool, "--no-verify-ssl", "--endpoint-url", server.endpoint, "--numworkers", "16"]
        environment = {**os.environ, **keys, "AWS_REGION": "us-east-1"}
        subprocess.run([*command, "--log", "error", *arguments], check=True, env=environment)


class Boto:
    """boto3's transfers of one file: unsigned over TLS, no second checksum, ten parts of 32 MiB at once."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._path = folder / "state"
        self._back = folder / "state.back"
        self._bucket = server.bucket
        config: Any = Config(
            s3={"addressing_style": "path", "payload_signing_enabled": False},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            max_pool_connections=16,
        )
        self._client = boto3.client(
            "s3",
            endpoint_url=server.endpoint,
            region_name="us-east-1",
            aws_access_key_id=server.access_key,
            aws_secret_access_key=server.secret_key,
            verify=server.ca_bundle,
            config=config,
        )
        self._transfer = TransferConfig(multipart_chunksize=FILE_BYTES, max_concurrency=10)
        self._tensors: dict[str, torch.Tensor] = {}

    def prepare(self, image: Image) -> None:
        pieces = torch.from_numpy(image).view(-1, TENSOR_BYTES // 4)
        self._tensors = {f"model.{number}": piece.clone() for number, piece in enumerate(pieces)}
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def same(self, image: Image) -> bool:
        ordered = [self._tensors[f"model.{number}"] for number in range(len(self._tensors))]
        return bool(np.array_equal(torch.cat(ordered).numpy(), image))

    def forget(self) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=self.key)
        self._path.unlink(missing_ok=True)
        self._back.unlink(missing_ok=True)
        self._tensors = {}

    def _upload(self) -> None:
        self._client.upload_file(str(self._path), self._bucket, self.key, Config=self._transfer)

    def _download(self) -> None:
        self._client.download_file(self._bucket, self.key, str(self._back), Config=self._transfer)

    key = ""


class TorchSave(Boto):
    """``torch.save`` and ``upload_file``, ``download_file`` and ``torch.load``."""

    name = "torch.save + boto3"
    key = "torch.pt"

    def save(self) -> None:
        torch.save(self._tensors, self._path)
        self._upload()

    def restore(self) -> None:
        self._download()
        self._tensors = torch.load(self._back, weights_only=True)


class Safetensors(Boto):
    """``save_file`` and ``upload_file``, ``download_file`` and ``load_file``."""

    name = "safetensors + boto3"
    key = "state.safetensors"

    def save(self) -> None:
        save_file(self._tensors, self._path)
        self._upload()

    def restore(self) -> None:
        self._download()
        self._tensors = load_file(self._back)


PEERS: tuple[Callable[[Server, Path], Peer], ...] = (Outlive, S5cmd, TorchSave, Safetensors)
