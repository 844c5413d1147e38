"""From the state of a run to an image and its notes, and from those back to the state.

A snapshot is taken in two halves: ``plan`` fixes what is saved, at the boundary; the moves of a plan are its
bytes, and those of steady tensors may be copied while the next forward and backward pass run (`taking`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from outlive.errors import Damaged
from outlive.staging.parts import PartNotes
from outlive.train import values
from outlive.train.copying import Move, copy, without_memory
from outlive.train.joint import Joint
from outlive.train.layout import Layout, lay_out
from outlive.train.parts import uncollected
from outlive.train.tensors import Named, Stored, bits, revive
from outlive.train.trees import mapped
from outlive.train.values_read import decode, load


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """Everything that one snapshot is made of."""

    layout: Layout
    values: bytes
    sources: tuple[Tensor, ...]
    """As the training has them, one for each of the layout's windows."""
    steady: tuple[bool, ...]
    """For each of them whether only an optimizer's step is expected to change it."""

    def moves(self, windows: Sequence[Tensor]) -> list[Move]:
        """All copying that this snapshot takes. Each holds the memory that its tensor has at this moment.

        ``StateError`` if one has none.
        """
        for i, source in enumerate(self.sources):
            if not source.data_ptr():
                raise without_memory(self.layout.entries[self.layout.copied[i]].path)
        return [(target, bits(source)) for target, source in zip(windows, self.sources, strict=True)]

    def copy_into(self, windows: Sequence[Tensor]) -> None:
        """Copy every tensor's bits; when this returns, the image owes nothing to the tensors."""
        copy(self.moves(windows))


def plan(state: Mapping[str, Any], last: Layout | None = None) -> Plan:
    """What a snapshot of `state` will be. ``StateError`` names everything in it that cannot be kept."""
    with uncollected():
        return _planned(state, last)


def _planned(state: Mapping[str, Any], last: Layout | None) -> Plan:
    if last is not None and last.known.parts:
        made = _again(state, last)
        if made is not None:
            return made
    encoder = values.Encoder()
    document = _encoded(state, encoder)
    tensors = _unique(list(encoder.tensors.values()))
    layout = lay_out(tensors, last)
    encoder.renumber(layout.order)
    copied = [tensors[number] for number in layout.sources]
    steady = tuple(named.steady for named in copied)
    texts = encoder.texts()
    lasting = not encoder.entangled
    layout.known.learn(
        encoder.met, texts, tensors=list(encoder.tensors.values()), steady=steady, lasting=lasting
    )
    sources = tuple(named.tensor for named in copied)
    return Plan(layout=layout, values=values.dump(document, texts), sources=sources, steady=steady)


def _again(state: Mapping[str, Any], last: Layout) -> Plan | None:
    """A plan in which only values are new; None if more than that has changed since `last` was laid out."""
    encoder = values.Encoder(last.known.parts)
    document = _encoded(state, encoder)
    anew = any(one.node is not None for one in encoder.met)
    if anew or encoder.entangled or not last.known.same(encoder.met, encoder.tensors):
        return None
    encoder.renumber(last.order)
    tensors = {number: named.tensor for number, named in encoder.tensors.items()}
    for one in encoder.met:
        tensors.update(zip(range(one.start, one.end), one.part.tensors, strict=True))
    return Plan(
        layout=last,
        values=values.dump(document, encoder.texts()),
        sources=tuple(tensors[number] for number in last.sources),
        steady=last.known.steady,
    )


def _encoded(state: Mapping[str, Any], encoder: values.Encoder) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for name, part in state.items():
        if name == "objects":
            document[name] = {key: encoder.encode(tree, at=key) for key, tree in part.items()}
        else:
            document[name] = encoder.encode(part, at="run.state" if name == "state" else name)
    encoder.check()
    return document


def read(image: memoryview, *, table: bytes, notes: bytes) -> dict[str, Any]:
    """The state in an only rank's image. Its tensors are views of it until they are revived or copied."""
    return read_part(
        Joint(image, [PartNotes(rank=0, offset=0, bytes=len(image), table=table, values=notes)]), 0
    )


def read_part(joint: Joint, rank: int) -> dict[str, Any]:
    """The state of one rank in the image of all. ``Damaged`` if it is none."""
    state = decode(load(joint.parts[rank].values), joint.stored(rank))
    if not isinstance(state, dict):
        raise Damaged("the values are not those of a run")
    return state


def moved_out(tree: Any) -> Any:
    """The same tree on memory of its own, for what is still needed when the image is overwritten."""
    return mapped(tree, _moved_out)


def _moved_out(stored: Stored) -> Stored:
    if stored.box is None:
        return replace(stored, view=stored.view.clone(), pieces=tuple)
    return replace(stored, view=revive(stored, "cpu"), box=None, strides=None, pieces=tuple)


def _unique(tensors: Sequence[Named]) -> list[Named]:
    """Two of one path get numbers, so that the table names each tensor once."""
    seen: dict[str, int] = {}
    unique = []
    for named in tensors:
        count = seen[named.path] = seen.get(named.path, 0) + 1
        path = named.path if count == 1 else f"{named.path}#{count}"
        unique.append(replace(named, path=path))
    return unique
