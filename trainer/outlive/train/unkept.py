"""Finds what a training loop carries from one turn to the next in variables of its own: a resume loses it.

A name is carried if the loop sets it, and the next turn may read it before setting it again: that much stands
in the bytecode of the frames that are in a loop. Whether it is worth a word, its value tells: numbers, text,
growing containers are; clocks, batches and objects are not, nor is a name that begins with an underscore.
"""

import collections
import dis
import re
import sysconfig
import time
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType
from typing import Any

import numpy
import torch

_FRAMES = 16
_MOST_INSTRUCTIONS = 20_000
_ACCESS = re.compile(
    r"(LOAD|STORE|DELETE)_(?:FAST|NAME|GLOBAL|DEREF)(?:_(?:CHECK|BORROW))?(?=_LOAD|_STORE|$)"
)
_ENDS = ("RETURN", "RAISE", "RERAISE", "JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD")
_GROW = {"append", "extend", "insert", "add", "update", "appendleft"}
_PLAIN = (bool, int, float, complex, str)
_CONTAINERS = (list, dict, set, collections.deque)
_COMMON = (0, 1, -1, "")
_MOST_NAMES = 6
_LATELY_SECONDS = 600.0


def unkept(frame: FrameType | None, *, kept: Mapping[str, Any]) -> list[str]:
    """Names of plain values and containers that the loops around `frame` carry on, but for what is `kept`."""
    found: dict[str, None] = {}
    for around in _own(frame):
        names = carried(around.f_code, around.f_lasti)
        values: Mapping[str, Any] = {**around.f_globals, **around.f_locals} if names else {}
        for name, is_set in names.items():
            value = values.get(name)
            worth = isinstance(value, _CONTAINERS) or (is_set and _is_plain(value))
            if worth and not name.startswith("_") and not _is_kept(name, value, kept):
                found[name] = None
    return list(found)


def unkept_line(names: list[str]) -> str:
    """What to say of them."""
    shown = names if len(names) <= _MOST_NAMES else [*names[:_MOST_NAMES], "others"]
    text = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    verbs = ("changes", "is", "it begins") if len(shown) == 1 else ("change", "are", "they begin")
    return (
        f"{text} {verbs[0]} in your loop and {verbs[1]} not kept: {verbs[2]} anew after a resume; "
        f"what matters belongs on run.state, such as run.state.{names[0]}"
    )


def carried(code: CodeType, at: int) -> dict[str, bool]:
    """What the loops around offset `at` carry on. True if they set it, False if they change what it names."""
    steps = list(dis.get_instructions(code))
    loops = _loops(steps, at) if len(steps) <= _MOST_INSTRUCTIONS else {}
    found: dict[str, bool] = {}
    for begin, end in sorted(loops.items()):
        inside = [step for step in steps if begin <= step.offset <= end]
        live = _live(inside)[begin]
        is_set = {name for step in inside for kind, name in _accesses(step) if kind != "LOAD"}
        for i, step in enumerate(inside):
            for kind, name in _accesses(step)[-1:]:
                if name in live and (name in is_set or (kind == "LOAD" and _is_changed(inside[i : i + 4]))):
                    found[name] = found.get(name, False) or name in is_set
    return found


def _is_changed(steps: list[dis.Instruction]) -> bool:
    """Whether they change what the first of them reads: ``x.append``, ``x[k].append``, ``x[k] =``."""
    codes = [step.opname for step in steps]
    calls = [
        name in ("LOAD_ATTR", "LOAD_METHOD") and steps[i].argval in _GROW for i, name in enumerate(codes)
    ]
    if calls[1:2] == [True] or codes[2:3] in (["STORE_SUBSCR"], ["COPY"], ["DUP_TOP_TWO"]):
        return True
    return codes[2:3] in (["BINARY_SUBSCR"], ["BINARY_OP"]) and calls[3:4] == [True]


def _own(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the user's own code, from `frame` outwards."""
    libraries = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    for _ in range(_FRAMES):
        if frame is None:
            return
        if not frame.f_code.co_filename.startswith((*libraries, "<frozen")):
            yield frame
        frame = frame.f_back


def _loops(steps: list[dis.Instruction], at: int) -> dict[int, int]:
    """Where each loop around `at` begins and ends."""
    ends: dict[int, int] = {}
    for step in steps:
        if _is_jump(step) and step.argval <= step.offset:
            ends[step.argval] = max(step.offset, ends.get(step.argval, 0))
    return {begin: end for begin, end in ends.items() if begin <= at <= end}


def _live(steps: list[dis.Instruction]) -> dict[int, set[str]]:
    """For each offset of a loop, the names that it may read from there on before it sets them."""
    live: dict[int, set[str]] = {step.offset: set() for step in steps}
    changed = True
    while changed:
        changed = False
        for i in range(len(steps) - 1, -1, -1):
            step = steps[i]
            after: set[str] = set()
            if not step.opname.startswith(_ENDS) and i + 1 < len(steps):
                after |= live[steps[i + 1].offset]
            if _is_jump(step):
                after |= live.get(step.argval, set())
            for kind, name in reversed(_accesses(step)):
                after = after | {name} if kind == "LOAD" else after - {name}
            if after != live[step.offset]:
                live[step.offset], changed = after, True
    return live


def _is_jump(step: dis.Instruction) -> bool:
    return step.opcode in dis.hasjrel or step.opcode in dis.hasjabs


def _accesses(step: dis.Instruction) -> list[tuple[str, str]]:
    """Which names an instruction reads and sets, in order; newer Pythons do two at once."""
    if step.opname == "LOAD_FAST_AND_CLEAR":  # of a comprehension, which puts it back
        return []
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return list(zip(_ACCESS.findall(step.opname), names, strict=False))


def _is_plain(value: Any) -> bool:
    if isinstance(value, float) and any(
        0 <= clock() - value < _LATELY_SECONDS < clock()
        for clock in (time.time, time.monotonic, time.perf_counter)
    ):
        return False  # when something began
    one = isinstance(value, torch.Tensor) and value.numel() == 1
    return (one and not value.requires_grad) or isinstance(value, numpy.number) or type(value) in _PLAIN


def _is_kept(name: str, value: Any, kept: Mapping[str, Any]) -> bool:
    """Whether it is one of those, or a copy of one."""
    if not isinstance(value, _PLAIN):
        return any(value is each for each in kept.values())
    if name in kept:
        return True
    return value not in _COMMON and any(type(value) is type(each) and value == each for each in kept.values())
