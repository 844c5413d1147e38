"""What all verbs have in common: help, mistakes, widths, colours and characters."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios

import pytest

from fakes.checkpoints import begin, snapshot
from fakes.commands import Cli
from outlive.objects.interface import ObjectStore
from outlive_agent import __main__
from outlive_agent.cli.output import Column, _fitting, _shortened, printable

VERBS = [*__main__.VERBS]


def on_terminal(width: int, *arguments: str, **environ: str) -> str:
    """What a verb prints on a terminal of this width."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    command = [sys.executable, "-m", "outlive_agent", *arguments]
    settings = {"TERM": "xterm-256color", **environ}
    environment = {
        name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR"}
    } | settings
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment) as process:
        os.close(theirs)
        output = b""
        with open(ours, "rb", buffering=0) as terminal:  # noqa: PTH123 - a descriptor
            try:
                while piece := terminal.read(65536):
                    output += piece
            except OSError:  # Linux's way to say that the other side is closed
                pass
        assert process.wait(timeout=60) == 0, output
    return output.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples(cli: Cli, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """--help explains and shows command lines to copy, most of them of this verb, and every exit code."""
    said = cli(verb, "--help")
    assert said.code == 0
    codes, examples = (
        part.splitlines() for part in said.out.split("exit codes:\n")[1].split("\n\nexamples:\n")
    )
    assert {"0", "1", "2", "78"} <= {line.split()[0] for line in codes}
    assert examples[0].startswith(f"  outlive {verb}")
    assert max(len(line) for line in said.out.splitlines()) <= 80


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "user-data"])
def test_help_costs_nothing(verb: str) -> None:
    """Help is answered without loading what talks to stores, terminals and files."""
    check = (
        "import sys; from outlive_agent.__main__ import main\n"
        f"try: main(['{verb}', '--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(bool({'boto3', 'rich', 'yaml', 'torch'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", check], check=True, stdout=subprocess.DEVNULL)


def test_a_mistyped_option_is_answered_with_the_nearest(cli: Cli) -> None:
    """A mistake is told as every other error: what, and what to try."""
    said = cli("prune", "gpt", "--lats", "3")
    assert said.code == 2
    assert said.err == "Error: unrecognized arguments: --lats 3\nTry:   --last, or outlive prune --help\n"


@pytest.mark.parametrize("width", [80, 120])
def test_tables_keep_to_the_terminal(gpt: ObjectStore, width: int) -> None:
    """No line is longer than the terminal is wide, and no row takes two; long names are cut in the middle."""
    long = "llama-3-8b-instruct-lora-r64-alpaca-cleaned-seed1337-lr2e-4"
    life = begin(gpt, long)
    life.commit(snapshot(1_234_567, b"x" * 64, metrics={"loss": 1 / 3, "accuracy": 0.123, "lr": 3e-4}))
    for arguments, rows in ((("ls",), 2), (("ls", "gpt"), 4), (("ls", long), 1), (("history", "gpt"), 3)):
        out = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal(width, *arguments))
        assert max(len(line) for line in out.splitlines()) <= width
        assert out.splitlines().index("") == 1 + rows, out
    names = on_terminal(width, "ls")
    assert (
        re.search(r"\nllama-3-8b-[^ ]*…[^ ]*-lr2e-4 ", re.sub(r"\x1b\[[0-9;]*m", "", names)) or long in names
    )
    assert "loss 0" in on_terminal(width, "ls", long)


def test_colours_are_for_terminals(gpt: ObjectStore, cli: Cli) -> None:
    """A terminal gets bold headers, a pipe and whoever says NO_COLOR no colour."""
    assert "\x1b[1m" in on_terminal(80, "ls")
    assert "\x1b[3" not in on_terminal(80, "ls", NO_COLOR="1")
    assert "\x1b" not in cli("ls").out


def test_a_pipe_gets_whole_lines(gpt: ObjectStore, cli: Cli) -> None:
    """What goes into grep has every column and no blanks at the ends, however wide it is."""
    lines = cli("ls", "gpt").out.splitlines()
    assert "METRICS" in lines[0]
    assert lines == [line.rstrip() for line in lines]


def test_other_locales_get_ascii(gpt: ObjectStore) -> None:
    """Where the locale has no more than ASCII, nothing else is printed and nothing fails."""
    command = [sys.executable, "-m", "outlive_agent", "show", "gpt", "--tensors"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, check=True, capture_output=True)
    assert done.stdout.decode("ascii").startswith("gpt, step 500 of life 3\n")
    assert printable("größe → 3 · \x1b", unicode=False) == "gr??e -> 3 - ?"
    assert printable("größe → 3", unicode=True) == "größe → 3"


def test_a_closed_pipe_is_quiet(gpt: ObjectStore) -> None:
    """``outlive ls | head`` leaves no trace behind."""
    command = f"{sys.executable} -m outlive_agent history gpt --events | head -1"
    done = subprocess.run(["bash", "-c", command], check=True, capture_output=True)
    assert done.stderr == b""


def test_the_least_important_columns_go_first() -> None:
    """Columns go by their priority until the rest fits, empty ones first; those of priority 0 never go."""
    columns = [Column(title="A"), Column(title="BB", priority=2), Column(title="C", priority=1)]
    cells = [["aaaa", "b", "cccc"]]
    assert _fitting(columns, cells, 14) == {0: 4, 1: 2, 2: 4}
    assert _fitting(columns, cells, 13) == {0: 4, 2: 4}
    assert _fitting(columns, cells, 9) == {0: 4}
    assert _fitting(columns, cells, 1) == {0: 4}
    assert _fitting(columns, [["aaaa", "b", ""]], 99) == {0: 4, 1: 2}


def test_cells_are_shortened_before_columns_go() -> None:
    """What may be shortened gives way first, as far as it may."""
    columns = [Column(title="A", least=5), Column(title="B", priority=1)]
    cells = [["a" * 20, "bbbb"]]
    assert _fitting(columns, cells, 16) == {0: 10, 1: 4}
    assert _fitting(columns, cells, 10) == {0: 10}
    assert _shortened("abcdefghij", 7, mark="…", middle=True) == "abc…hij"
    assert _shortened("abcdefghij", 7, mark="...", middle=False) == "abcd..."
