"""Where the store is, and whether that outlives this machine at all."""

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from outlive.objects.location import Bucket, parse_location
from outlive.objects.presets import known_host
from outlive_agent.doctor.finding import Finding, ok, warning
from outlive_agent.settings.values import StoreSettings

MOUNTS: Final = Path("/proc/self/mounts")
_ELSEWHERE: Final = re.compile(
    r"nfs4?|cifs|smb3|lustre|ceph|beegfs|gpfs|afs|9p|virtiofs|glusterfs|fuse(?:\..+)?"
)
_HOME: Final = re.compile(r"localhost|127\..+|::1")


def place(store: StoreSettings, *, mounts: Path = MOUNTS) -> Finding:
    """A bucket with its region; or a directory, and what it lies on."""
    found = parse_location(store.location, endpoint=store.endpoint, region=store.region, environ=os.environ)
    return _bucket(found) if isinstance(found, Bucket) else _directory(found, mounts)


def _bucket(found: Bucket) -> Finding:
    url = found.endpoint.url
    host = urlsplit(url).hostname or ""
    known = known_host(host)
    region = found.endpoint.signing_region if known is None else known.region
    title = f"{known.preset.name}, " if known else ""
    seen = f"{title}region {region}, {url}"
    figures = {"endpoint": url, "region": region}
    if url.startswith("http:") and not _HOME.fullmatch(host):
        change = "write https:// in the endpoint"
        return warning("store", f"{seen}: not encrypted on the way", change=change, **figures)
    return ok("store", seen, **figures)


def _directory(path: Path, mounts: Path) -> Finding:
    kind = _filesystem(path, mounts)
    figures = {"filesystem": kind}
    if kind and _ELSEWHERE.fullmatch(kind):
        return ok("store", f"a directory on {kind}, which outlives this machine", **figures)
    what = "memory" if kind in {"tmpfs", "ramfs"} else f"a disk ({kind})" if kind else "a disk"
    change = "--store s3://bucket/prefix, or a directory on a network volume (to try things this will do)"
    return warning(
        "store", f"a directory on {what} of this machine, and gone with it", change=change, **figures
    )


def _filesystem(path: Path, mounts: Path) -> str:
    """The kind of what is mounted nearest above; empty if nobody says."""
    try:
        lines = [line.split(" ") for line in mounts.read_text().splitlines()]
        real = path.resolve()
    except OSError:
        return ""
    best, kind = "", ""
    for _, point, found, *_ in lines:
        mounted = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), point)
        if real.is_relative_to(mounted) and len(mounted) >= len(best):
            best, kind = mounted, found
    return kind
