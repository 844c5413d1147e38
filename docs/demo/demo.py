"""The main job, shown: train on real text, be taken away three times, and prove that nothing was different.

Run by ``make demo``. Beside the run that is reclaimed goes one that is not, with the same seed. The end of
both is compared bit for bit: every tensor of model and optimizer, all other state, every loss.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sysconfig
import time
from pathlib import Path

from rich.console import Console

from compare import Comparison, compare
from lives import Ending, Life, Losses, Place, live, read_losses
from picture import show_curve, show_table

EPOCHS, STEPS = 3, 360
EVERY = 25
TEXT_BYTES = 5_000_000


def write_text(path: Path) -> int:
    """The standard library's own source, printable characters only; returns its length."""
    root = Path(sysconfig.get_path("stdlib"))
    pieces: list[str] = []
    length = 0
    for source in sorted(root.rglob("*.py")):
        if {"site-packages", "dist-packages"} & set(source.parts) or length >= TEXT_BYTES:
            continue
        text = source.read_text(encoding="utf-8", errors="ignore")
        pieces.append("".join(c for c in text if c == "\n" or " " <= c <= "~"))
        length += len(pieces[-1])
    path.write_text("".join(pieces), encoding="utf-8")
    return length


def run_lives(place: Place, draw: random.Random, console: Console) -> list[Life]:
    """Three lives that are taken away at random points in random order, and the one that finishes."""
    endings: list[Ending] = ["notice", "sigterm", "sigkill"]
    draw.shuffle(endings)
    third = (STEPS - 60) // 3
    points = [20 + third * i + draw.randrange(third - 20) for i in range(3)]
    lives: list[Life] = []
    plan: list[tuple[Ending, int]] = [*zip(endings, points, strict=True), ("finished", STEPS)]
    for number, (ending, point) in enumerate(plan, 1):
        lives.append(live(place, number, ending, point, lives[-1].to_step if lives else 0))
        life = lives[-1]
        console.print(f"life {number}: steps {life.from_step} to {life.to_step}, ended by {life.ended}")
    return lives


def whole_series(lives: list[Life]) -> Losses:
    """Every loss any life computed, so that a step done twice must have come out the same twice."""
    return [entry for life in lives for entry in life.losses]


def problems(lives: list[Life], verdict: Comparison) -> list[str]:
    """What would make the demo a failure; empty if it is none."""
    found = list(verdict.differences)
    expected = {"notice": 75, "sigterm": 75, "sigkill": -9, "finished": 0}
    for number, (life, following) in enumerate(zip(lives, [*lives[1:], None], strict=True), 1):
        if life.exit_code != expected[life.ended]:
            found.append(f"life {number} ({life.ended}) ended with exit code {life.exit_code}")
        allowed = EVERY if life.ended == "sigkill" else 0
        if following and not 0 <= following.steps_lost <= allowed:
            found.append(
                f"life {number} ({life.ended}) lost {following.steps_lost} steps; allowed are {allowed}"
            )
    if lives[-1].to_step != STEPS:
        found.append(f"the run ended at step {lives[-1].to_step}, not {STEPS}")
    return found


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--build", type=Path, default=Path("build"))
    arguments.add_argument("--seed", type=int, default=None, help="repeat a demo; default: a new one")
    options = arguments.parse_args()
    console = Console(highlight=False)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    build = (options.build / "demo").resolve()
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    text = build / "stdlib.txt"
    length = write_text(text)
    if length < TEXT_BYTES:
        raise SystemExit(f"only {length} characters of source in {sysconfig.get_path('stdlib')}")
    console.print(f"text: {length / 1e6:.1f} MB of the standard library; {STEPS} steps; seed {seed}")
    began = time.monotonic()

    reclaimed = Place(build=build, run="reclaimed", text=text, every=EVERY, epochs=EPOCHS)
    untouched = Place(build=build, run="untouched", text=text, every=EVERY, epochs=EPOCHS)
    reference_log = build / "untouched.log"
    reference = untouched.start(reference_log)
    try:
        lives = run_lives(reclaimed, random.Random(seed), console)  # noqa: S311 - where to strike, not a secret
        if reference.wait(timeout=170) != 0:
            raise SystemExit(f"the untouched run failed; see {reference_log.with_suffix('.journal')}")
    finally:
        reference.terminate()
    verdict = compare(
        build / "store", "reclaimed", "untouched", whole_series(lives), read_losses(reference_log)
    )

    return report(console, lives, verdict, build.parent / "demo.json", time.monotonic() - began)


def report(console: Console, lives: list[Life], verdict: Comparison, path: Path, seconds: float) -> int:
    """Show everything, write ``demo.json``, return the exit status."""
    console.print()
    show_table(console, lives)
    stalls = [stall for life in lives for stall in life.stalls]
    if stalls:
        few = f"median {statistics.median(stalls) * 1e3:.1f} ms, longest {max(stalls) * 1e3:.1f} ms"
        console.print(f"the training stopped for each of {len(stalls)} saves: {few}")
    losses = {step: float.fromhex(loss) for life in lives for step, loss in life.losses}
    show_curve(console, losses, [(life.to_step, life.ended) for life in lives[:-1]])
    found = problems(lives, verdict)
    console.print()
    for line in verdict.statements:
        console.print(line)
    for problem in found:
        console.print(f"[red]problem:[/red] {problem}")
    summary = [
        {
            "ended": life.ended,
            "from_step": life.from_step,
            "to_step": life.to_step,
            "steps_lost": following.steps_lost if following else 0,
            "recovery_seconds": life.recovery_seconds,
        }
        for life, following in zip(lives, [*lives[1:], None], strict=True)
    ]
    bit_exact = not verdict.differences
    path.write_text(
        json.dumps({"reclaims": len(lives) - 1, "bit_exact": bit_exact, "lives": summary}, indent=1)
    )
    answer = "[bold red]no[/bold red]" if found else "[bold green]yes, bit for bit[/bold green]"
    console.print(f"\nThe run outlived its machine three times: {answer}")
    console.print(f"{seconds:.0f} s; {path}", soft_wrap=True)
    return 1 if found else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except subprocess.TimeoutExpired as error:
        raise SystemExit(f"a process of the demo hung: {error}") from error
