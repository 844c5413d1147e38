"""Finds out where this machine is: what the firmware says, then one question to that provider and no other.

At most two seconds, all at once where there is nothing to go by, and nobody waits for it. 169.254.169.254
answers on nearly every cloud, and UpCloud's and Vultr's paths look like DigitalOcean's: so no answer counts
against what the firmware says.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from outlive_agent.sources import aws, azure, gcp, termination_time
from outlive_agent.sources.metadata_http import Answer, Metadata, NoAnswer
from outlive_agent.sources.session_token import PATH as TOKEN_PATH

SECONDS: Final = 2.0
FIRMWARE: Final = Path("/sys/class/dmi/id")
HYPERVISOR: Final = Path("/sys/hypervisor/uuid")
_AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
_SILENT: Final = {
    "upcloud": "UpCloud",
    "vultr": "Vultr",
    "hetzner": "Hetzner",
    "scaleway": "Scaleway",
    "linode": "Linode",
    "akamai": "Akamai",
    "exoscale": "Exoscale",
    "huaweicloud": "Huawei Cloud",
    "oraclecloud.com": "Oracle Cloud",
    "openstack": "OpenStack",
}
"""Known by their firmware, with nothing to poll in the guest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """``provider`` is a name from ``PROVIDERS`` or None; ``how`` says for the journal where that is from."""

    provider: str | None
    how: str
    confirmed: bool = False


def detect(
    *,
    endpoint: str | None = None,
    firmware: Path = FIRMWARE,
    hypervisor: Path = HYPERVISOR,
    seconds: float = SECONDS,
) -> Surroundings:
    """Where this machine is. Takes ``seconds`` at most."""
    named = by_firmware(firmware, hypervisor)
    if named in _SILENT.values():
        return Surroundings(provider=None, how=f"{named}, by its firmware")
    if named == "digitalocean":
        return Surroundings(provider=named, how="by its firmware", confirmed=True)
    if named is not None:
        answered = named in _ask([named], endpoint=endpoint, seconds=seconds)
        return Surroundings(provider=named, how="by its firmware", confirmed=answered)
    for name in _ask(list(_QUESTIONS), endpoint=endpoint, seconds=seconds):
        return Surroundings(provider=name, how="its metadata server answers", confirmed=True)
    return Surroundings(provider=None, how="no provider answers")


def answers(name: str, *, endpoint: str | None = None, seconds: float = SECONDS) -> bool | None:
    """Whether this provider's metadata server answers here; None for one that is asked no question."""
    return bool(_ask([name], endpoint=endpoint, seconds=seconds)) if name in _QUESTIONS else None


def by_environment(environ: Mapping[str, str]) -> list[str]:
    """What the job or the container runs in; it may be so on any cloud."""
    marks = {
        "kubernetes": "KUBERNETES_SERVICE_HOST",
        "slurm": "SLURM_JOB_ID",
        "runpod": "RUNPOD_POD_ID",
        "vast": "VAST_CONTAINERLABEL",
    }
    return [name for name, variable in marks.items() if environ.get(variable)]


def by_firmware(firmware: Path = FIRMWARE, hypervisor: Path = HYPERVISOR) -> str | None:
    """The name of the provider, or of one that has no key in the guest, that the firmware gives."""
    vendor, product, tag, bios, serial, uuid = (
        _read(firmware / name).lower()
        for name in (
            "sys_vendor",
            "product_name",
            "chassis_asset_tag",
            "bios_version",
            "product_serial",
            "product_uuid",
        )
    )
    if (
        vendor == "amazon ec2"
        or bios.endswith(".amazon")
        or _is_ec2(uuid)
        or _is_ec2(_read(hypervisor).lower())
    ):
        return "aws"
    if product == "google compute engine" or serial.startswith("googlecloud-"):
        return "gcp"
    if tag == _AZURE_TAG:
        return "azure"
    if product == "alibaba cloud ecs":
        return "alibaba"
    if vendor == "digitalocean":
        return "digitalocean"
    words = (vendor, product.partition(" ")[0], tag)
    return next((title for mark, title in _SILENT.items() if any(w.startswith(mark) for w in words)), None)


def _is_ec2(uuid: str) -> bool:
    """Plain, or with the first group's bytes swapped."""
    return uuid.startswith("ec2") or (uuid[4:5] == "2" and uuid[6:9] == "ec-")


def _is_aws(server: Metadata, seconds: float) -> bool:
    answer = server.ask("PUT", TOKEN_PATH, headers={aws.TOKEN["ask"]: "60"}, body=b"", seconds=seconds)
    return answer.status == 200 and aws.TOKEN["ask"].lower() in answer.headers


def _is_gcp(server: Metadata, seconds: float) -> bool:
    answer = server.get(f"{gcp.BASE}/preempted", headers=gcp.HEADERS, seconds=seconds)
    return answer.headers.get("metadata-flavor") == "Google"


def _is_azure(server: Metadata, seconds: float) -> bool:
    answer = server.get(azure.NAME, headers=azure.HEADERS, seconds=seconds)
    return _plain(answer)


def _is_alibaba(server: Metadata, seconds: float) -> bool:
    header = {"X-aliyun-ecs-metadata-token-ttl-seconds": "60"}
    return _plain(server.ask("PUT", TOKEN_PATH, headers=header, body=b"", seconds=seconds))


def _is_tencent(server: Metadata, seconds: float) -> bool:
    answer = server.get("/latest/meta-data/instance-id", seconds=seconds)
    return _plain(answer) and answer.text.startswith("ins-")


def _plain(answer: Answer) -> bool:
    return answer.status == 200 and bool(answer.text) and "<" not in answer.text


_QUESTIONS: Final[Mapping[str, tuple[str, Callable[[Metadata, float], bool]]]] = {
    "aws": (aws.URL, _is_aws),
    "gcp": (gcp.URL, _is_gcp),
    "azure": (azure.URL, _is_azure),
    "alibaba": (termination_time.ALIBABA_URL, _is_alibaba),
    "tencent": (termination_time.TENCENT_URL, _is_tencent),
}


def _ask(names: list[str], *, endpoint: str | None, seconds: float) -> list[str]:
    """Which of them answers first, if any, asked all at once."""
    answers: SimpleQueue[tuple[str, bool]] = SimpleQueue()

    def ask(name: str) -> None:
        url, question = _QUESTIONS[name]
        server = Metadata(endpoint or url)
        try:
            answers.put((name, question(server, seconds)))
        except NoAnswer:
            answers.put((name, False))
        finally:
            server.close()

    for name in names:
        # Daemon threads: looking up a name can hang for longer than anyone will wait.
        threading.Thread(target=ask, args=(name,), name=f"detect-{name}", daemon=True).start()
    deadline = time.monotonic() + seconds
    for _ in names:
        try:
            name, answered = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return []
        if answered:
            return [name]
    return []


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return os.fsdecode(file.read(256)).strip("\0 \t\r\n")
    except OSError:  # some are for root alone, and there are none in many containers
        return ""
