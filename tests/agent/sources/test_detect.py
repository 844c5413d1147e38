"""Where a machine is: firmware first, one question, and nobody is fooled or kept waiting."""

import io
import threading
import time
from pathlib import Path

import pytest

from outlive_agent.emulate.faults import parse_fault
from outlive_agent.emulate.server import Emulator
from outlive_agent.journal import Journal
from outlive_agent.settings.values import PROVIDERS as NAMES
from outlive_agent.settings.values import ReclaimSettings
from outlive_agent.sources.cloud import Cloud
from outlive_agent.sources.detect import by_environment, by_firmware, detect
from outlive_agent.sources.providers import PROVIDERS


def _firmware(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / name).write_text(text + "\n")
    return path


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"sys_vendor": "Amazon EC2"}, "aws"),
        ({"bios_version": "4.2.amazon"}, "aws"),
        ({"product_uuid": "EC2E1916-9099-7CAF-FD21-012345ABCDEF"}, "aws"),
        ({"product_uuid": "45E12AEC-DCD1-B213-94ED-012345ABCDEF"}, "aws"),
        ({"product_name": "Google Compute Engine"}, "gcp"),
        ({"product_serial": "GoogleCloud-0123"}, "gcp"),
        ({"chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, "azure"),
        ({"sys_vendor": "Microsoft Corporation"}, None),
        ({"product_name": "Alibaba Cloud ECS"}, "alibaba"),
        ({"sys_vendor": "DigitalOcean"}, "digitalocean"),
        ({"sys_vendor": "UpCloud"}, "UpCloud"),
        ({"sys_vendor": "Vultr"}, "Vultr"),
        ({"product_name": "OpenStack Nova"}, "OpenStack"),
        ({"chassis_asset_tag": "OracleCloud.com"}, "Oracle Cloud"),
        ({"sys_vendor": "QEMU", "product_name": "Standard PC"}, None),
        ({}, None),
    ],
)
def test_firmware(tmp_path: Path, files: dict[str, str], name: str | None) -> None:
    """Each provider's firmware is known, and a desktop's is nobody's."""
    assert by_firmware(_firmware(tmp_path, **files), tmp_path / "none") == name


@pytest.mark.parametrize("vendor", ["UpCloud", "Vultr"])
def test_look_alikes(tmp_path: Path, vendor: str) -> None:
    """A metadata server that answers like another provider's does not count against the firmware."""
    with Emulator("aws") as emulator:
        found = detect(endpoint=emulator.url, firmware=_firmware(tmp_path, sys_vendor=vendor))
        assert (found.provider, emulator.requests) == (None, [])


@pytest.mark.parametrize("provider", ["aws", "gcp", "azure", "tencent"])
def test_without_firmware(tmp_path: Path, provider: str) -> None:
    """Where the firmware says nothing the answers decide, and none of the others' questions fits."""
    with Emulator(provider) as emulator:
        found = detect(endpoint=emulator.url, firmware=tmp_path, hypervisor=tmp_path / "none")
        assert (found.provider, found.confirmed) == (provider, True)


def test_digitaloceans_answers_fool_nobody(tmp_path: Path) -> None:
    """A server that has only DigitalOcean's paths, as UpCloud's has, is taken for no provider."""
    with Emulator("digitalocean") as emulator:
        found = detect(endpoint=emulator.url, firmware=tmp_path, hypervisor=tmp_path / "none")
        assert found.provider is None


def test_firmware_counts_although_nobody_answers(tmp_path: Path) -> None:
    """One question that is lost does not make Azure another cloud."""
    firmware = _firmware(tmp_path, chassis_asset_tag="7783-7084-3265-9085-8269-3286-77")
    found = detect(endpoint="http://127.0.0.1:1", firmware=firmware, hypervisor=tmp_path / "none")
    assert (found.provider, found.confirmed) == ("azure", False)


def test_nobody_waits_for_a_silent_network(tmp_path: Path) -> None:
    """All are asked at once: silence costs the one time limit and not one for each provider."""
    with Emulator("aws") as emulator:
        emulator.faults = [parse_fault("hang"), parse_fault("token-hang")]
        began = time.monotonic()
        found = detect(endpoint=emulator.url, firmware=tmp_path, hypervisor=tmp_path / "none", seconds=0.3)
        assert found.provider is None
        assert time.monotonic() - began < 5 * 0.3


def test_environment() -> None:
    """Slurm and Kubernetes show in the environment, on whatever cloud."""
    assert by_environment({"SLURM_JOB_ID": "7", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == [
        "kubernetes",
        "slurm",
    ]
    assert by_environment({}) == []


def test_every_name_is_described() -> None:
    """What can be configured is described, and what is described can be configured."""
    assert set(NAMES) - {"auto", "none"} == set(PROVIDERS)


@pytest.mark.parametrize("provider", [name for name in NAMES if name != "auto"])
def test_configured(provider: str) -> None:
    """A name in the configuration is believed without a question; ``none`` says and asks nothing."""
    stream = io.StringIO()
    settings = ReclaimSettings(provider=provider, endpoint="http://127.0.0.1:1")
    closing = threading.Event()
    closing.set()
    Cloud(settings, {}, journal=Journal(stream)).run(lambda said: None, closing)
    assert len(stream.getvalue().splitlines()) == (0 if provider == "none" else 1)
