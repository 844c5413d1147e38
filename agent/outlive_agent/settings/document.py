"""YAML text to plain values with the line of each, or a readable complaint; never an object or a date.

The rules are those of YAML 1.2, as editors check: ``yes`` and ``2026-11-30`` are text, ``1:30`` is no number.
Aliases are refused (a few lines of them can stand for gigabytes), and complaints never quote the file, which
may hold a secret by mistake.
"""

import re
from contextlib import closing
from dataclasses import dataclass, field

import yaml

from outlive.errors import ConfigError
from outlive_agent.settings.checks import KeyPath

DEEPEST = 20


@dataclass(slots=True)
class Document:
    """A file's content. ``lines`` counts from 1; ``repeated`` are keys that stand twice in one mapping."""

    content: object = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    repeated: list[KeyPath] = field(default_factory=list)


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's core schema, without aliases, and not too deep to walk."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's way
    depth = 0

    def close(self) -> None:
        self.dispose()

    def current_mark(self) -> yaml.Mark:
        mark: yaml.Mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        return mark

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) can't be used", problem_mark=self.current_mark()
            )
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.MarkedYAMLError(problem="too deep", problem_mark=self.current_mark())
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _tag, _pattern, _first in (
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?[0-9]{1,18}$", list("-+0123456789")),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def parse(text: str, *, name: str, verbatim: frozenset[KeyPath] = frozenset()) -> Document:
    """Read one document. Scalars in the lists ``verbatim`` stay as written: ``1e-3`` is not 0.001 there."""
    document = Document()
    try:
        with closing(_Loader(text)) as loader:
            node = loader.get_single_node()
        if node is not None:
            document.content = _plain(node, (), document=document, verbatim=verbatim)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(f"{name}{_place(error)}: {_reason(error, text)}", hint=_HINT) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{name}, line {line}: a character that YAML doesn't allow", hint=_HINT) from None
    return document


_HINT = "YAML needs 'key: value' lines, indented with spaces"


def _plain(node: yaml.Node, path: KeyPath, *, document: Document, verbatim: frozenset[KeyPath]) -> object:
    document.lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        content: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "?"
            child = (*path, key)
            if key in content:
                document.repeated.append(child)
            content[key] = _plain(value_node, child, document=document, verbatim=verbatim)
            document.lines[child] = key_node.start_mark.line + 1
        return content
    if isinstance(node, yaml.SequenceNode):
        return [_plain(n, (*path, i), document=document, verbatim=verbatim) for i, n in enumerate(node.value)]
    return _scalar(node, keep=path[:-1] in verbatim)


def _scalar(node: yaml.Node, *, keep: bool) -> object:
    kind, text = node.tag.removeprefix("tag:yaml.org,2002:"), str(node.value)
    if kind not in {"null", "bool", "int", "float", "str"}:
        raise yaml.MarkedYAMLError(problem="tags (!name) can't be used", problem_mark=node.start_mark)
    try:
        if kind == "null":
            return None
        if kind == "str" or keep:
            return text
        return text.lower() == "true" if kind == "bool" else int(text) if kind == "int" else float(text)
    except ValueError:
        raise yaml.MarkedYAMLError(problem=f"this is no {kind}", problem_mark=node.start_mark) from None


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""


def _reason(error: yaml.MarkedYAMLError, text: str) -> str:
    """PyYAML's complaint, in words that help; its own quote of the file is left out."""
    mark = error.problem_mark
    lines = text.splitlines()
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "\t" in line:
        return "there is a tab here; YAML wants spaces"
    problem = error.problem or ""
    return next(
        (ours for theirs, ours in _REASONS if theirs in problem), re.sub(r"'.*'", "that", problem)[:120]
    )


_REASONS = (
    ("mapping values are not allowed", "a colon where none can be; use quotes, or check the indentation"),
    ("expected ',' or", "a bracket that isn't closed, or a comma that is missing"),
    ("end of stream", "a quote that isn't closed"),
    ("cannot start any token", "text that begins like this needs quotes"),
    ("another document", "a second document begins; only one can be read"),
    ("block end", "the indentation doesn't fit the lines above"),
    ("could not find expected ':'", "a colon is missing"),
)
