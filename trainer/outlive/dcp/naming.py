"""Which tensors of a foreign state are the model's, and what they are called without anybody's wrappers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor

from outlive.errors import ConfigError

_USUAL: Final = ("model", "state_dict", "model_state_dict", "module", "net")
"""Where trainings keep the model's state, if it is not all there is."""
_WRAPPERS: Final = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The tensors, under clean names; under which key they stood, and what else stood there."""

    tensors: Mapping[str, Tensor]
    key: str
    left: tuple[str, ...]
    """Names of values that are no tensors, and of what stands beside the key."""


def chosen(state: Mapping[str, Any], key: str | None) -> Chosen:
    """The model's tensors. Without a `key` all that there is, if that is tensors only, or what is usual."""
    flat = _flat(state)
    groups = sorted({name.split(".", 1)[0] for name in flat})
    if key is None:
        usual = [word for word in _USUAL if any(name.startswith(f"{word}.") for name in flat)]
        nested = any(isinstance(value, Mapping) for value in state.values())
        mixed = nested or "optimizer" in groups or "optim" in groups
        key = usual[0] if usual and (mixed or groups == usual[:1]) else ""
        if mixed and not key:
            raise ConfigError(
                f"which of {', '.join(groups[:20])} is the model can't be told", hint="say it: --key NAME"
            )
    inside = {name: value for name, value in flat.items() if not key or name.startswith(f"{key}.")}
    if not inside:
        raise ConfigError(f"there is no {key} in it", hint=f"there is {', '.join(groups[:20])}")
    cut = len(key) + 1 if key else 0
    tensors = {name[cut:]: value for name, value in inside.items() if isinstance(value, Tensor)}
    if not tensors:
        raise ConfigError(f"{key or 'it'} holds no tensors", hint="name the part that does: --key NAME")
    beside = sorted({name.split(".", 1)[0] for name in flat if name not in inside})
    values = sorted(name for name, value in inside.items() if not isinstance(value, Tensor))
    return Chosen(tensors=_clean(tensors), key=key, left=(*beside, *values))


def _flat(state: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in state.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def _clean(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Names as the module itself has them. ``ConfigError`` if two of them become one."""
    parallel = all(name.startswith("module.") for name in tensors)
    clean: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        words = [word for word in name.split(".") if word not in _WRAPPERS]
        short = ".".join(words[1:] if parallel else words)
        if short in clean:
            raise ConfigError(f"{name} and another tensor are both {short} without their wrappers")
        clean[short] = tensor
    return clean
