"""How a rehearsal looks: a line a leg as it ends, what was compared, and the verdict. 80 columns."""

import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence

from outlive_agent.cli.output import Printer, count_text
from outlive_agent.exits import Exit
from outlive_agent.rehearse.causes import NOTHING, Cause
from outlive_agent.rehearse.compare import Compared, Difference
from outlive_agent.rehearse.leg import Leg
from outlive_agent.rehearse.rehearsal import Outcome, Wanted
from outlive_agent.rehearse.site import Site
from outlive_agent.units import bytes_text, duration_text

WIDTH = 79
_LABEL = 13
_MOST = 4
_NAME, _VALUE = 32, 20


class Page:
    """For a person who decides by it whether to trust us. ``quiet``: only the progress, on stderr."""

    def __init__(self, printer: Printer, site: Site, wanted: Wanted, *, quiet: bool) -> None:
        self._printer = printer
        self._site = site
        self._wanted = wanted
        self._quiet = quiet
        self._legs = 0
        self._shown = ""

    def begin(self) -> None:
        """What is about to happen."""
        way = self._wanted.way
        self._say()
        self._say(f"rehearsing {shlex.join(self._site.command)}", style="bold")
        self._say()
        known = f" ({way.found})" if way.provider is not None else ""
        self._fact("taken away by", f"{way.text}{known}")
        self._fact("moments", f"from seed {self._wanted.seed}")
        self._fact("touched", "nothing of yours, except what the script itself writes")
        self._say()
        self._say(f"  {'leg':<{_LABEL}}  {'steps':>11}  {'took':>9}", style="bold")

    def progress(self, name: str, step: int) -> None:
        """The leg under way, on a terminal only."""
        if not sys.stderr.isatty():
            return
        line = f"  {name:<{_LABEL}}  " + (f"at step {step:,}" if step else "starting")
        if line != self._shown:
            self._shown = line
            sys.stderr.write(f"\r{line:<{WIDTH - 1}}")
            sys.stderr.flush()

    def leg(self, leg: Leg) -> None:
        """It has ended."""
        if self._shown:
            sys.stderr.write("\r" + " " * (WIDTH - 1) + "\r")
            sys.stderr.flush()
            self._shown = ""
        self._legs += 1
        steps = f"{leg.first:,} → {leg.last:,}"
        took = duration_text(leg.seconds)
        self._paragraph(f"  {leg.name:<{_LABEL}}  {steps:>11}  {took:>9}  ", self._what(leg))

    def end(self, outcome: Outcome, *, kept: bool) -> None:
        """The verdict."""
        self._say()
        if outcome.compared.steps:
            self._compared(outcome)
            self._say()
        if outcome.equal:
            steps = count_text(outcome.compared.steps, "step")
            self._say(f"  EQUAL for {steps}", style="bold green")
            taken = next(leg for leg in outcome.legs if leg.name == "reclaimed")
            text = f"The run that was taken away at step {taken.last:,} is the one that was not, bit for bit."
            self._paragraph("  ", text)
        elif outcome.empty:
            self._say("  NOTHING WAS COMPARED", style="bold red")
            self._causes(outcome.causes)
        else:
            self._differs(outcome)
        self._window(outcome)
        self._say()
        self._fact("once more", f"--seed {self._wanted.seed} chooses the same moments")
        if kept:
            self._fact("kept in", str(self._site.directory))

    def _what(self, leg: Leg) -> str:
        if leg.name == "uninterrupted":
            return f"saved step {leg.saved[0].step:,} on its way"
        if leg.name == "control":
            return "the same once more, to find the cause"
        if leg.name == "resumed":
            return f"a fresh process, from step {leg.first:,}"
        by = "killed" if self._wanted.way.by == "sigkill" else self._wanted.way.by
        if leg.saved and leg.saved[-1].step == leg.last:
            return f"{by} at step {leg.last:,}: saved and stopped"
        kept = leg.saved[-1].step if leg.saved else leg.first
        lost = count_text(leg.last - kept, "step")
        if leg.code == Exit.SAVE_FAILED:
            return f"{by} at step {leg.last:,}: the last save did not fit, {lost} lost"
        return f"{by} at step {leg.last:,}, {lost} lost"

    def _compared(self, outcome: Outcome) -> None:
        total = outcome.compared
        first = outcome.legs[1].first + 1
        self._say(f"  compared bit for bit, {count_text(total.steps, 'step')} from {first:,}", style="bold")
        for name, text in _counts(total):
            self._fact(name, text)
        images = outcome.images
        if images is not None and images.equal:
            size = f"{bytes_text(images.bytes)}, {count_text(images.tensors, 'tensor')}"
            self._fact("the last save", f"{size}: the same in the store")

    def _differs(self, outcome: Outcome) -> None:
        found = outcome.difference
        if found is None:
            self._say("  DIFFERS at the end", style="bold red")
            self._stored(outcome)
        else:
            after = found.step - found.leg.first
            how = "the first step" if after == 1 else f"{after} steps"
            self._say(
                f"  DIFFERS at step {found.step:,}, {how} after the resume from step {found.leg.first:,}",
                style="bold red",
            )
            self._say()
            self._table(found)
        self._causes(outcome.causes[:2])

    def _causes(self, causes: Sequence[Cause]) -> None:
        for i, cause in enumerate(causes):
            self._say()
            if cause is not NOTHING:
                self._fact("likely cause" if i == 0 else "or", cause.name)
            self._fact("because", cause.because)
            self._fact("try", cause.remedy)

    def _table(self, found: Difference) -> None:
        """What differs at that step, side by side."""
        if found.absent:
            self._say("  One of the two runs ended before it, and the other went on.")
            return
        self._say(f"  {'':<{_NAME}}  {'uninterrupted':<{_VALUE}}  resumed", style="bold")
        for name, here, there in _rows(found):
            short = name if len(name) <= _NAME else f"…{name[1 - _NAME :]}"
            self._say(f"  {short:<{_NAME}}  {here:<{_VALUE}}  {there}".rstrip())
        if len(found.tensors) > 1:
            self._say(f"  and {len(found.tensors) - 1} more of {len(found.here.names or ())} tensors")

    def _stored(self, outcome: Outcome) -> None:
        if outcome.images is None:
            return
        self._say()
        for each in outcome.images.details[:_MOST]:
            text = f"{each.path}: {each.differing:,} of {each.elements:,} elements, by up to {each.most:.2g}"
            self._paragraph("  ", text)
        for path in outcome.images.other_values[:_MOST]:
            self._paragraph("  ", path)

    def _window(self, outcome: Outcome) -> None:
        """What a provider's window is beside what was measured."""
        provider = self._wanted.way.provider
        taken = next((leg for leg in outcome.legs if leg.struck_seconds is not None), None)
        if provider is None or taken is None or taken.struck_seconds is None or not provider.window_seconds:
            return
        if self._wanted.way.by == "sigkill":
            return
        if taken.code == Exit.SAVE_FAILED:
            verdict = "TOO LATE for a last save: save often (--every)"
        elif self._wanted.way.emulated:
            verdict = "the last save was in time"
        else:
            verdict = f"the last save was over after {duration_text(taken.struck_seconds)}"
        given = duration_text(provider.window_seconds)
        used = duration_text(self._wanted.way.window_seconds(outcome.bytes))
        short = f", here it had {used}" if self._wanted.way.emulated and used != given else ""
        self._say()
        self._fact("the window", f"{provider.title} gives {given}{short}: {verdict} (to this machine's disk)")

    def _fact(self, name: str, text: str) -> None:
        self._paragraph(f"  {name:<{_LABEL}}  ", text)

    def _paragraph(self, lead: str, text: str) -> None:
        lines = textwrap.wrap(
            text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead), break_on_hyphens=False
        )
        for line in lines:
            self._say(line)

    def _say(self, text: str = "", *, style: str = "") -> None:
        if not self._quiet:
            self._printer.say(text, style=style)
            sys.stdout.flush()


def _counts(total: Compared) -> Sequence[tuple[str, str]]:
    names = ", ".join(total.names[:_MOST])
    facts = [("metrics", f"{total.metrics:,} of {names}" if total.metrics else "none are given to run.step")]
    facts.append(("data", count_text(total.batches, "batch", "batches") if total.batches else "not seen"))
    each = count_text(total.tensors_each, "tensor")
    if total.digested:
        facts.append(("state", f"{each} after each step, {total.tensors:,} in all"))
    else:
        facts.append(("state", f"{each}, where they were saved: too large to read at each step"))
    facts.append(("and", f"random generators, settings, place in the data: {total.values:,}"))
    return facts


def _rows(found: Difference) -> Iterator[tuple[str, str, str]]:
    for name in found.metrics[:_MOST]:
        here, there = (_number(entry.metrics.get(name)) for entry in (found.here, found.there))
        yield name, here, there
    if found.batches:
        here, there = (" ".join(entry.batches)[: _VALUE - 6] for entry in (found.here, found.there))
        yield "data", f"batch {here}", f"batch {there}"
    if found.tensors:
        first = found.tensors[0]
        norms = found.norms(first)
        here, there = ("one value", "another") if norms is None else (repr(norms[0]), repr(norms[1]))
        yield f"{first} (norm)" if norms is not None else first, here, there
    for path in found.values[:_MOST]:
        here, there = (entry.values.get(path, "nothing") for entry in (found.here, found.there))
        yield path, here[:_VALUE], there[:_VALUE]


def _number(text: str | None) -> str:
    return "nothing" if text is None else repr(float.fromhex(text))


def outcome_json(outcome: Outcome, site: Site) -> dict[str, object]:
    """The same for programs."""
    found = outcome.difference
    return {
        "equal": outcome.equal,
        "command": list(site.command),
        "seed": outcome.wanted.seed,
        "by": outcome.wanted.way.by,
        "provider": outcome.wanted.way.provider.name if outcome.wanted.way.provider else None,
        "legs": [_leg_json(leg) for leg in outcome.legs],
        "compared": {
            "steps": outcome.compared.steps,
            "metrics": outcome.compared.metrics,
            "batches": outcome.compared.batches,
            "tensors": outcome.compared.tensors,
            "values": outcome.compared.values,
        },
        "difference": None if found is None else _difference_json(found),
        "stored": None
        if outcome.images is None
        else {"tensors": list(outcome.images.differing), "values": list(outcome.images.other_values)},
        "causes": [
            {"name": cause.name, "because": cause.because, "try": cause.remedy} for cause in outcome.causes
        ],
    }


def _leg_json(leg: Leg) -> dict[str, object]:
    return {
        "name": leg.name,
        "from": leg.first,
        "to": leg.last,
        "saved": [checkpoint.step for checkpoint in leg.saved],
        "seconds": round(leg.seconds, 3),
        "exit": leg.code,
    }


def _difference_json(found: Difference) -> dict[str, object]:
    return {
        "leg": found.leg.name,
        "step": found.step,
        "metrics": {
            name: [found.here.metrics.get(name), found.there.metrics.get(name)] for name in found.metrics
        },
        "batches": found.batches,
        "tensors": list(found.tensors),
        "values": list(found.values),
    }
