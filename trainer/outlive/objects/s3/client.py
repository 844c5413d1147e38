"""A boto3 client that any S3-compatible server understands. boto3's defaults can't even PUT to Ceph over TLS.

It is made from botocore, boto3's engine: the same client without the resource layer, 3 MB smaller.
"""

import copy
import ctypes
import gc
import os
from typing import TYPE_CHECKING, Any, cast

from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from outlive.errors import ConfigError
from outlive.objects.credentials import Credentials
from outlive.objects.presets import Endpoint
from outlive.objects.s3.body import MemoryBody
from outlive.objects.s3.instants import instant
from outlive.objects.s3.transport import Transport
from outlive.objects.s3.watchdog import Patience

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client


def connect(
    endpoint: Endpoint, *, credentials: Credentials | None, ca_bundle: str | None, patience: Patience
) -> "tuple[S3Client, Transport]":
    """A client and its connections. ``ConfigError`` if boto3's own settings on this machine are broken."""
    try:
        session = Session()
        session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=instant)
        if credentials is not None:
            session.set_credentials(credentials.access_key, credentials.secret_key, credentials.session_token)
        addressing: dict[str, Any] = {"addressing_style": "virtual" if endpoint.virtual else "path"}
        config = _config(addressing)
        client = session.create_client(
            "s3", region_name=endpoint.signing_region, endpoint_url=endpoint.url, config=config
        )
        configured = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
        verify = ca_bundle or configured or True
    except (BotoCoreError, ValueError, OSError) as error:
        raise ConfigError(
            f"the settings for {endpoint.url} are refused: {error}",
            hint="check the endpoint, and ~/.aws/config and AWS_* of this machine",
        ) from error
    if isinstance(verify, str) and not os.access(verify, os.R_OK):  # else it fails at the first request
        raise ConfigError(
            f"the CA bundle {verify} can't be read", hint="check the ca_bundle setting and AWS_CA_BUNDLE"
        )
    transport = Transport(endpoint.url, verify=verify, patience=patience)
    client.meta.events.register("before-send.s3", cast("Any", transport.send))
    client.meta.events.register_first("before-sign.s3", _Signing(addressing))
    client.meta.events.register_last("before-call.s3", _expect_for_bulk_only)
    _give_back_memory()
    return cast("S3Client", client), transport


def _config(s3: dict[str, Any]) -> Config:
    return Config(
        signature_version="s3v4",
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"total_max_attempts": 1, "mode": "standard"},
        s3=cast("Any", s3),
        user_agent_extra="outlive",
    )


class _Signing:
    """Lets a body say whether it is signed: botocore has one setting a client, this one a request."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings

    def __call__(self, request: AWSRequest, **_: object) -> None:
        if isinstance(request.data, MemoryBody):
            config = copy.copy(request.context["client_config"])
            config.s3 = {**self._settings, "payload_signing_enabled": request.data.signed}
            request.context["client_config"] = config


def _expect_for_bulk_only(params: dict[str, Any], **_: object) -> None:
    """``Expect: 100-continue`` costs a round trip: worth it where a refusal spares sending a large body."""
    if not isinstance(params.get("body"), MemoryBody):
        params["headers"].pop("Expect", None)


def _give_back_memory() -> None:
    """Building a client parses a megabyte of descriptions, whose rubbish would stay resident for ever."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return  # another C library
