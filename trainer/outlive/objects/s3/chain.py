"""Where boto3's own chain would find keys, and how long they are good for. Never the keys themselves."""

from dataclasses import dataclass
from datetime import datetime, timezone

from botocore.credentials import RefreshableCredentials
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from outlive.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainKeys:
    """``source``: boto3's name for the place. ``renewed``: they are fetched anew before they expire.

    ``expires``: when, where that is known. ``temporary``: they expire, known when or not.
    """

    source: str
    temporary: bool
    renewed: bool
    expires: datetime | None = None


def chain_keys() -> ChainKeys | None:
    """What boto3 finds by itself; None if nothing. ``ConfigError`` if its settings are broken."""
    try:
        found = Session().get_credentials()
        if found is None:
            return None
        frozen = found.get_frozen_credentials()
    except (BotoCoreError, ValueError, OSError) as error:
        raise ConfigError(
            f"boto3 can't fetch keys: {' '.join(str(error).split())}",
            hint="check ~/.aws and AWS_* of this machine, or set OUTLIVE_S3_ACCESS_KEY_ID and its secret",
        ) from error
    source = str(found.method)
    if not isinstance(found, RefreshableCredentials):
        return ChainKeys(source=source, temporary=bool(frozen.token), renewed=False)
    # A login in a browser is renewed only until the login itself ends.
    by_hand = any(word in source for word in ("sso", "login"))
    expires = found._expiry_time  # type: ignore[attr-defined]  # botocore shows it nowhere else
    moment = expires.astimezone(timezone.utc) if isinstance(expires, datetime) else None
    return ChainKeys(source=source, temporary=True, renewed=not by_hand, expires=moment)
