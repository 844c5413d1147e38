"""Two diaries side by side: the first step at which anything differs, and everything that differs there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from outlive.staging.rehearsal import Entry
from outlive_agent.rehearse.leg import Leg


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first one between the uninterrupted leg (``here``) and another (``there``)."""

    step: int
    leg: Leg
    here: Entry
    there: Entry
    metrics: tuple[str, ...]
    tensors: tuple[str, ...]
    values: tuple[str, ...]
    """Paths of what is saved beside tensors, such as ``loops/...`` and ``rng/torch``."""
    absent: bool = False
    """Only one of the two came to this step at all."""

    @property
    def batches(self) -> bool:
        """Whether the loop was given other data."""
        return self.here.batches != self.there.batches

    def norms(self, tensor: str) -> tuple[float, float] | None:
        """The size of one of the tensors that differ, in both; None where it has none."""
        if tensor not in (self.here.names or ()) or tensor not in (self.there.names or ()):
            return None
        texts = [
            entry.norms[(entry.names or ()).index(tensor)] if entry.norms else ""
            for entry in (self.here, self.there)
        ]
        return (float.fromhex(texts[0]), float.fromhex(texts[1])) if all(texts) else None

    @property
    def rng(self) -> tuple[str, ...]:
        """Random generators that stand elsewhere."""
        return tuple(path for path in self.values if path.startswith("rng/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """How much was found equal, step by step."""

    steps: int = 0
    metrics: int = 0
    tensors: int = 0
    batches: int = 0
    values: int = 0
    names: tuple[str, ...] = ()
    """The metrics' names."""
    tensors_each: int = 0
    digested: bool = True
    """Whether tensors are in the diaries; else they are compared where they were saved only."""

    def __add__(self, other: "Compared") -> "Compared":
        return Compared(
            steps=self.steps + other.steps,
            metrics=self.metrics + other.metrics,
            tensors=self.tensors + other.tensors,
            batches=self.batches + other.batches,
            values=self.values + other.values,
            names=tuple(dict.fromkeys((*self.names, *other.names))),
            tensors_each=max(self.tensors_each, other.tensors_each),
            digested=self.digested and other.digested,
        )


def first_difference(here: Leg, leg: Leg, *, until: int | None = None) -> Difference | None:
    """The first step of ``leg`` that is not as it was there; None if all are.

    ``until``: the step that both have to reach; one that only one of them has is a difference, too.
    """
    for step, there in _steps(leg.entries):
        if step not in here.entries:
            return _absent(step, leg)
        found = difference(here.entries[step], there, leg)
        if found is not None:
            return found
    return _absent(leg.last + 1, leg) if until is not None and leg.last < until else None


def difference(here: Entry, there: Entry, leg: Leg) -> Difference | None:
    """What differs at one step."""
    metrics = _differing(here.metrics, there.metrics)
    values = _differing(here.values, there.values)
    tensors = _differing(_by_name(here), _by_name(there))
    if not (metrics or values or tensors or here.batches != there.batches):
        return None
    return Difference(
        step=there.step,
        leg=leg,
        here=here,
        there=there,
        metrics=metrics,
        tensors=tensors,
        values=values,
    )


def _absent(step: int, leg: Leg) -> Difference:
    """Only one of the two came to this step."""
    nothing = Entry(step=step)
    return Difference(
        step=step, leg=leg, here=nothing, there=nothing, metrics=(), tensors=(), values=(), absent=True
    )


def count(here: Leg, leg: Leg, *, before: int | None = None) -> Compared:
    """What was compared of ``leg``, up to the step where it differs."""
    total = Compared()
    for step, entry in _steps(leg.entries):
        if step in here.entries and (before is None or step < before):
            total += Compared(
                steps=1,
                metrics=len(entry.metrics),
                tensors=len(entry.tensors),
                batches=len(entry.batches),
                values=len(entry.values),
                names=tuple(entry.metrics),
                tensors_each=len(entry.names or ()),
                digested=bool(entry.tensors) or not entry.names,
            )
    return total


def _steps(entries: Mapping[int, Entry]) -> Iterator[tuple[int, Entry]]:
    return ((step, entries[step]) for step in sorted(entries) if step >= 0)


def _by_name(entry: Entry) -> dict[str, str]:
    if not entry.tensors:
        return dict.fromkeys(entry.names or (), "")
    return dict(zip(entry.names or (), entry.tensors, strict=True))


def _differing(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, ...]:
    names = dict.fromkeys((*here, *there))
    return tuple(name for name in names if here.get(name) != there.get(name))
