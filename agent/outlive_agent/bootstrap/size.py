"""User-data that fits: every provider has a limit, and cloud-init unpacks what was compressed."""

import base64
import gzip
from email.message import Message

from outlive.errors import OutliveError

LIMITS = {
    "digitalocean": 65536,
    "aws": 16384,
    "azure": 65535,
    "gcp": 262144,
    "ibm": 65536,
    "openstack": 49149,  # 65,535 in base64
    "other": 16384,
}
"""How many bytes a provider takes, before any encoding of its own. ``other`` is the smallest known."""
COMPRESSING = ("auto", "always", "never")


def fit(text: str, provider: str, *, compress: str = "auto") -> str:
    """``text``, compressed if it must be (or shall be), still as text that can be pasted.

    ``OutliveError`` with the figures if it doesn't fit.
    """
    limit = LIMITS[provider]
    plain = len(text.encode())
    if compress != "always" and plain <= limit:
        return text
    if compress == "never":
        raise _too_large(provider, f"{plain:,} bytes", hint="leave out --compress never")
    packed = pack(text)
    if len(packed) > limit:
        sizes = f"{len(packed):,} bytes, compressed from {plain:,}"
        raise _too_large(
            provider, sizes, hint="name a file of the source in training.requirements, not a list"
        )
    return packed


def _too_large(provider: str, sizes: str, *, hint: str) -> OutliveError:
    return OutliveError(
        f"the user-data is too large for {provider}: {sizes}; {LIMITS[provider]:,} are allowed", hint=hint
    )


def pack(text: str) -> str:
    """A MIME message with one compressed part, which cloud-init unpacks."""
    part = Message()
    part["Content-Type"] = "application/gzip"
    part["MIME-Version"] = "1.0"
    part["Content-Transfer-Encoding"] = "base64"
    part.set_payload(base64.encodebytes(gzip.compress(text.encode(), mtime=0)).decode())
    return part.as_string()
