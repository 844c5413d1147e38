"""A whole Ceph in one folder: a monitor, an object daemon in memory and a gateway over TLS, on 127.0.0.1."""

import contextlib
import secrets
import shutil
import socket
import ssl
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fakes.programs import Program, free_port

_SYSTEM_PYTHON = "/usr/bin/python3"
"""The ``ceph`` command needs Debian's own Python: only there is the module ``rados``."""

_START_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    certificate: Path
    programs: tuple[Program, ...]


def install() -> None:
    """Put Ceph's packages on this machine, unless they are there."""
    if shutil.which("radosgw") and shutil.which("ceph-osd") and shutil.which("ceph-mon"):
        return
    subprocess.run([str(Path(__file__).with_name("install-ceph"))], check=True)


@contextlib.contextmanager
def running(folder: Path, *, memory_bytes: int) -> Iterator[Gateway]:
    """A Ceph with one user, for as long as the block lasts."""
    install()
    with contextlib.ExitStack() as stack:
        try:
            gateway = _start(folder, stack, memory_bytes)
        except RuntimeError:  # such as a daemon that has met one of another cluster: once more, from nothing
            stack.close()
            again = folder / "again"
            again.mkdir()
            gateway = _start(again, stack, memory_bytes)
        yield gateway


def _start(folder: Path, stack: contextlib.ExitStack, memory_bytes: int) -> Gateway:
    port, secret = free_port(), secrets.token_hex(16)
    settings = _write_settings(folder, port, memory_bytes)
    certificate = _make_certificate(folder)

    def start(name: str, *arguments: str) -> Program:
        program = Program(["nice", "-n", "2", name, *settings, *arguments, "-f"], log=folder / f"{name}.out")
        stack.callback(program.stop)
        return program

    monmap = str(folder / "monmap")
    address = f"[v1:127.0.0.1:{_setting(folder, 'port')}]"
    _call("monmaptool", "--create", "--addv", "a", address, "--fsid", _setting(folder, "fsid"), monmap)
    _call("ceph-mon", *settings, "-i", "a", "--mkfs", "--monmap", monmap)
    monitor = start("ceph-mon", "-i", "a")
    identity = str(uuid.uuid4())
    _ceph(settings, "osd", "new", identity)
    _call("ceph-osd", *settings, "-i", "0", "--mkfs", "--osd-uuid", identity)
    disk = start("ceph-osd", "-i", "0")
    disk.wait_until(lambda: b"1 up" in _ceph(settings, "osd", "stat"), seconds=_START_SECONDS)
    gateway = start("radosgw", "-n", "client.rgw")
    gateway.wait_until(lambda: _speaks_tls(port, certificate), seconds=_START_SECONDS)
    user = ("--uid=t", "--display-name=t", "--access-key=AKTEST", f"--secret-key={secret}")
    _call("radosgw-admin", *settings, "-n", "client.rgw", "user", "create", *user)
    return Gateway(
        endpoint=f"https://127.0.0.1:{port}",
        access_key="AKTEST",
        secret_key=secret,
        certificate=certificate,
        programs=(gateway, disk, monitor),
    )


def _call(*command: str) -> bytes:
    try:
        return subprocess.run(command, check=True, capture_output=True, timeout=_START_SECONDS).stdout
    except subprocess.CalledProcessError as error:
        said = (error.stdout + error.stderr).decode(errors="replace")[-2000:]
        raise RuntimeError(f"{command[0]} failed with {error.returncode}:\n{said}") from error


def _ceph(settings: tuple[str, str], *arguments: str) -> bytes:
    ceph = shutil.which("ceph") or "/usr/bin/ceph"
    return _call(_SYSTEM_PYTHON, "-E", ceph, *settings, "--connect-timeout", "60", *arguments)


def _speaks_tls(port: int, certificate: Path) -> bool:
    context = ssl.create_default_context(cafile=str(certificate))
    try:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=2) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1"),
        ):
            return True
    except OSError:
        return False


def _make_certificate(folder: Path) -> Path:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    _call(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3"),
        *("-keyout", str(key), "-out", str(certificate)),
        *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
    )
    (folder / "gateway.pem").write_bytes(certificate.read_bytes() + key.read_bytes())
    return certificate


def _setting(folder: Path, name: str) -> str:
    return (folder / f"{name}.setting").read_text()


def _write_settings(folder: Path, gateway_port: int, memory_bytes: int) -> tuple[str, str]:
    identity, port = str(uuid.uuid4()), free_port()
    (folder / "fsid.setting").write_text(identity)
    (folder / "port.setting").write_text(str(port))
    for name in ("mon", "osd", "rgw", "run", "log"):
        (folder / name).mkdir()
    (folder / "keyring").touch()
    path = folder / "ceph.conf"
    path.write_text(
        f"""[global]
fsid = {identity}
mon_initial_members = a
mon_host = [v1:127.0.0.1:{port}]
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_max_pg_per_osd = 1000
ms_bind_msgr2 = false
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
public_network = 127.0.0.0/8
cluster_network = 127.0.0.0/8
run_dir = {folder}/run
admin_socket = {folder}/run/$name.asok
pid_file = {folder}/run/$name.pid
log_file = {folder}/log/$name.log
log_to_stderr = false
crash_dir = {folder}/log
keyring = {folder}/keyring
[mon]
mon_data = {folder}/mon
mon_data_avail_crit = 1
mon_data_avail_warn = 2
[osd]
osd_data = {folder}/osd
osd_objectstore = memstore
memstore_device_bytes = {memory_bytes}
osd_memory_target = {memory_bytes}
osd_max_object_name_len = 1024
osd_op_num_shards = 4
[client.rgw]
rgw_frontends = beast ssl_endpoint=127.0.0.1:{gateway_port} ssl_certificate={folder}/gateway.pem tcp_nodelay=1
rgw_data = {folder}/rgw
rgw_enable_usage_log = false
rgw_enable_ops_log = false
rgw_gc_obj_min_wait = 5
rgw_gc_processor_period = 5
rgw_gc_processor_max_time = 5
"""
    )
    return "-c", str(path)
