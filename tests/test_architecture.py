"""The promises of docs/ARCHITECTURE.md that a program can check."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = sorted(
    p for top in ("agent", "trainer", "docs", "tests", "cloud-init") for p in (ROOT / top).rglob("*.py")
)
PRODUCT = [p for p in CODE if p.is_relative_to(ROOT / "agent") or p.is_relative_to(ROOT / "trainer")]


@pytest.mark.parametrize(
    "module",
    ["outlive_agent.__main__", "outlive_agent.guard", "outlive_agent.sidecar", "outlive.store.commit"],
)
def test_starts_without_torch(module: str) -> None:
    """The agent and the store start in a fresh interpreter without loading torch or numpy."""
    check = f"import {module}, sys; sys.exit(bool({{'torch', 'numpy'}} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-P" if sys.version_info >= (3, 11) else "-I", "-c", check], check=True)


def test_modules_fit_the_head() -> None:
    """No module is longer than 400 lines."""
    assert [] == [f"{p.relative_to(ROOT)}: {n}" for p in CODE if (n := len(p.read_text().splitlines())) > 400]


def test_functions_fit_a_screen() -> None:
    """No function of the product is longer than 50 lines or takes more than 8 parameters."""
    found = []
    for path in PRODUCT:
        for function in _functions(path):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            parameters = (
                len(function.args.posonlyargs) + len(function.args.args) + len(function.args.kwonlyargs)
            )
            if lines > 50 or parameters > 8:
                found.append(
                    f"{path.relative_to(ROOT)}:{function.name}: {lines} lines, {parameters} parameters"
                )
    assert [] == found


def test_every_test_states_its_promise() -> None:
    """Every test has a docstring that says in a sentence what is promised."""
    tests = [p for p in CODE if p.name.startswith("test_")]
    bare = [
        f"{path.name}:{function.name}"
        for path in tests
        for function in _functions(path)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert [] == bare


def test_architecture_page_stays_short() -> None:
    """The page to read first has at most 80 lines."""
    assert len((ROOT / "docs" / "ARCHITECTURE.md").read_text().splitlines()) <= 80


def _functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
