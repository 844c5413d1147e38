"""Where the keys of a bucket come from. A secret is never shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outlive.errors import ConfigError

_PLACES = (
    ("OUTLIVE_S3_ACCESS_KEY_ID", "OUTLIVE_S3_SECRET_ACCESS_KEY", "OUTLIVE_S3_SESSION_TOKEN"),
    ("SPACES_ACCESS_KEY_ID", "SPACES_SECRET_ACCESS_KEY", ""),
    ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Keys for an S3 API. ``repr`` shows the access key, which is a name, and nothing secret."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def find_credentials(explicit: Credentials | None, environ: Mapping[str, str]) -> Credentials | None:
    """The argument, else the first pair in the environment, else None: then boto3's own chain decides.

    ``ConfigError`` if half a pair is set: the other half being taken from elsewhere would hide the mistake.
    """
    if explicit is not None:
        return explicit
    for access_name, secret_name, token_name in _PLACES:
        access, secret = environ.get(access_name, ""), environ.get(secret_name, "")
        if access and secret:
            return Credentials(
                access_key=access, secret_key=secret, session_token=environ.get(token_name) or None
            )
        if access or secret:
            given, missing = (access_name, secret_name) if access else (secret_name, access_name)
            raise ConfigError(f"{given} is set but {missing} is not", hint=f"set {missing} too")
    return None
