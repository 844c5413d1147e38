"""What an exact resume depends on and no checkpoint can carry: versions, devices, kernel settings."""

import os
import platform
from collections.abc import Mapping

import numpy
import torch

import outlive

_WORDS = {
    "torch": "torch {0} instead of {1}",
    "numpy": "numpy {0} instead of {1}",
    "device": "{0} instead of {1}",
    "cuda": "CUDA {0} instead of {1}",
    "cudnn": "cuDNN {0} instead of {1}",
    "threads": "{0} CPU threads instead of {1}",
    "deterministic": "deterministic algorithms {0} instead of {1}",
    "cudnn_benchmark": "cuDNN benchmark {0} instead of {1}",
    "matmul_precision": "float32 matmul precision {0} instead of {1}",
    "cublas_workspace": "CUBLAS_WORKSPACE_CONFIG {0} instead of {1}",
}


def describe() -> dict[str, str]:
    """Short texts for the manifest."""
    facts = {
        "outlive": outlive.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "device": _device(),
        "threads": str(torch.get_num_threads()),
        "deterministic": _deterministic(),
        "matmul_precision": _matmul_precision(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        facts |= {
            "cuda": str(torch.version.cuda or torch.version.hip),
            "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
            "cudnn_benchmark": _switch(torch.backends.cudnn.benchmark),
            "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG", "unset"),
        }
    return facts


def differences(saved: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """What of it is other than when the checkpoint was saved, in words."""
    return [
        words.format(here[key], saved[key])
        for key, words in _WORDS.items()
        if key in saved and key in here and saved[key] != here[key]
    ]


def _device() -> str:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))
    if torch.backends.mps.is_available():
        return "mps"
    return f"CPU ({torch.backends.cpu.get_cpu_capability()})"


def _deterministic() -> str:
    if not torch.are_deterministic_algorithms_enabled():
        return "off"
    return "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else "on"


def _matmul_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch refuses to answer once the newer per-backend settings were used
        return str(torch.backends.cuda.matmul.fp32_precision)


def _switch(on: bool) -> str:
    return "on" if on else "off"
