"""From what people write to the right store, or to one line that says what to write instead."""

import subprocess
import sys
from pathlib import Path

import pytest

from outlive.errors import ConfigError
from outlive.objects.credentials import Credentials
from outlive.objects.location import Bucket, open_store, parse_location
from outlive.objects.presets import PRESETS, Endpoint, known_host
from outlive.objects.retry import Retrying

SPACES = Endpoint(
    url="https://nyc3.digitaloceanspaces.com", signing_region="us-east-1", provider="DigitalOcean"
)


def parse(location: str, **settings: str) -> Path | Bucket:
    environ = {name: value for name, value in settings.items() if name.isupper()}
    return parse_location(
        location, endpoint=settings.get("endpoint"), region=settings.get("region"), environ=environ
    )


def bucket_of(location: str, **settings: str) -> Bucket:
    parsed = parse(location, **settings)
    assert isinstance(parsed, Bucket)
    return parsed


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/data/store", "/data/store"),
        ("./store", f"{Path.cwd()}/store"),
        ("../store", f"{Path.cwd()}/../store"),
        ("~/store", f"{Path.home()}/store"),
        ("file:///data/my%20store", "/data/my store"),
        ("file://localhost/data", "/data"),
    ],
)
def test_directories(location: str, path: str) -> None:
    """A path is a path, and a file URL is one too."""
    assert parse(location) == Path(path)


@pytest.mark.parametrize(
    "location",
    [
        "https://nyc3.digitaloceanspaces.com/bucket/a/b",
        "https://bucket.nyc3.digitaloceanspaces.com/a/b/",
        "HTTPS://Bucket.NYC3.DigitalOceanSpaces.com/a/b",
    ],
)
def test_a_pasted_spaces_url(location: str) -> None:
    """Both forms that the control panel shows lead to the same bucket and prefix."""
    assert bucket_of(location) == Bucket(endpoint=SPACES, bucket="bucket", prefix="a/b")


@pytest.mark.parametrize(
    "endpoint",
    [
        "https://nyc3.digitaloceanspaces.com",
        "https://nyc3.digitaloceanspaces.com/",
        "nyc3.digitaloceanspaces.com",
        "https://bucket.nyc3.digitaloceanspaces.com",
    ],
)
def test_a_pasted_spaces_endpoint(endpoint: str) -> None:
    """An endpoint with the bucket in it doesn't double the bucket's name."""
    expected = Bucket(endpoint=SPACES, bucket="bucket", prefix="a")
    assert bucket_of("s3://bucket/a", endpoint=endpoint) == expected


@pytest.mark.parametrize(
    ("host", "provider", "signing_region", "virtual", "bucket"),
    [
        ("s3.eu-west-1.amazonaws.com", "AWS", "eu-west-1", True, None),
        ("s3.amazonaws.com", "AWS", "us-east-1", True, None),
        ("b.s3.eu-west-1.amazonaws.com", "AWS", "eu-west-1", True, "b"),
        ("s3.cn-north-1.amazonaws.com.cn", "AWS", "cn-north-1", True, None),
        (f"{'0a' * 16}.r2.cloudflarestorage.com", "Cloudflare R2", "auto", False, None),
        (f"{'0a' * 16}.eu.r2.cloudflarestorage.com", "Cloudflare R2", "auto", False, None),
        ("storage.googleapis.com", "Google Cloud Storage", "auto", False, None),
        ("s3.us-west-004.backblazeb2.com", "Backblaze B2", "us-west-004", False, None),
        ("s3.eu-central-1.wasabisys.com", "Wasabi", "eu-central-1", False, None),
        ("s3.wasabisys.com", "Wasabi", "us-east-1", False, None),
        ("s3.fr-par.scw.cloud", "Scaleway", "fr-par", False, None),
        ("b.s3.fr-par.scw.cloud", "Scaleway", "fr-par", False, "b"),
        ("storage.eu-north1.nebius.cloud", "Nebius", "eu-north1", False, None),
        ("ams3.digitaloceanspaces.com", "DigitalOcean", "us-east-1", False, None),
    ],
)
def test_providers(host: str, provider: str, signing_region: str, virtual: bool, bucket: str | None) -> None:
    """Each provider's host names tell the region that signatures need and where the bucket goes."""
    known = known_host(host)
    assert known is not None
    assert (known.preset.name, known.bucket) == (provider, bucket)
    path = "/prefix" if bucket else "/bkt/prefix"
    parsed = bucket_of(f"https://{host}{path}") if bucket != "b" else bucket_of(f"https://bk{host}{path}")
    assert parsed.endpoint.signing_region == signing_region
    assert parsed.endpoint.virtual == virtual
    assert parsed.prefix == "prefix"


def test_every_preset_is_tried() -> None:
    """No provider is listed without a test of its form."""
    assert len(PRESETS) == 8
    assert known_host("minio.example.com") is None
    assert known_host("digitaloceanspaces.com.evil.example") is None


def test_servers_of_ones_own() -> None:
    """An unknown host is taken as it is, with its port, and the bucket in the path."""
    expected = Endpoint(url="http://127.0.0.1:9000", signing_region="us-east-1")
    assert bucket_of("http://127.0.0.1:9000/bucket/p") == Bucket(
        endpoint=expected, bucket="bucket", prefix="p"
    )
    assert bucket_of("s3://bucket", endpoint="http://127.0.0.1:9000").endpoint == expected
    assert bucket_of("s3://bucket", endpoint="https://[::1]:9000").endpoint.url == "https://[::1]:9000"
    assert bucket_of("s3://bucket", endpoint="https://minio.lan", region="x").endpoint.signing_region == "x"


def test_where_the_endpoint_comes_from() -> None:
    """The argument, then outlive's own variable, then AWS's; without any, AWS itself in its region."""
    environ = {
        "OUTLIVE_S3_ENDPOINT": "https://two.example",
        "AWS_ENDPOINT_URL_S3": "https://three.example",
        "AWS_ENDPOINT_URL": "https://four.example",
    }
    assert bucket_of("s3://bucket", endpoint="https://one.example", **environ).endpoint.url == (
        "https://one.example"
    )
    for expected in list(environ.values()):
        assert bucket_of("s3://bucket", **environ).endpoint.url == expected
        environ.pop(next(iter(environ)))
    assert bucket_of("s3://bucket").endpoint.url == "https://s3.us-east-1.amazonaws.com"
    assert bucket_of("s3://bucket", AWS_REGION="eu-west-1").endpoint.signing_region == "eu-west-1"
    assert (
        bucket_of("s3://my.bucket", region="eu-west-1").endpoint.url == "https://s3.eu-west-1.amazonaws.com"
    )


@pytest.mark.parametrize(
    ("location", "message", "hint"),
    [
        ("", "is not a store", "./"),
        ("store", "is not a store", "./"),
        ("runs/store", "is not a store", "./"),
        ("/", "can't be a store's directory", "directory"),
        ("gs://bucket/x", "is not a store", "storage.googleapis.com"),
        ("ftp://host/x", "is not a store", "s3://"),
        ("file://host/x", "names the host host", "file:///path"),
        ("s3://", "no name of a bucket", "s3://bucket"),
        ("s3:///prefix", "no name of a bucket", "s3://bucket"),
        ("s3://b!cket/x", "no name of a bucket", "s3://bucket"),
        ("s3://bucket/a/../b", "the store's prefix", ""),
        ("s3://bucket/a//b", "the store's prefix", ""),
        ("https://", "names no host", "https://host"),
        ("https://host:notaport/b", "no URL", "https://host"),
        ("https://nyc3.digitaloceanspaces.com", "names no bucket", "digitaloceanspaces.com/bucket"),
        ("https://bucket.nyc3.cdn.digitaloceanspaces.com/x", "is a CDN", "bucket.nyc3.digitalocean"),
        ("https://nyc3.digitaloceanspaces.com/bucket?list-type=2", "a query", "OUTLIVE_S3_ACCESS_KEY_ID"),
    ],
)
def test_nonsense_is_explained(location: str, message: str, hint: str) -> None:
    """Whatever else is written is refused with what is wrong and what to write."""
    with pytest.raises(ConfigError, match=message) as caught:
        parse(location)
    assert hint in caught.value.hint


def test_an_endpoint_that_contradicts() -> None:
    """An endpoint of another bucket, or beside a URL that has its own, is no guess of ours."""
    with pytest.raises(ConfigError, match="is that of the bucket other"):
        parse("s3://bucket/a", endpoint="https://other.nyc3.digitaloceanspaces.com")
    with pytest.raises(ConfigError, match="the endpoint is https://minio"):
        parse("https://nyc3.digitaloceanspaces.com/bucket", endpoint="https://minio.lan")
    with pytest.raises(ConfigError, match="is no server"):
        parse("s3://bucket", endpoint="https://host/some/path")


def test_a_secret_in_a_url_is_refused_and_not_repeated() -> None:
    """Keys in a URL end up in logs and process lists: refused, and the message doesn't show them."""
    with pytest.raises(ConfigError) as caught:
        parse("https://AKID:TOPSECRET@nyc3.digitaloceanspaces.com/bucket")
    assert "TOPSECRET" not in str(caught.value) + caught.value.hint


def test_opens_what_tries_again(tmp_path: Path) -> None:
    """What is opened works at once and repeats by itself."""
    store = open_store(str(tmp_path / "store"))
    assert isinstance(store, Retrying)
    store.put("a", b"x")
    assert store.location == str(tmp_path / "store")


def test_a_bucket_opens_without_contact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a bucket asks nobody; its location names bucket and prefix; a probe's result is kept."""
    for name in ("AWS_CA_BUNDLE", "OUTLIVE_S3_ENDPOINT", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    keys = Credentials(access_key="a", secret_key="b")  # noqa: S106
    store = open_store(
        "https://bucket.host-that-is-not.example/prefix/x", credentials=keys, create_only=False
    )
    assert store.location == "s3://prefix/x"
    assert store.limits.create_only is False
    with pytest.raises(ConfigError, match=r"CA bundle /none.pem can't be read"):
        open_store("s3://bucket", credentials=keys, ca_bundle="/none.pem")


def test_a_local_store_needs_no_boto3(tmp_path: Path) -> None:
    """A directory is opened and used without importing boto3, botocore or urllib3."""
    program = f"""
import sys
from outlive.objects.location import open_store
store = open_store({str(tmp_path)!r})
store.put("a", b"x")
sys.exit(any(name in sys.modules for name in ("boto3", "botocore", "urllib3", "ssl")))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("given", ["https://host:99999", "https://[bad", "host:x"])
def test_an_endpoint_that_is_no_address(given: str) -> None:
    """A port that can't be is a wrong setting, wherever it was written."""
    for settings in ({"endpoint": given}, {"AWS_ENDPOINT_URL": given}):
        with pytest.raises(ConfigError, match="is no URL"):
            parse("s3://bucket/x", **settings)


def test_a_file_can_not_be_a_store(tmp_path: Path) -> None:
    """A file in the store's place, or on the way to it, is refused when the store is opened."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for location, what in (("file", "is a file"), ("file/store", "is a file"), ("link", "is no directory")):
        with pytest.raises(ConfigError, match=what):
            open_store(str(tmp_path / location))
