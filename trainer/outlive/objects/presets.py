"""How the providers' endpoints look, and which region a signature names.

What a store can do is probed, never looked up.
"""

import re
from dataclasses import dataclass

_BUCKET = r"(?:(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]*)\.)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A provider. ``signing_region``: what signatures name; None = the region in the host's name.

    ``virtual``: the bucket belongs into the host's name; otherwise into the path, which works with any name.
    """

    name: str
    host: re.Pattern[str]
    signing_region: str | None = None
    virtual: bool = False
    default_region: str = "us-east-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where requests go, and how they are signed."""

    url: str
    signing_region: str
    virtual: bool = False
    provider: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHost:
    """A host's name taken apart. ``bucket`` where the name begins with one."""

    preset: Preset
    host: str
    region: str
    bucket: str | None


def _preset(name: str, host: str, **settings: "str | bool") -> Preset:
    signing_region = settings.get("signing_region")
    return Preset(
        name=name,
        host=re.compile(f"{_BUCKET}(?P<host>{host})"),
        signing_region=str(signing_region) if signing_region else None,
        virtual=bool(settings.get("virtual", False)),
    )


_REGION = r"(?P<region>[a-z0-9-]+)"

PRESETS = (
    _preset("DigitalOcean", rf"{_REGION}\.digitaloceanspaces\.com", signing_region="us-east-1"),
    _preset("AWS", rf"s3(?:[.-](?:dualstack\.)?{_REGION})?\.amazonaws\.com(?:\.cn)?", virtual=True),
    _preset(
        "Cloudflare R2",
        r"[0-9a-f]{32}(?:\.(?:eu|fedramp))?\.r2\.cloudflarestorage\.com",
        signing_region="auto",
    ),
    _preset("Google Cloud Storage", r"storage\.googleapis\.com", signing_region="auto"),
    _preset("Backblaze B2", rf"s3\.{_REGION}\.backblazeb2\.com"),
    _preset("Wasabi", rf"s3(?:\.{_REGION})?\.wasabisys\.com"),
    _preset("Scaleway", rf"s3\.{_REGION}\.scw\.cloud"),
    _preset("Nebius", rf"storage\.{_REGION}\.nebius\.cloud"),
)
"""MinIO and other servers of one's own have no form: path style, and ``us-east-1`` in signatures."""


def known_host(host: str) -> KnownHost | None:
    """Which provider's endpoint this is, or None."""
    for preset in PRESETS:
        match = preset.host.fullmatch(host.lower())
        if match:
            parts = match.groupdict()
            region = parts.get("region") or preset.default_region
            return KnownHost(preset=preset, host=parts["host"], region=region, bucket=parts["bucket"])
    return None


def is_cdn(host: str) -> bool:
    """A cache in front of a bucket: it serves old bytes and takes no writes."""
    return re.fullmatch(r".*\.cdn\.digitaloceanspaces\.com", host.lower()) is not None
