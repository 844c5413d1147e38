"""Where keys come from, and that nobody sees the secret half."""

import dataclasses

import pytest

from outlive.errors import ConfigError
from outlive.objects.credentials import Credentials, find_credentials


def test_a_secret_is_never_shown() -> None:
    """Printing credentials shows the name of the key and nothing else."""
    credentials = Credentials(access_key="AKID", secret_key="s3cr3t", session_token="t0k3n")  # noqa: S106
    for text in (repr(credentials), str(credentials), f"{credentials}"):
        assert text == "Credentials(access_key='AKID')"


def test_the_order_of_places() -> None:
    """The argument, then outlive's variables, then Spaces', then AWS's, then whatever boto3 finds."""
    environ = {
        "OUTLIVE_S3_ACCESS_KEY_ID": "outlive",
        "OUTLIVE_S3_SECRET_ACCESS_KEY": "1",
        "SPACES_ACCESS_KEY_ID": "spaces",
        "SPACES_SECRET_ACCESS_KEY": "2",
        "AWS_ACCESS_KEY_ID": "aws",
        "AWS_SECRET_ACCESS_KEY": "3",
        "AWS_SESSION_TOKEN": "4",
    }
    explicit = Credentials(access_key="given", secret_key="0")  # noqa: S106
    assert find_credentials(explicit, environ) is explicit
    found = []
    for prefix in ("OUTLIVE_S3_", "SPACES_", "AWS_"):
        credentials = find_credentials(None, environ)
        assert credentials is not None
        found.append(dataclasses.astuple(credentials))
        environ = {name: value for name, value in environ.items() if not name.startswith(prefix)}
    assert found == [("outlive", "1", None), ("spaces", "2", None), ("aws", "3", "4")]
    assert find_credentials(None, environ) is None


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("OUTLIVE_S3_ACCESS_KEY_ID", "OUTLIVE_S3_SECRET_ACCESS_KEY"),
        ("SPACES_SECRET_ACCESS_KEY", "SPACES_ACCESS_KEY_ID"),
        ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    ],
)
def test_half_a_pair_is_a_mistake(given: str, missing: str) -> None:
    """One half without the other is refused and names the missing one; it is not taken from elsewhere."""
    environ = {given: "v4lue", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    if given.startswith("AWS"):
        environ.pop("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(ConfigError, match=f"{given} is set but {missing} is not") as caught:
        find_credentials(None, environ)
    assert "v4lue" not in str(caught.value)
