"""Modules: names that wrappers don't change, everything inside, back in place or not at all."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from outlive.errors import StateError
from outlive.train.module import TrackedModule
from outlive.train.snapshot import plan, read
from outlive.train.tracked import Tracked


def saved(**objects: Any) -> dict[str, Any]:
    """The objects' trees, after a whole trip through an image."""
    made = plan({"objects": track(**objects).capture()})
    image = memoryview(bytearray(made.layout.size))
    made.copy_into(made.layout.windows(image))
    trees: dict[str, Any] = read(image, table=made.layout.table, notes=made.values)["objects"]
    return trees


def track(**objects: Any) -> Tracked:
    tracked = Tracked()
    for name, target in objects.items():
        tracked.add(name, target)
    return tracked


def tensors(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def stack() -> Any:  # so that its parts need no cast
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def compiled(model: nn.Module) -> Any:
    return torch.compile(model)


WRAPPERS: dict[str, Any] = {
    "compiled": lambda model: compiled(model),
    "compiled inside": lambda model: nn.Sequential(model[0], compiled(model[1]), model[2]),
    "parallel": nn.DataParallel,
    "compiled and parallel": lambda model: nn.DataParallel(compiled(model)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, from importing its compiler
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_come_and_go(wrapper: str) -> None:
    """A model saved under torch.compile or DDP loads into the bare one, and the reverse."""
    model, bare, wrapped = stack(), stack(), stack()
    track(model=bare).restore(saved(model=WRAPPERS[wrapper](model)))
    assert same(tensors(bare), tensors(model))
    track(model=WRAPPERS[wrapper](wrapped)).restore(saved(model=model))
    assert same(tensors(wrapped), tensors(model))


def test_a_child_that_is_called_module_keeps_its_name() -> None:
    """Only a real wrapper's prefix is dropped."""
    model: Any = nn.Module()
    model.module = nn.Linear(2, 2)
    assert [name for name, _ in TrackedModule("m", model).parameters()] == ["module.weight", "module.bias"]


def test_restored_in_place() -> None:
    """References that others hold to a parameter see the restored values."""
    model, other = stack(), stack()
    weight = other[0].weight
    track(model=other).restore(saved(model=model))
    assert other[0].weight is weight
    assert torch.equal(weight, model[0].weight)


class Cached(nn.Module):
    """Two buffers that state_dict() leaves out: a table, and a cache that grows."""

    def __init__(self, grown: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(3), persistent=False)
        self.register_buffer("cache", torch.arange(grown), persistent=False)


def test_non_persistent_buffers() -> None:
    """They are kept too, and a changed size is no reason to refuse."""
    model, other = Cached(7), Cached(2)
    track(model=other).restore(saved(model=model))
    assert same(dict(other.named_buffers()), dict(model.named_buffers()))


def test_flags() -> None:
    """What was frozen is frozen again, what was in eval mode is in eval mode, and the rest is not."""
    model, other = stack(), stack()
    model[0].weight.requires_grad_(False)
    model[1].eval()
    other[2].weight.requires_grad_(False)
    other.eval()
    track(model=other).restore(saved(model=model))
    assert [p.requires_grad for p in other.parameters()] == [p.requires_grad for p in model.parameters()]
    assert [module.training for module in other.modules()] == [True, True, False, True]


class Counting(nn.Module):
    """Has extra state, and a hook that adds a key of its own to state_dict()."""

    def __init__(self) -> None:
        super().__init__()
        self.extra: Any = None
        self.hooked = 0

    def get_extra_state(self) -> Any:
        return self.extra

    def set_extra_state(self, state: Any) -> None:
        self.extra = state

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}hooked"] = self.hooked

    def _load_from_state_dict(self, state: Any, prefix: str, *rest: Any) -> None:
        self.hooked = state.get(f"{prefix}hooked", 0)


def test_extra_state_and_hooks() -> None:
    """What a module adds to its state by itself comes back by its own ways, also through a wrapper."""
    model: Any = nn.Sequential(Counting())
    other: Any = nn.Sequential(Counting())
    model[0].extra, model[0].hooked = {"seen": [1, torch.ones(2)]}, 5
    track(model=nn.DataParallel(other)).restore(saved(model=model))
    assert other[0].extra["seen"][0] == 1
    assert torch.equal(other[0].extra["seen"][1], torch.ones(2))
    assert other[0].hooked == 5


def tied(*, really: bool = True) -> Any:
    model: Any = nn.Module()
    model.encoder, model.decoder = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    if really:
        model.decoder.weight = model.encoder.weight
    return model


def test_tied_weights() -> None:
    """Tied weights are stored once, and are still tied after the restore."""
    model, other = tied(), tied()
    made = plan({"objects": track(model=model).capture()})
    assert made.layout.size == 64
    track(model=other).restore(saved(model=model))
    assert other.decoder.weight is other.encoder.weight
    assert torch.equal(other.encoder.weight, model.encoder.weight)


@pytest.mark.parametrize("then", [True, False])
def test_ties_must_match(then: bool) -> None:
    """Weights that were tied and are not, or the reverse, would silently drift: refused."""
    with pytest.raises(StateError, match=r"model\.decoder\.weight: .* the memory of encoder\.weight"):
        track(model=tied(really=not then)).restore(saved(model=tied(really=then)))


def test_everything_that_does_not_fit_is_told_at_once() -> None:
    """Names, shapes and dtypes, in one error, before anything is touched."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    other = nn.Sequential(nn.Linear(3, 5), nn.Linear(4, 2).double(), nn.Linear(2, 2))
    before = tensors(other)
    with pytest.raises(StateError) as refused:
        track(model=other).restore(saved(model=model))
    assert str(refused.value).splitlines()[1:] == [
        "model.0.weight: shape [4, 3] in the checkpoint, [5, 3] here",
        "model.0.bias: shape [4] in the checkpoint, [5] here",
        "model.1.weight: float32 in the checkpoint, float64 here",
        "model.1.bias: float32 in the checkpoint, float64 here",
        "model.2.weight: in the model, but not in the checkpoint",
        "model.2.bias: in the model, but not in the checkpoint",
    ]
    assert "run name" in refused.value.hint
    assert same(tensors(other), before)


def test_optimizer_mismatches() -> None:
    """Another optimizer, other groups or other parameters are refused by name."""
    model = stack()
    trees = saved(model=model, optimizer=torch.optim.Adam(model.parameters()))
    with pytest.raises(StateError, match="optimizer: Adam in the checkpoint, SGD here"):
        track(model=model, optimizer=torch.optim.SGD(model.parameters())).restore(trees)
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters()}]
    with pytest.raises(StateError, match=r"param_groups: 1 in the checkpoint, 2 here"):
        track(model=model, optimizer=torch.optim.Adam(groups)).restore(trees)
    with pytest.raises(StateError, match=r"model\.1\.weight in the checkpoint, but not here"):
        track(model=model, optimizer=torch.optim.Adam(model[0].parameters())).restore(trees)


def test_an_object_that_became_another_kind() -> None:
    """A name that was a module cannot become a scheduler."""
    model = stack()
    scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters()), 1)
    with pytest.raises(StateError, match="thing: module in the checkpoint, object here"):
        track(thing=scheduler).restore(saved(thing=model))


def test_a_model_on_the_meta_device_is_refused() -> None:
    """Copying into a tensor without memory would do nothing, and say nothing."""
    with torch.device("meta"):
        empty = stack()
    with pytest.raises(StateError, match=r"model\.0\.weight: a tensor on the meta device"):
        track(model=empty).restore(saved(model=stack()))


def test_expanded_buffers() -> None:
    """A buffer whose elements share one memory cell is replaced, for nothing can be copied into it."""
    model: Any = nn.Module()
    other: Any = nn.Module()
    model.register_buffer("scale", torch.tensor([2.0]).expand(3))
    other.register_buffer("scale", torch.tensor([1.0]).expand(3))
    track(model=other).restore(saved(model=model))
    assert torch.equal(other.scale, torch.full((3,), 2.0))
