"""A module's state under names that no wrapper changes, and its way back in place.

Walked from the module itself rather than taken from ``state_dict()``, which leaves out non-persistent
buffers, says nothing of ``requires_grad`` and of train or eval, and carries the prefixes of ``torch.compile``
and DDP.
"""

from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from outlive.train.parts import Part
from outlive.train.placing import NO_COPIES, PARTIAL, Copies, named, put
from outlive.train.ranks import joined
from outlive.train.shards import Spread, is_sharded, local, mark, partial, settle
from outlive.train.tensors import FROZEN, Named, Stored, bits, dtype_name, obstacle, place, revive
from outlive.train.trees import revived

_WRAPPERS = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
}


class TrackedModule:
    """One module of the user's."""

    kind = "module"

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name = name
        self.module = module

    def parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Every parameter under every name it has; tied ones come more than once."""
        for clean, _, module in _walk(self.module):
            for key, parameter in module._parameters.items():
                if parameter is not None:
                    yield clean + key, parameter

    def capture(self, stepped: Container[int], copies: Copies = NO_COPIES) -> dict[str, Any]:
        """The tree to save. `stepped` are the ids of all parameters that tracked optimizers change, `copies`
        what other ranks hold alike.
        """
        if joined():
            settle(self.module)
        live = self._tensors()
        sharded = joined() and any(map(is_sharded, live.values()))
        frozen = {name for name, parameter in self.parameters() if not parameter.requires_grad}
        steady = [id(tensor) in stepped for tensor in live.values()]
        tensors = {name: local(tensor) for name, tensor in live.items()} if sharded else live
        marks = [mark(tensor) for tensor in live.values()] if sharded else ()
        return {
            "kind": self.kind,
            "tensors": Part(
                key=(list(tensors), frozen, steady, marks, len(copies.ranks), copies.alike),
                tensors=list(tensors.values()),
                build=lambda: self._named(live, frozen, steady, copies),
            ),
            "fleeting": sorted(self._fleeting()),
            "frozen": sorted(frozen),
            "eval": sorted({clean for clean, _, module in _walk(self.module) if not module.training}),
            "extra": {clean: module.get_extra_state() for clean, module in self._with_extra_state()},
            "hooked": self._hooked(),
        }

    def _named(
        self, tensors: Mapping[str, Tensor], frozen: Container[str], steady: Iterable[bool], copies: Copies
    ) -> dict[str, Named]:
        spread = Spread(alike=copies.alike)
        return {
            name: named(
                tensor,
                f"{self.name}/{name}",
                spread=spread,
                copies=copies,
                group=FROZEN if name in frozen else 1,
                steady=aside,
            )
            for (name, tensor), aside in zip(tensors.items(), steady, strict=True)
        }

    def problems(self, saved: dict[str, Any]) -> list[str]:
        """Everything that keeps the saved state from fitting, before anything is touched."""
        stored: dict[str, Stored] = saved["tensors"]
        live = self._tensors()
        fleeting = self._fleeting() | set(saved["fleeting"])
        found = []
        for name in [*live, *(name for name in stored if name not in live)]:
            if name in fleeting or (name in live and name not in stored and _stands_in(name, live, saved)):
                continue
            where = f"{self.name}.{name}"
            if name not in stored:
                found.append(f"{where}: in the model, but not in the checkpoint")
            elif name not in live:
                found.append(f"{where}: in the checkpoint, but not in the model")
            else:
                found += misfit(where, stored[name], live[name])
        if found or saved.get("imported"):
            return found  # other formats write what shares memory once, or twice
        return self._ties(stored, {name: live[name] for name in live if name not in fleeting})

    def restore(self, saved: dict[str, Any]) -> None:
        """Put the state back in place, so that nobody's reference to a parameter goes stale."""
        stored: dict[str, Stored] = saved["tensors"]
        for name, parameter in self.parameters():
            if name in stored:
                put(stored[name], parameter)
            if saved["frozen"] is not None:
                parameter.requires_grad_(name not in saved["frozen"])
        for name, module, key in self._buffers():
            if name in stored:
                _refill(module, key, stored[name])
        for clean, _, module in _walk(self.module):
            if saved["eval"] is not None:
                module.training = clean not in saved["eval"]
        for clean, module in self._with_extra_state():
            if clean in saved["extra"]:
                module.set_extra_state(revived(saved["extra"][clean]))
        if saved["hooked"]:
            real = {clean: real for clean, real, _ in _walk(self.module)}
            hooked = {_rename(key, real): revived(value) for key, value in saved["hooked"].items()}
            self.module.load_state_dict(hooked, strict=False)

    def _tensors(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = dict(self.parameters())
        tensors.update((name, module._buffers[key]) for name, module, key in self._buffers())  # type: ignore[misc]
        return tensors

    def _buffers(self) -> Iterator[tuple[str, nn.Module, str]]:
        for clean, _, module in _walk(self.module):
            for key, buffer in module._buffers.items():
                if buffer is not None:
                    yield clean + key, module, key

    def _fleeting(self) -> set[str]:
        """Non-persistent buffers: saved too, but free to come, to go and to change shape."""
        return {name for name, module, key in self._buffers() if key in module._non_persistent_buffers_set}

    def _with_extra_state(self) -> Iterator[tuple[str, nn.Module]]:
        for clean, _, module in _walk(self.module):
            if type(module).get_extra_state is not nn.Module.get_extra_state:
                yield clean, module

    def _hooked(self) -> dict[str, Any]:
        """What the module's own hooks put into its ``state_dict()`` beyond what is known here."""
        if not any(_adds_to_state(module) for _, _, module in _walk(self.module)):
            return {}
        known: set[str] = set()
        for _, real, module in _walk(self.module):
            known |= {real + key for key in [*module._parameters, *module._buffers, "_extra_state"]}
        clean = {real: clean for clean, real, _ in _walk(self.module)}
        everything = self.module.state_dict()
        return {_rename(key, clean): value for key, value in everything.items() if key not in known}

    def _ties(self, stored: Mapping[str, Stored], live: Mapping[str, Tensor]) -> list[str]:
        """Two names that were one tensor must be one again, and no others may be."""
        names = [name for name in live if local(live[name]).numel() and stored[name].place is not None]
        now = _first_of_each({name: place(local(live[name])) for name in names})
        then = _first_of_each({name: stored[name].place for name in names})
        found = []
        for name in names:
            if now[name] != then[name]:
                other = now[name] if now[name] != name else then[name]
                change = "shares" if now[name] != name else "no longer shares"
                found.append(f"{self.name}.{name}: {change} the memory of {other}, unlike when it was saved")
        return found


def _stands_in(name: str, live: Mapping[str, Tensor], saved: Mapping[str, Any]) -> bool:
    """Whether a missing tensor's memory is filled under another name: safetensors keeps one of two."""
    return bool(saved.get("imported")) and any(
        place(live[name]) == place(live[other]) for other in saved["tensors"] if other in live
    )


def misfit(where: str, stored: Stored, live: Tensor) -> list[str]:
    """Why the stored tensor cannot be put into the live one."""
    why = obstacle(local(live)) if not partial(live) else PARTIAL
    if why is not None:
        return [f"{where}: {why}"]
    if stored.shape != tuple(live.shape):
        return [f"{where}: shape {list(stored.shape)} in the checkpoint, {list(live.shape)} here"]
    if stored.dtype != live.dtype:
        return [f"{where}: {dtype_name(stored.dtype)} in the checkpoint, {dtype_name(live.dtype)} here"]
    return []


def _walk(module: nn.Module, clean: str = "", real: str = "") -> Iterator[tuple[str, str, nn.Module]]:
    """Every module inside: its prefix without wrappers, its prefix as torch has it, itself."""
    yield clean, real, module
    transparent = {_WRAPPERS[kind.__name__] for kind in type(module).__mro__ if kind.__name__ in _WRAPPERS}
    for key, child in module._modules.items():
        if child is not None:
            inner = clean if key in transparent else f"{clean}{key}."
            yield from _walk(child, inner, f"{real}{key}.")


def _adds_to_state(module: nn.Module) -> bool:
    """Whether its ``state_dict()`` may hold more than its parameters and buffers."""
    kind = type(module)
    pre_hooks = module._state_dict_pre_hooks
    if any(base.__name__ == "FSDPModule" for base in kind.__mro__):
        pre_hooks = {}  # its own, which adds nothing
    return bool(
        kind.state_dict is not nn.Module.state_dict
        or kind._save_to_state_dict is not nn.Module._save_to_state_dict
        or module._state_dict_hooks
        or pre_hooks
    )


def _refill(module: nn.Module, key: str, stored: Stored) -> None:
    live = module._buffers[key]
    if live is None:
        return
    overlaps = live.numel() > 1 and 0 in live.stride()  # expanded: one memory cell for many elements
    if overlaps or live.dtype != stored.dtype or tuple(live.shape) != stored.shape:
        module._buffers[key] = revive(stored, live.device)
    else:
        bits(live).copy_(bits(stored.view))


def _rename(key: str, prefixes: Mapping[str, str]) -> str:
    """Exchange the longest known module prefix of a key."""
    longest = max((prefix for prefix in prefixes if key.startswith(prefix)), key=len)
    return prefixes[longest] + key[len(longest) :]


def _first_of_each(places: Mapping[str, Hashable]) -> dict[str, str]:
    """For each name, the first name of the same place."""
    first: dict[Hashable, str] = {}
    return {name: first.setdefault(where, name) for name, where in places.items()}
