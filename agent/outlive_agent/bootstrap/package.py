"""What machines install: the outlive that renders their user data, where they can reach it."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any

from outlive import __version__

RELEASE = f"outlive=={__version__}"


def default_package() -> str:
    """What pip is told: the address that this outlive was installed from, else its version (PEP 610)."""
    origin = _origin()
    url = str(origin.get("url", ""))
    version_control: dict[str, Any] = origin.get("vcs_info") or {}
    if version_control.get("vcs") == "git" and url.startswith("https://"):
        return f"git+{url}@{version_control.get('commit_id', 'HEAD')}"
    return url if url.startswith("https://") and "archive_info" in origin else RELEASE


def doubt(package: str) -> str:
    """A note for who renders user data: whether machines may get something else than what is here."""
    url = str(_origin().get("url", ""))
    if package != RELEASE or not url.startswith("file:"):
        return ""
    return (
        f"machines will install {RELEASE} from the package index, here it comes from {url[7:]}: unless it is "
        "published there, say agent: {package: git+https://...@COMMIT}, or the https address of a wheel"
    )


def _origin() -> dict[str, Any]:
    try:
        text = distribution("outlive").read_text("direct_url.json")
        origin = json.loads(text or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return origin if isinstance(origin, dict) else {}
