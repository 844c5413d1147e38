"""A state of a given size under Adam, saved again and again; writes what each save cost the training thread.

One line of JSON to ``--report``: seconds of every ``run.step()`` that took a snapshot, of those that did not,
and of ``torch.save`` of the same state to the same disk, taken in turn.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch

import outlive

PARAMETERS_OF_STATE = 3
"""Adam keeps two moments for each parameter, so a third of the state is the model's."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--megabytes", type=int, required=True)
    arguments.add_argument("--saves", type=int, required=True)
    arguments.add_argument("--report", type=Path, required=True)
    options = arguments.parse_args()

    torch.manual_seed(0)
    width = 1024
    layers = max(1, options.megabytes * 1_000_000 // (4 * PARAMETERS_OF_STATE * width * width))
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(layers)])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)
    began = time.perf_counter()
    with outlive.attach(model=model, optimizer=optimizer) as run:
        attached = time.perf_counter() - began
        resumed = run.restored_from is not None
        stalls: list[float] = []
        peer: list[float] = []
        while not resumed and run.steps < options.saves:
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, 1e-3)
            optimizer.step()
            optimizer.zero_grad()
            run.save()
            before = time.perf_counter()
            run.step()
            stalls.append(time.perf_counter() - before)
            before = time.perf_counter()
            torch.save(
                {"m": model.state_dict(), "o": optimizer.state_dict()}, options.report.with_suffix(".pt")
            )
            peer.append(time.perf_counter() - before)
        idle = [] if resumed else _idle_steps(run)
    size = sum(t.nbytes for t in model.parameters()) * PARAMETERS_OF_STATE
    figures: dict[str, object] = {"bytes": size, "attach_seconds": attached, "resumed": resumed}
    if not resumed:
        figures |= {"stalls": stalls, "torch_save": peer, "idle_step": statistics.median(idle)}
    options.report.write_text(json.dumps(figures))
    options.report.with_suffix(".pt").unlink(missing_ok=True)


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
