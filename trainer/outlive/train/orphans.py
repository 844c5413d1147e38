"""Tensors that a tracked optimizer steps and that nothing keeps: usually those of a model that was forgotten.

Its moments would be restored onto weights that begin anew, and every checkpoint on the way would look whole.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy
from torch import Tensor

from outlive.errors import StateError
from outlive.train.tracked import Tracked

HINT = "hand their model to attach(), or to run.track() before the first run.step()"
_MOST = 4


def check_orphans(tracked: Tracked, values: Mapping[str, Any]) -> None:
    """``StateError`` names every optimizer with such tensors. `values` are those on ``run.state``."""
    known = {id(parameter) for module in tracked.modules.values() for _, parameter in module.parameters()}
    found = {}
    for name, optimizer in tracked.optimizers.items():
        orphans = [each for each in optimizer.parameters() if each.requires_grad and id(each) not in known]
        if orphans:
            found[name] = orphans
    if not found:
        return
    shapes = set(_shapes(list(_elsewhere(tracked, values)), set()))
    lines = []
    for name, orphans in found.items():
        lost = [list(each.shape) for each in orphans if tuple(each.shape) not in shapes]
        if lost:
            what = "a tensor" if len(lost) == 1 else f"{len(lost)} tensors"
            lines.append(
                f"{name} steps {what} that nothing keeps, of shape {', '.join(map(str, lost[:_MOST]))}"
            )
    if lines:
        raise StateError("\n".join(lines), hint=HINT)


def _elsewhere(tracked: Tracked, values: Mapping[str, Any]) -> Iterator[Any]:
    """What else is saved and may hold such a tensor, or a copy of it: there only its shape can be known."""
    yield dict(values)
    for each in tracked.objects.values():
        yield each.capture()["state"]
    for module in tracked.modules.values():
        captured = module.capture(())
        yield captured["extra"]
        yield captured["hooked"]


def _shapes(tree: Any, seen: set[int]) -> Iterator[tuple[int, ...]]:
    if isinstance(tree, Tensor | numpy.ndarray):
        yield tuple(tree.shape)
        return
    if not isinstance(tree, Mapping | list | tuple) or id(tree) in seen:
        return
    seen.add(id(tree))
    for value in tree.values() if isinstance(tree, Mapping) else tree:
        yield from _shapes(value, seen)
