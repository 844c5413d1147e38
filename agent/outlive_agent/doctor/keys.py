"""Whose keys open the store, and whether they are still good when the last save is due."""

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Final

from outlive.objects.credentials import Credentials, find_credentials
from outlive_agent.doctor.finding import Finding, ok, problem, warning
from outlive_agent.units import duration_text

SOON_SECONDS: Final = 24 * 3600.0
"""Keys that end within a day end within the run, or before the next machine comes."""
_CHANGE: Final = "use keys that don't expire, made for this prefix alone, or a role of the machine"
_ENV_EXPIRY: Final = "AWS_CREDENTIAL_EXPIRATION"


def keys(given: Credentials | None, environ: Mapping[str, str], *, place: str = "") -> Finding:
    """``given``: those the configuration names, at ``place``; else the environment's, else boto3's."""
    found = given or find_credentials(None, environ)
    if found is None:
        return _chain()
    where = place or "from the environment"
    if not found.session_token:
        return ok("keys", f"{where}; they don't expire by themselves", temporary=False)
    return _temporary(where, _moment(environ.get(_ENV_EXPIRY, "")))


def _chain() -> Finding:
    from outlive.objects.s3.chain import chain_keys  # late: boto3 costs a third of a second

    found = chain_keys()
    if found is None:
        change = "set OUTLIVE_S3_ACCESS_KEY_ID and OUTLIVE_S3_SECRET_ACCESS_KEY"
        return problem("keys", "there are none", change=change)
    where = f"found by boto3 ({found.source})"
    if not found.temporary:
        return ok("keys", f"{where}; they don't expire by themselves", temporary=False)
    if found.renewed:
        return ok("keys", f"{where}; renewed by themselves", temporary=True)
    return _temporary(where, found.expires)


def _temporary(where: str, expires: datetime | None) -> Finding:
    if expires is None:
        seen = f"{where}; temporary, and nobody says how long"
        return warning("keys", seen, change=_CHANGE, temporary=True)
    left = (expires - datetime.now(timezone.utc)).total_seconds()
    if left <= 0:
        seen = f"{where}; they expired {duration_text(-left)} ago"
        return problem("keys", seen, change="renew them", temporary=True, seconds_left=0)
    seen = f"{where}; they expire in {duration_text(left)}"
    figures = {"temporary": True, "seconds_left": int(left)}
    if left < SOON_SECONDS:
        return warning("keys", f"{seen}: no save and no machine after that", change=_CHANGE, **figures)
    return ok("keys", seen, **figures)


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
