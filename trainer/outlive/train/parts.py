"""What of a state is described once and not again while it stays the same: a save must not cost a description
of every tensor, of which there may be hundreds of thousands.
"""

import contextlib
import gc
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from outlive.train.tensors import Named, dense_strides, dtype_name, place


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """A branch of a captured state. It reads as before if `key` and its tensors look as before."""

    key: object
    tensors: Sequence[Tensor]
    """All tensors in it, in the order in which ``build()`` has them."""
    build: Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Met:
    """A part that was met while a state was encoded: which tensors' numbers are its own, and its text."""

    name: str
    token: str
    """What stands for it in the rest of the JSON."""
    part: Part
    start: int
    end: int
    node: Any = None
    """Its JSON, if it was described anew; None if the text of the last time still holds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownPart:
    """How a part read when it was last described."""

    key: object
    tensors: Sequence[int]
    """Their ids. Not weak references: torch swaps no tensor that has any (``torch.utils.swap_tensors``).
    An id that another tensor has got since then does no harm, as that one looks alike.
    """
    looks: Sequence[object]
    text: str

    def holds(self, part: Part) -> bool:
        """Whether it still does. A tensor may have been given other memory or another shape in place."""
        return (
            len(self.tensors) == len(part.tensors)
            and self.key == part.key
            and all(map(operator.eq, self.tensors, map(id, part.tensors)))
            and all(map(operator.eq, self.looks, map(_look, part.tensors)))
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Known:
    """All that is known of the state that a layout is for."""

    parts: dict[str, KnownPart] = field(default_factory=dict)
    met: list[tuple[str, int, int]] = field(default_factory=list)
    loose: list[object] = field(default_factory=list)
    places: dict[Hashable, int] = field(default_factory=dict)
    steady: tuple[bool, ...] = ()

    def same(self, met: Sequence[Met], loose: Mapping[int, Named]) -> bool:
        """Whether nothing about the state has changed but what its tensors and values hold."""
        return self.met == _spans(met) and self.loose == _loose(loose, self.places)

    def learn(
        self,
        met: Sequence[Met],
        texts: Mapping[str, str],
        *,
        tensors: Sequence[Named],
        steady: tuple[bool, ...],
        lasting: bool,
    ) -> None:
        """Remember a state that was described in full, unless that is of no use next time."""
        self.parts = {
            one.name: KnownPart(
                key=one.part.key,
                tensors=list(map(id, one.part.tensors)),
                looks=[_look(tensor) for tensor in one.part.tensors],
                text=texts[one.token],
            )
            for one in met
            if lasting
        }
        self.met = _spans(met)
        inside = {number for one in met for number in range(one.start, one.end)}
        self.places = {}
        for number in sorted(inside):
            where = place(tensors[number].tensor)
            if where is not None:
                self.places.setdefault(where, number)
        loose = {number: named for number, named in enumerate(tensors) if number not in inside}
        self.loose = _loose(loose, self.places)
        self.steady = steady


def look(named: Named) -> tuple[Any, ...]:
    """All that the table says of a tensor besides its place."""
    tensor = named.tensor
    strides = dense_strides(tensor)
    looks = named.path, dtype_name(tensor.dtype), tuple(tensor.shape), strides, str(tensor.device)
    return *looks, named.group, named.box, named.owner


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Python's garbage collector looks at everything that lives each time a lot is made, such as here."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _spans(met: Sequence[Met]) -> list[tuple[str, int, int]]:
    return [(one.name, one.start, one.end) for one in met]


def _look(tensor: Tensor) -> object:
    turned = tensor.is_conj(), tensor.is_neg()
    return type(tensor), tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device, turned


def _loose(loose: Mapping[int, Named], places: Mapping[Hashable, int]) -> list[object]:
    """Looks of the tensors outside of parts, and for each the first tensor whose memory it shares."""
    first: dict[Hashable, int] = {}
    signature: list[object] = []
    for number, named in loose.items():
        where = place(named.tensor)
        shared = places.get(where) if where is not None else number
        if shared is None:
            shared = first.setdefault(where, number)
        signature.append((number, shared, named.steady, look(named)))
    return signature
