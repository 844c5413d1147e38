"""A training under Adam whose state has a given size, saved every so many steps in one of several ways.

Writes one line of JSON to ``--report``: the seconds that each save took from the training thread, those of
the whole loop, and of boundaries at which nothing was due.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed
import torch.distributed.checkpoint as dcp

import outlive

PARAMETERS_OF_STATE = 3
"""Adam keeps two moments for each parameter, so a third of the state is the model's."""
WAYS = ("never", "outlive", "torch.save", "async_save")
WARM_UP = 3
WIDTH = 1024

Saver = Callable[[dict[str, object]], None]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--way", choices=WAYS, required=True)
    arguments.add_argument("--megabytes", type=int, required=True)
    arguments.add_argument("--saves", type=int, required=True)
    arguments.add_argument("--every", type=int, default=10)
    arguments.add_argument("--batch", type=int, default=64)
    arguments.add_argument("--report", type=Path, required=True)
    options = arguments.parse_args()

    torch.manual_seed(0)
    layers = max(1, options.megabytes * 1_000_000 // (4 * PARAMETERS_OF_STATE * WIDTH * WIDTH))
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6, fused=True)
    data = torch.randn(options.batch, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        loss: torch.Tensor = model(data).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    steps = WARM_UP + options.saves * options.every
    with tempfile.TemporaryDirectory(dir=options.report.parent) as folder:
        if options.way == "outlive":
            figures = _outlive(model, optimizer, step, steps=steps, every=options.every)
        else:
            state: dict[str, object] = {"model": model, "optimizer": optimizer}
            saver = _saver(options.way, Path(folder))
            figures = _peer(saver, state, step, steps=steps, every=options.every)
    size = sum(t.nbytes for t in model.parameters()) * PARAMETERS_OF_STATE
    options.report.write_text(json.dumps({"bytes": size, **figures}))


def _due(done: int, every: int) -> bool:
    return done > WARM_UP and (done - WARM_UP) % every == 1


def _outlive(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    step: Callable[[], None],
    *,
    steps: int,
    every: int,
) -> dict[str, object]:
    began = time.perf_counter()
    with outlive.attach(model=model, optimizer=optimizer) as run:
        figures: dict[str, object] = {"attach_seconds": time.perf_counter() - began}
        if run.restored_from is not None:
            return figures
        page = run._saving.link.page
        stalls: list[float] = []
        for done in range(1, steps + 1):
            step()
            if run._saving._arenas.number > len(stalls):
                stalls.append(page.stall_ns / 1e9)
            if _due(done, every):
                run.save()
            run.step()
            if run._saving._arenas.number > len(stalls):
                stalls.append(page.stall_ns / 1e9)
            if done == WARM_UP:
                began = time.perf_counter()
        figures |= {"loop_seconds": time.perf_counter() - began, "stalls": stalls}
        optimizer.zero_grad()
        figures["idle_step"] = statistics.median(_idle_steps(run))
    return figures


def _peer(
    saver: Saver, state: dict[str, object], step: Callable[[], None], *, steps: int, every: int
) -> dict[str, object]:
    stalls = []
    began = 0.0
    for done in range(1, steps + 1):
        step()
        if _due(done, every):
            before = time.perf_counter()
            saver({name: part.state_dict() for name, part in state.items()})  # type: ignore[attr-defined]
            stalls.append(time.perf_counter() - before)
        if done == WARM_UP:
            began = time.perf_counter()
    return {"loop_seconds": time.perf_counter() - began, "stalls": stalls}


def _saver(way: str, folder: Path) -> Saver:
    """Peers save to a local directory; what they do beside the training is waited for by their next save."""
    if way == "torch.save":
        return lambda state: torch.save(state, folder / "state.pt")
    if way == "never":
        return lambda state: None
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    pending: list[object] = []

    def save(state: dict[str, object]) -> None:
        if pending:
            pending.pop().result()  # type: ignore[attr-defined]
        pending.append(dcp.async_save(state, checkpoint_id=folder / "dcp"))  # type: ignore[attr-defined]

    return save


def _idle_steps(run: outlive.Run) -> list[float]:
    """Seconds of boundaries at which nothing is due."""
    seconds = []
    for _ in range(20_000):
        before = time.perf_counter()
        run.step()
        seconds.append(time.perf_counter() - before)
    return seconds


if __name__ == "__main__":
    main()
