"""An optimizer's state by parameter name, so that a reordered parameter never gets another one's moments.

``Optimizer.load_state_dict`` goes by position, and casts float32 moments of bfloat16 parameters to bfloat16.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from outlive.train.parts import Part
from outlive.train.placing import NO_COPIES, Copies, made, named
from outlive.train.shards import Spread, is_sharded, local, mark
from outlive.train.tensors import Named, Stored, bits, dtype_name, revive
from outlive.train.trees import revived


def is_plain(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its whole state is ``state`` and ``param_groups``, with no saving and loading of its own."""
    kind, plain = type(optimizer), torch.optim.Optimizer
    return kind.state_dict is plain.state_dict and kind.load_state_dict is plain.load_state_dict


class TrackedOptimizer:
    """One optimizer of the user's. `names` gives the tracked modules' names of parameters, by id."""

    kind = "optimizer"

    def __init__(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        self.name = name
        self.optimizer = optimizer

    def capture(self, names: Mapping[int, str], copies: Copies = NO_COPIES) -> dict[str, Any]:
        """The tree to save. `copies` is what other ranks hold alike."""
        keys = self._keys(names)
        groups = [{**group, "params": _names(group["params"], keys)} for group in self.optimizer.param_groups]
        return {
            "kind": self.kind,
            "class": type(self.optimizer).__qualname__,
            "param_groups": groups,
            "parameters": self._all_looks(keys),
            "state": self._state(keys, copies),
            "rest": {
                key: state for key, state in self.optimizer.state.items() if not isinstance(key, Tensor)
            },
            "called": bool(getattr(self.optimizer, "_opt_called", False)),
        }

    def _all_looks(self, keys: Mapping[int, str]) -> Part:
        parameters = list(self.parameters())
        names = [keys[id(parameter)] for parameter in parameters]
        looks = [(parameter.shape, parameter.dtype, parameter.device) for parameter in parameters]
        return Part(
            key=(names, looks),
            tensors=(),
            build=lambda: {
                name: [list(shape), dtype_name(dtype), device.type]
                for name, (shape, dtype, device) in zip(names, looks, strict=True)
            },
        )

    def _state(self, keys: Mapping[int, str], copies: Copies) -> object:
        stateful = [(parameter, keys[id(parameter)], state) for parameter, state in self._stateful()]

        def tree() -> dict[str, Any]:
            spread = Spread(alike=copies.alike)
            found: dict[str, Any] = {}
            for parameter, key, state in stateful:
                ranks = copies.ranks.get(id(parameter), ())
                found[key] = {
                    word: self._named(
                        value, f"{key}/{word}", spread, ranks if _alike(value, parameter) else ()
                    )
                    for word, value in state.items()
                }
            return found

        tensors = [value for _, _, state in stateful for value in state.values()]
        marks: list[object] = []
        if not set(map(type, tensors)) <= {Tensor}:  # at every save, and there may be hundreds of thousands
            if not all(type(value) is Tensor or is_sharded(value) for value in tensors):
                return tree()
            marks = [mark(value) for value in tensors]
            tensors = [local(value) for value in tensors]
        words = [(key, tuple(state)) for _, key, state in stateful]
        return Part(key=(words, marks, len(copies.ranks), copies.alike), tensors=tensors, build=tree)

    def problems(self, saved: dict[str, Any], names: Mapping[int, str]) -> list[str]:
        """Everything that keeps the saved state from fitting, before anything is touched."""
        kind = type(self.optimizer).__qualname__
        if saved["class"] != kind:
            return [f"{self.name}: {saved['class']} in the checkpoint, {kind} here"]
        live, stored = self.optimizer.param_groups, saved["param_groups"]
        if len(live) != len(stored):
            return [f"{self.name}.param_groups: {len(stored)} in the checkpoint, {len(live)} here"]
        keys = self._keys(names)
        found = []
        for i, (group, was) in enumerate(zip(live, stored, strict=True)):
            here = {keys[id(parameter)] for parameter in group["params"]}
            where = f"{self.name}.param_groups[{i}]"
            found += [
                f"{where}: {key} in the checkpoint, but not here" for key in was["params"] if key not in here
            ]
            found += [
                f"{where}: {key} here, but not in the checkpoint" for key in sorted(here - set(was["params"]))
            ]
        for parameter in self.parameters():
            key = keys[id(parameter)]
            was_like = saved["parameters"].get(key, _looks(parameter))[:2]
            if was_like != _looks(parameter):
                found.append(f"{self.name}: {key} is {was_like} in the checkpoint, {_looks(parameter)} here")
        return found

    def restore(self, saved: dict[str, Any], names: Mapping[int, str]) -> None:
        """Put state and hyperparameters back, exactly as they were saved."""
        keys = self._keys(names)
        self.optimizer.state.clear()
        by_key = {keys[id(parameter)]: parameter for parameter in self.parameters()}
        group_of = {key: group for group in saved["param_groups"] for key in group["params"]}
        for key, state in saved["state"].items():
            parameter, group = by_key[key], group_of[key]
            was_on = saved["parameters"][key][2]
            self.optimizer.state[parameter] = {
                word: _place(word, value, parameter=parameter, group=group, was_on=was_on)
                for word, value in state.items()
            }
        self.optimizer.state.update(revived(saved["rest"]))
        if saved["called"]:
            # Else the first scheduler.step() of this life warns that no optimizer step came before it.
            self.optimizer._opt_called = True  # type: ignore[attr-defined]
        self.restore_groups(saved)

    def restore_groups(self, saved: dict[str, Any]) -> None:
        """The hyperparameters alone. Building a scheduler overwrites them, so this may be due again."""
        for group, was in zip(self.optimizer.param_groups, saved["param_groups"], strict=True):
            for word, value in was.items():
                if word == "params":
                    continue
                live = group.get(word)
                if isinstance(live, Tensor) and isinstance(value, Stored) and live.dtype == value.dtype:
                    bits(live).copy_(bits(value.view))  # a compiled step holds on to this very tensor
                else:
                    group[word] = revived(value)

    def _named(self, value: Any, where: str, spread: Spread, ranks: tuple[int, ...]) -> Any:
        path = f"{self.name}/state/{where}"
        if type(value) is Tensor and not ranks:
            return Named(tensor=value, path=path, steady=True)
        if type(value) is not Tensor and not is_sharded(value):
            return value
        return named(value, path, spread=spread, copies=Copies(ranks={id(value): ranks}), steady=True)

    def parameters(self) -> Iterator[nn.Parameter]:
        """All that it steps."""
        for group in self.optimizer.param_groups:
            yield from group["params"]

    def _keys(self, names: Mapping[int, str]) -> dict[int, str]:
        """A key for each parameter: its name in a tracked module, or else its place in the groups."""
        return {
            id(parameter): names.get(id(parameter), f"[{i}][{j}]")
            for i, group in enumerate(self.optimizer.param_groups)
            for j, parameter in enumerate(group["params"])
        }

    def _stateful(self) -> Iterator[tuple[nn.Parameter, dict[str, Any]]]:
        for parameter in self.parameters():
            if parameter in self.optimizer.state:
                yield parameter, self.optimizer.state[parameter]


def _names(parameters: Iterable[nn.Parameter], keys: Mapping[int, str]) -> Part:
    names = [keys[id(parameter)] for parameter in parameters]
    return Part(key=names, tensors=(), build=lambda: names)


def _looks(parameter: Tensor) -> list[Any]:
    return [list(parameter.shape), dtype_name(parameter.dtype)]


def _place(word: str, value: Any, *, parameter: Tensor, group: Mapping[str, Any], was_on: str) -> Any:
    """A state value on the device where the optimizer would have made it."""
    if not isinstance(value, Stored):
        return revived(value)
    if word == "step" and not (group.get("capturable") or group.get("fused")):
        return revive(value, "cpu")
    if is_sharded(parameter) or value.box is not None:
        # What has the parameter's shape is sharded as the parameter is; all else every rank has whole.
        return made(value, parameter) if value.shape == tuple(parameter.shape) else revive(value, "cpu")
    followed = torch.device(value.device).type == was_on
    return revive(value, parameter.device if followed else None)


def _alike(value: Any, parameter: Tensor) -> bool:
    """Whether ranks that hold the same parameter hold the same of this, too."""
    return isinstance(value, Tensor) and value.shape == parameter.shape and value.dim() > 0
