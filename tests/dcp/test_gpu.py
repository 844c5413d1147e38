"""Tensors on a device are saved and loaded as those on the host are."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict_saver import async_save, save

import outlive.dcp
from dcp.states import bits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning"),
]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_state_on_a_device_comes_back(tmp_path: Path, asynchronous: bool) -> None:
    """What a stream still computes when the save begins is saved, and is loaded to the device again."""
    state = {
        "w": torch.zeros(4096, 4096, device="cuda"),
        "b": torch.ones(7, device="cuda").to(torch.bfloat16),
    }
    for _ in range(50):
        state["w"] = state["w"] @ state["w"] + 1.5
    wanted = {name: tensor.clone() for name, tensor in state.items()}
    if asynchronous:
        pending: Any = async_save(state, storage_writer=outlive.dcp.Writer(str(tmp_path), run="gpt"))
        pending.result()
    else:
        save(state, storage_writer=outlive.dcp.Writer(str(tmp_path), run="gpt"))
    into = {name: torch.full_like(tensor, 0) for name, tensor in state.items()}
    assert outlive.dcp.load(into, outlive.dcp.Reader(str(tmp_path), run="gpt")) is not None
    assert all(into[name].is_cuda and bits(into[name].cpu()) == bits(wanted[name].cpu()) for name in wanted)
