"""The known causes of a resume that is not exact, each with the sign by which it shows and what to do.

The table is in order: a row that points to a name comes before one that only fits.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outlive_agent.rehearse.evidence import SMALL, Evidence
from outlive_agent.rehearse.images import Images

NOT_DETERMINISTIC = "a kernel that is not deterministic"
DETERMINISM = (
    "torch.use_deterministic_algorithms(True), CUBLAS_WORKSPACE_CONFIG=:4096:8, "
    "torch.backends.cudnn.benchmark = False"
)
_MOST_NAMES = 3
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """``because`` is what was seen, ``remedy`` what to do about it."""

    name: str
    because: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """``sign`` says what was seen, or None where this cause does not fit."""

    name: str
    sign: Callable[[Evidence], str | None]
    remedy: str


NOTHING = Cause(
    name="nothing was compared",
    because="outlive.attach was given no tensor, and run.step no number: what it trains is not kept",
    remedy="outlive.attach(model=model, optimizer=optimizer), and run.step(loss=loss)",
)


def causes(evidence: Evidence) -> list[Cause]:
    """Every cause that fits, the likeliest first; the last row of the table where none does."""
    found: list[Cause] = []
    for row in TABLE:
        because = row.sign(evidence)
        if because is not None and not (found and row is TABLE[-1]):
            found.append(Cause(name=row.name, because=because, remedy=row.remedy))
    return found


def stored_causes(images: Images, again: Images) -> Iterator[Cause]:
    """The same where only stored ends can be compared: ``again`` is of two resumes from one checkpoint."""
    what = f"{len(images.differing)} tensors and {len(images.other_values)} values differ at the end"
    if again.equal:
        yield Cause(name="unknown", because=f"{what}, the same in every resume", remedy=TABLE[-1].remedy)
    else:
        yield Cause(
            name=NOT_DETERMINISTIC,
            because=f"{what}, and two resumes from the same checkpoint differ as well",
            remedy=DETERMINISM,
        )


def _other_environment(seen: Evidence) -> str | None:
    names = [path for path in seen.found.values if path.startswith("environment/")]
    if not names:
        return None
    here, there = seen.found.here.values, seen.found.there.values
    return "; ".join(
        f"{p.partition('/')[2]} is {there.get(p)}, was {here.get(p)}" for p in names[:_MOST_NAMES]
    )


def _length(seen: Evidence) -> str | None:
    if not seen.found.absent:
        return None
    resumed_ended = seen.found.step > seen.found.leg.last
    ended, went_on = ("resumed", "uninterrupted") if resumed_ended else ("uninterrupted", "resumed")
    return f"the {ended} run was over after step {seen.found.step - 1}, the {went_on} one was not"


def _state_again(seen: Evidence) -> str | None:
    if not seen.at_once or seen.control_differs:
        return None
    names = [path for path in seen.found.values if path.startswith("state/")]
    if not names:
        return None
    here, there = seen.found.here.values, seen.found.there.values
    first = names[0]
    return (
        f"run.state.{first.partition('/')[2]} is {there.get(first)} after step {seen.found.step}, "
        f"and was {here.get(first)}"
    )


def _own_generator(seen: Evidence) -> str | None:
    names = [name for name, (text, _) in seen.forgotten.items() if _is_generator(name, text)]
    return f"{_listed(names)} did not go on where it stood" if names else None


def _own_object(seen: Evidence) -> str | None:
    names = [name for name, (text, _) in seen.forgotten.items() if text.startswith("object ")]
    return f"{_listed(names)} has a state of its own, which began anew" if names else None


def _own_variable(seen: Evidence) -> str | None:
    if seen.control_differs:
        return None
    plain = [
        f"{name} began as {_short(there)}, and was {_short(here)}"
        for name, (here, there) in seen.forgotten.items()
        if not _is_generator(name, here) and not here.startswith("object ")
    ]
    return "; ".join(plain[:_MOST_NAMES]) or None


def _not_through_batches(seen: Evidence) -> str | None:
    if seen.loops:
        return None
    return "run.batches gave out no batch, so a resume begins with the first one again"


def _data_order(seen: Evidence) -> str | None:
    if seen.shift is None:
        return None
    return f"step {seen.found.step} was given the data that the uninterrupted run had at step {seen.shift}"


def _data_by_chance(seen: Evidence) -> str | None:
    if not seen.found.batches or seen.shift is not None or not seen.control_differs:
        return None
    return (
        f"the data of step {seen.found.step} is the uninterrupted run's at no step, and two resumes from the "
        "same checkpoint do not agree on it"
    )


def _data_other(seen: Evidence) -> str | None:
    if not seen.found.batches or seen.shift is not None or seen.control_differs:
        return None
    return (
        f"the data of step {seen.found.step} is the uninterrupted run's at no step, the same in every resume"
    )


def _draws(seen: Evidence) -> str | None:
    if not seen.found.rng or seen.found.batches or seen.control_differs:
        return None
    names = sorted({path.split("/")[1] for path in seen.found.rng})
    return (
        f"with the same data, the generator of {_listed(names)} stands elsewhere after step {seen.found.step}"
    )


def _statistics(seen: Evidence) -> str | None:
    tensors = seen.found.tensors
    if not tensors or seen.found.metrics or seen.found.batches or seen.control_differs:
        return None
    if not all(name.endswith(_STATISTICS) for name in tensors):
        return None
    return f"nothing but the statistics of normalisation layers differs, {tensors[0]} first"


def _rounding(seen: Evidence) -> str | None:
    if not seen.control_differs or seen.found.batches or seen.size > SMALL:
        return None
    what = "metric" if seen.found.metrics else "tensors' size, and in no metric yet"
    how = f"by {seen.size:.0e} of the {what}" if seen.size else "in tensors, and in no metric yet"
    settings = seen.environment
    told = f"deterministic algorithms are {settings.get('deterministic', 'off')}"
    if "cudnn_benchmark" in settings:
        told += f", cuDNN benchmark is {settings['cudnn_benchmark']}"
    return (
        f"with the same data and random numbers, two resumes from the same checkpoint differ {how}; {told} "
        f"on {settings.get('device', 'this device')}"
    )


def _chance(seen: Evidence) -> str | None:
    if not seen.control_differs or seen.found.batches or seen.size <= SMALL:
        return None
    return (
        "with the same data, two resumes from the same checkpoint differ from each other, "
        f"by {seen.size:.0%} of the metric"
    )


def _unknown(seen: Evidence) -> str | None:
    if seen.control_differs:
        return "two resumes from the same checkpoint differ from each other"
    return "every resume from this checkpoint does the same, and not what the uninterrupted run did"


def _is_generator(name: str, text: str) -> bool:
    return text.startswith("generator ") or name.startswith("a generator of ")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _short(text: str) -> str:
    return "something else" if "#" in text else text


TABLE = (
    Row(
        name="the training runs in another environment",
        sign=_other_environment,
        remedy="set devices, threads and kernel settings in the script, the same at each start",
    ),
    Row(
        name="the loop has another length",
        sign=_length,
        remedy="let the number of epochs and of batches depend on nothing that changes",
    ),
    Row(
        name="a value on run.state is set again after attach",
        sign=_state_again,
        remedy="give the first value to outlive.attach(name=value): a saved one wins over it there",
    ),
    Row(
        name="a random generator of your own",
        sign=_own_generator,
        remedy="hand it to outlive.attach(name=generator), or draw from the global ones",
    ),
    Row(
        name="an object that outlive.attach was not given",
        sign=_own_object,
        remedy="hand it to outlive.attach(name=object), or to run.track(name=object)",
    ),
    Row(
        name="the data does not come through run.batches",
        sign=_not_through_batches,
        remedy="for batch in run.batches(loader): ...",
    ),
    Row(
        name="the data comes in another order",
        sign=_data_order,
        remedy="give the loader to run.batches as it is, and its sampler a state_dict if it has a state",
    ),
    Row(
        name="random numbers are drawn before attach, and nothing seeds them",
        sign=_data_by_chance,
        remedy="seed python, numpy and torch at the top of the script, before any data is made",
    ),
    Row(
        name="the data has a state of its own",
        sign=_data_other,
        remedy="let an item depend on its index and the global generators alone, not on a counter or a cache",
    ),
    Row(
        name="random numbers are drawn in one of the two runs only",
        sign=_draws,
        remedy="draw none after run.step() in the loop's body, nor in what only a first start does",
    ),
    Row(
        name="a forward pass in training mode outside of the step",
        sign=_statistics,
        remedy="call model.eval() before an evaluation, and let run.step() be the last line of the body",
    ),
    Row(
        name="a variable of your own",
        sign=_own_variable,
        remedy="keep it on run.state, where it is saved and restored",
    ),
    Row(
        name=NOT_DETERMINISTIC,
        sign=_rounding,
        remedy=DETERMINISM,
    ),
    Row(
        name="the training depends on the clock, or on chance",
        sign=_chance,
        remedy="look for time.time(), unseeded generators, the order of a set of strings, files that change",
    ),
    Row(
        name="unknown",
        sign=_unknown,
        remedy="outlive rehearse --scratch DIR keeps the diaries of all legs, with every value at every step",
    ),
)
