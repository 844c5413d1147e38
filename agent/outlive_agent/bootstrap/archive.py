"""Puts the training's code into the store, where the next machines find it."""

import hashlib
from pathlib import Path

from outlive.errors import AlreadyExists, ConfigError, Damaged
from outlive.objects.credentials import Credentials
from outlive.objects.location import open_store
from outlive.objects.sealed import Seal, Sealed
from outlive.store import layout
from outlive_agent.settings.values import StoreSettings

AT_MOST = 1 << 28


def archive_key(run: str, file: Path) -> str:
    """Named by its content: equal files are uploaded once, and a machine gets the code it was made for."""
    suffixes = "".join(file.suffixes[-2:]) if file.name.endswith((".tar.gz", ".tar.xz")) else file.suffix
    return f"{layout.artifact(run, 'code')}{hashlib.sha256(_content(file)).hexdigest()}{suffixes}"


def check_archive(key: str, content: bytes) -> None:
    """``Damaged`` if this is not what was uploaded under that key."""
    if hashlib.sha256(content).hexdigest() not in key:
        raise Damaged(
            f"{key} is not the archive that was uploaded", hint="render and paste the user data again"
        )


def upload_archive(
    store: StoreSettings, keys: Credentials | None, file: Path, *, key: str, seal: Seal | None = None
) -> None:
    """Put it there, unless it is there already."""
    opened = open_store(
        store.location,
        credentials=keys,
        endpoint=store.endpoint,
        region=store.region,
        ca_bundle=str(store.ca_bundle) if store.ca_bundle else None,
    )
    try:
        (Sealed(opened, seal) if seal else opened).put(key, _content(file), create_only=True)
    except AlreadyExists:
        return  # the same bytes, since the key is their digest


def _content(file: Path) -> bytes:
    try:
        if file.stat().st_size > AT_MOST:
            raise ConfigError(
                f"{file}: larger than 256 MiB", hint="code belongs into the archive, data elsewhere"
            )
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{file}: {(error.strerror or str(error)).lower()}", hint="check training.archive"
        ) from None
