"""What is told of a loop's own variables, and what is not worth a word."""

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch

import outlive
from outlive.train.unkept import unkept, unkept_line
from train.agent_double import AgentDouble
from train.steps import descend, small

found: list[list[str]] = []


def boundary(**kept: Any) -> None:
    """Stands for the second ``run.step`` of a loop."""
    found.append(unkept(sys._getframe(1), kept=kept))


def best_of_each_epoch() -> None:
    best, patience, history = 9.0, 0, []
    for epoch in range(2):
        loss = 0.0
        for batch in range(2):
            loss = float(batch)
            boundary()
        if loss < best:
            best, patience = loss, 0
        else:
            patience += 1
        history.append(epoch)


def running_means() -> None:
    total, meters, count = torch.zeros(()), defaultdict(list), {}
    for _ in range(2):
        total = total + 1
        meters["loss"].append(1.0)
        count["x"] = 1
        boundary()


def counters_of_a_while_loop() -> None:
    step = 0
    while True:
        step += 1
        boundary()
        if step > 1:
            break


def in_a_function(step: Callable[[], None]) -> None:
    seen = 0
    for _ in range(2):
        step()
        seen = seen + 1


def step_of_its_own() -> None:
    boundary()


TOLD: list[tuple[Callable[[], None], set[str]]] = [
    (best_of_each_epoch, {"best", "patience", "history"}),
    (running_means, {"total", "meters", "count"}),
    (counters_of_a_while_loop, {"step"}),
    (lambda: in_a_function(step_of_its_own), {"seen"}),
]


@pytest.mark.parametrize(("loop", "names"), TOLD)
def test_carried_values_are_told(loop: Callable[[], None], names: set[str]) -> None:
    """Numbers that a turn takes over from the one before, and containers that grow, wherever the loop is."""
    found.clear()
    loop()
    assert set(found[1]) == names


def ordinary() -> None:
    model, loader, rate = object(), iter([1, 2, 3]), 0.1
    began = time.time()
    for number, (x, y) in enumerate([(1, 2), (3, 4)]):
        batch = next(loader)
        loss = batch * x * y * rate
        squares = [value * value for value in range(3)]
        by_name = {"x": x}
        by_name["y"] = y
        took = time.time() - began
        began = time.time()
        if number < 0 or took < 0 or not squares or model is None:
            continue
        try:
            scaled = loss / 2
        except ZeroDivisionError:
            scaled = 0.0
        _last = scaled
        boundary()


def all_kept() -> None:
    best, history, mirrored = 0.5, [1], 2.5
    for _ in range(2):
        best = max(best, 0.75)
        history.append(2)
        mirrored = mirrored + 1
        boundary(best=best, history=history, copy_of_it=mirrored)


def not_in_a_loop() -> None:
    best = 1.0
    boundary()
    best = best + 1
    boundary()


@pytest.mark.parametrize("loop", [ordinary, all_kept, not_in_a_loop])
def test_the_rest_is_not_worth_a_word(loop: Callable[[], None]) -> None:
    """Batches, losses, loop variables, clocks, comprehensions, and what is on run.state already."""
    found.clear()
    loop()
    assert found[1] == []


def test_said_once(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """The run tells it at its second boundary, and never again."""
    objects = small()
    best = 9.0
    with outlive.attach(lowest=9.0, **objects) as run:
        for _ in run.batches(range(4)):
            loss = descend(objects)
            best = min(best, float(loss.detach()))
            run.step()
    said = capsys.readouterr().err
    assert said.count("best changes in your loop and is not kept") == 1


def test_words() -> None:
    """One name or several, and not more than fit a line."""
    assert unkept_line(["a", "b"]).startswith("a and b change in your loop and are not kept: they begin")
    assert "a, b, c, d, e, f and others change" in unkept_line(list("abcdefgh"))
