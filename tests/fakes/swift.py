"""OpenStack Swift with its S3 interface: the proxy and one account, container and object server each.

Its create-only is a race: it looks whether the object is there, then writes (1 to 9 of 16 writers win).
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fakes.environments import environment
from fakes.programs import Program, free_port, listens

ACCESS_KEY, SECRET_KEY = "test:tester", "testing"
_PACKAGES = ("swift==2.38.3", "setuptools<80")
_SERVERS = ("account", "container", "object")
_PIPELINE = "catch_errors proxy-logging cache listing_formats s3api tempauth copy bulk slo dlo proxy-server"
_FILTERS = {
    "catch_errors": "",
    "proxy-logging": "use = egg:swift#proxy_logging\n",
    "cache": "use = egg:swift#memcache\n",
    "listing_formats": "",
    "s3api": "s3_acl = false\nlocation = us-east-1\ncheck_bucket_owner = false\n",
    "tempauth": "user_test_tester = testing .admin\n",
    "copy": "",
    "bulk": "",
    "slo": "",
    "dlo": "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Swift:
    """It runs, and answers at ``endpoint``."""

    endpoint: str
    programs: tuple[Program, ...]


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Swift]:
    """A fresh one, its data in `folder`."""
    bin_ = environment("swift", _PACKAGES) / "bin"
    ports = {name: free_port() for name in (*_SERVERS, "proxy")}
    (folder / "devices" / "d1").mkdir(parents=True)
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = s\nswift_hash_path_prefix = p\n"
    )
    for name in _SERVERS:
        _ring(bin_, folder, name, port=ports[name])
        (folder / f"{name}-server.conf").write_text(_backend(folder, name, port=ports[name]))
    (folder / "proxy-server.conf").write_text(_proxy(folder, port=ports["proxy"]))
    with contextlib.ExitStack() as stack:
        programs = []
        for name in ("proxy", *_SERVERS):
            command = [str(bin_ / "python"), str(bin_ / f"swift-{name}-server")]
            program = Program([*command, str(folder / f"{name}-server.conf")], log=folder / f"{name}.log")
            stack.callback(program.stop)
            programs.append(program)
        for name, program in zip(("proxy", *_SERVERS), programs, strict=True):
            program.wait_until(lambda name=name: listens(ports[name]), seconds=60)  # type: ignore[misc]
        yield Swift(endpoint=f"http://127.0.0.1:{ports['proxy']}", programs=tuple(programs))


def _ring(bin_: Path, folder: Path, name: str, *, port: int) -> None:
    builder = str(folder / f"{name}.builder")
    command = [str(bin_ / "python"), str(bin_ / "swift-ring-builder"), builder]
    for words in (["create", "4", "1", "0"], ["add", f"r1z1-127.0.0.1:{port}/d1", "1"], ["rebalance"]):
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
        if done.returncode > 1:  # 1 is a warning
            raise RuntimeError(f"swift's ring can't be built: {done.stdout}{done.stderr}")


def _common(folder: Path, *, port: int) -> str:
    return (
        f"[DEFAULT]\nswift_dir = {folder}\nbind_ip = 127.0.0.1\nbind_port = {port}\nuser = {_user()}\n"
        "workers = 0\nlog_address = /nowhere\n"
    )


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _backend(folder: Path, name: str, *, port: int) -> str:
    return (
        f"{_common(folder, port=port)}devices = {folder / 'devices'}\nmount_check = false\n"
        f"[pipeline:main]\npipeline = {name}-server\n[app:{name}-server]\nuse = egg:swift#{name}\n"
    )


def _proxy(folder: Path, *, port: int) -> str:
    filters = "".join(
        f"[filter:{name}]\n{'' if 'use =' in lines else f'use = egg:swift#{name}'}\n{lines}"
        for name, lines in _FILTERS.items()
    )
    return (
        f"{_common(folder, port=port)}[pipeline:main]\npipeline = {_PIPELINE}\n"
        f"[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\n{filters}"
    )
