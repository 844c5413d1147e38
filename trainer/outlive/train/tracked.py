"""The user's objects: what of them is saved, whether it fits, and the order in which it is put back.

Modules first, then whatever has ``state_dict`` (schedulers among it), optimizers last: building or loading a
scheduler writes into the optimizer's groups, and what was saved must win.
"""

from typing import Any

import torch
from torch import nn

from outlive.errors import ConfigError, StateError
from outlive.train.module import TrackedModule
from outlive.train.optimizer import TrackedOptimizer, is_plain
from outlive.train.placing import NO_COPIES, Copies, fingerprint
from outlive.train.shards import replicas, unwanted
from outlive.train.trees import revived

HINT = "go back to the code that wrote it, rewind to an older checkpoint that fits, or take a new run name"


class TrackedObject:
    """Anything with ``state_dict`` and ``load_state_dict`` that outlive knows nothing else about."""

    kind = "object"

    def __init__(self, name: str, target: Any) -> None:
        self.name = name
        self.target = target

    def capture(self) -> dict[str, Any]:
        return {"kind": self.kind, "state": self.target.state_dict()}

    def restore(self, saved: dict[str, Any]) -> None:
        state = revived(saved["state"])
        if state or not isinstance(self.target, torch.amp.GradScaler):
            # A scaler that is switched off saves an empty dict, and refuses to load one.
            self.target.load_state_dict(state)


class Tracked:
    """All objects of one run, by name."""

    def __init__(self) -> None:
        self.modules: dict[str, TrackedModule] = {}
        self.objects: dict[str, TrackedObject] = {}
        self.optimizers: dict[str, TrackedOptimizer] = {}
        self.alike = True
        """Whether what several ranks should hold alike was seen to be so."""
        self._copies: tuple[int, Copies] = (-1, NO_COPIES)

    def __contains__(self, name: str) -> bool:
        return name in self.modules or name in self.objects or name in self.optimizers

    def add(self, name: str, target: object) -> None:
        if name in self:
            raise ConfigError(f"{name} is tracked already", hint="give the second object another name")
        why = unwanted(target)
        if why is not None:
            raise ConfigError(f"{name}: {why}")
        if isinstance(target, nn.Module):
            self.modules[name] = TrackedModule(name, target)
        elif isinstance(target, torch.optim.Optimizer) and is_plain(target):
            self.optimizers[name] = TrackedOptimizer(name, target)
        else:
            self.objects[name] = TrackedObject(name, target)

    def capture(self) -> dict[str, Any]:
        """A tree a name."""
        names = self._names()
        stepped = {
            id(parameter) for tracked in self.optimizers.values() for parameter in tracked.parameters()
        }
        copies = self._replicas()
        trees = {name: module.capture(stepped, copies) for name, module in self.modules.items()}
        trees |= {name: tracked.capture() for name, tracked in self.objects.items()}
        trees |= {name: optimizer.capture(names, copies) for name, optimizer in self.optimizers.items()}
        return trees

    def restore(self, saved: dict[str, Any]) -> None:
        """Put back what `saved` holds for any of these objects. ``StateError``: nothing was touched."""
        self._check(saved)
        names = self._names()
        for name, module in self.modules.items():
            if name in saved:
                module.restore(saved[name])
        for name, tracked in self.objects.items():
            if name in saved:
                tracked.restore(saved[name])
        for name, optimizer in self.optimizers.items():
            if name in saved:
                optimizer.restore(saved[name], names)

    def restore_groups(self, saved: dict[str, Any]) -> None:
        """Optimizers' hyperparameters once more, after something that may have overwritten them."""
        for name, optimizer in self.optimizers.items():
            if name in saved:
                optimizer.restore_groups(saved[name])

    def has_gradients(self) -> bool:
        """Whether any parameter has one at the moment."""
        return any(
            parameter.grad is not None
            for module in self.modules.values()
            for parameter in module.module.parameters()
        ) or any(
            parameter.grad is not None
            for optimizer in self.optimizers.values()
            for parameter in optimizer.parameters()
        )

    def forgotten_schedulers(self) -> list[str]:
        """Optimizers that some scheduler drives which nobody handed to outlive."""
        seen = {id(getattr(tracked.target, "optimizer", None)) for tracked in self.objects.values()}
        return [
            name
            for name, tracked in self.optimizers.items()
            if hasattr(tracked.optimizer.step, "_wrapped_by_lr_sched") and id(tracked.optimizer) not in seen
        ]

    def fingerprint(self) -> dict[str, list[int]]:
        """Of what several ranks should hold alike, by these ranks."""
        parameters = [parameter for module in self.modules.values() for _, parameter in module.parameters()]
        return fingerprint(parameters, self._replicas())

    def _replicas(self) -> Copies:
        """What DDP keeps equal; looked for once, and again when there are other modules."""
        count, copies = self._copies
        if count != len(self.modules):
            ranks = replicas(tracked.module for tracked in self.modules.values())
            self._copies = (len(self.modules), Copies(ranks=ranks, alike=self.alike))
        elif copies.alike != self.alike:
            self._copies = (count, Copies(ranks=copies.ranks, alike=self.alike))
        return self._copies[1]

    def _names(self) -> dict[int, str]:
        names: dict[int, str] = {}
        for module in self.modules.values():
            for name, parameter in module.parameters():
                names.setdefault(id(parameter), f"{module.name}.{name}")
        return names

    def _check(self, saved: dict[str, Any]) -> None:
        names = self._names()
        found = []
        everything: dict[str, TrackedModule | TrackedObject | TrackedOptimizer] = {}
        everything |= {**self.modules, **self.objects, **self.optimizers}
        for name, tracked in everything.items():
            if name not in saved:
                continue
            if saved[name]["kind"] != tracked.kind:
                found.append(f"{name}: {saved[name]['kind']} in the checkpoint, {tracked.kind} here")
            elif isinstance(tracked, TrackedModule):
                found += tracked.problems(saved[name])
            elif isinstance(tracked, TrackedOptimizer):
                found += tracked.problems(saved[name], names)
        if found:
            raise StateError("the checkpoint does not fit this code:\n" + "\n".join(found), hint=HINT)


def is_tracked(target: object) -> bool:
    """Whether it is kept by reference, with its own state; anything else is a plain value."""
    if isinstance(target, type):
        return False
    return callable(getattr(target, "state_dict", None)) and callable(
        getattr(target, "load_state_dict", None)
    )
