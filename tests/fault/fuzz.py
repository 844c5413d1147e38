"""Feeds rubbish to everything that reads what a stranger may have written, and learns from what is covered.

    python tests/fault/fuzz.py [--runs 200000] [--seed N] [TARGET ...]

Atheris (libFuzzer) in an environment of its own changes honest documents and keeps whatever reaches new code.
A target may return or raise ``OutliveError``. It is a find if it raises anything else, takes 5 s or 1 GiB,
or does what no reader does: run code, start a program, connect, remove a file. Exit status 1 if there is one;
the input lies in build/fuzz then, and `python tests/fault/fuzz.py --input FILE TARGET` shows it again.
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["atheris==3.0.0"]
FORBIDDEN = frozenset(
    {"exec", "compile", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "pickle.find_class"}
    | {"socket.connect", "os.remove", "os.rename", "os.mkdir", "shutil.rmtree", "ctypes.dlopen"}
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200_000, help="inputs a target")
    parser.add_argument("--seed", type=int, default=random.randrange(1, 2**31))  # noqa: S311
    parser.add_argument("--input", help="only this one")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("targets", nargs="*")
    options = parser.parse_args()
    if options.inside:
        _fuzz(options.targets[0], runs=options.runs, seed=options.seed, input_=options.input)
        return 0
    return _campaign(options)


def _campaign(options: argparse.Namespace) -> int:
    """Each target in a process of its own, as libFuzzer never returns."""
    from fakes.environments import environment
    from fault.hostile import TARGETS

    python = environment("fuzz", PACKAGES) / "bin" / "python"
    # What we stand on comes from here; atheris from there.
    site = next(path for path in sys.path if path.endswith("site-packages"))
    path = os.pathsep.join([*(str(ROOT / part) for part in ("agent", "trainer", "tests")), site])
    print(f"seed {options.seed}", flush=True)
    finds = 0
    for target in options.targets or list(TARGETS):
        command = [
            str(python),
            __file__,
            "--inside",
            "--runs",
            str(options.runs),
            "--seed",
            str(options.seed),
        ]
        command += ["--input", options.input] if options.input else []
        done = subprocess.run(
            [*command, target],
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        finds += done.returncode != 0
        print(
            f"{target}: {_summary(done.stdout) if done.returncode == 0 else done.stdout[-4000:]}", flush=True
        )
    print(f"{finds} finds", flush=True)
    return 1 if finds else 0


def _summary(output: str) -> str:
    """libFuzzer's last line of figures."""
    lines = [line for line in output.splitlines() if line.startswith("#") and "cov:" in line]
    words = lines[-1].split() if lines else []
    covered = words[words.index("cov:") + 1] if "cov:" in words else "?"
    return f"{words[0].lstrip('#') if words else '?'} inputs, {covered} edges covered, nothing found"


def _fuzz(target: str, *, runs: int, seed: int, input_: str | None) -> None:
    import atheris  # type: ignore[import-untyped]

    with atheris.instrument_imports(include=["outlive", "outlive_agent", "fault"]):
        from fault.hostile import PLANTED, TARGETS, seeds
    from outlive.errors import OutliveError

    run = {**TARGETS, **PLANTED}[target]
    armed = False

    def guard(event: str, arguments: tuple[object, ...]) -> None:
        if armed and event in FORBIDDEN and not _imports(event, arguments):
            raise AssertionError(f"a reader does this: {event} {arguments!r}")

    def once(data: bytes) -> None:
        nonlocal armed
        armed = True
        try:
            run(data)
        except OutliveError:
            pass
        finally:
            armed = False

    folder = ROOT / "build" / "fuzz" / target
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, body in enumerate(seeds(target)):
        (corpus / f"honest-{number}").write_bytes(body)
        _unwatched(run, body)  # what is imported late is imported now
    sys.addaudithook(guard)
    limits = ["-timeout=5", "-rss_limit_mb=1024", "-max_len=8192", f"-artifact_prefix={folder}/"]
    argv = [sys.argv[0], f"-runs={runs}", f"-seed={seed}", *limits, input_ or str(corpus)]
    atheris.Setup(argv, once)
    atheris.Fuzz()


def _imports(event: str, arguments: tuple[object, ...]) -> bool:
    """Whether this is Python fetching a module of its own, such as a codec that some text is in."""
    code = arguments[0] if event == "exec" else None
    return str(getattr(code, "co_filename", "")).startswith(sys.base_prefix)


def _unwatched(run: "Callable[[bytes], None]", body: bytes) -> None:
    """Before the watch begins."""
    from outlive.errors import OutliveError

    with contextlib.suppress(OutliveError):
        run(body)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    sys.exit(main())
