"""Words for systemd: unit files and environment files, in which no value becomes anything but itself."""

import re
from collections.abc import Iterable, Mapping

_PLAIN = re.compile(r"[A-Za-z0-9_./=:,@+-]+")


def word(text: str) -> str:
    """One word of a command line or an assignment: no specifier, no variable, no separator."""
    if _PLAIN.fullmatch(text):
        return text
    return '"' + "".join(_escaped(char) for char in text).replace("%", "%%").replace("$", "$$") + '"'


def assignment(name: str, value: str) -> str:
    """A word for ``Environment=``, in which a dollar sign stands for itself."""
    return word(f"{name}={value}").replace("$$", "$")


def path(text: str) -> str:
    """A path for a setting that takes one path, unquoted, or several."""
    return text.replace("%", "%%")


def command(words: Iterable[str]) -> str:
    return " ".join(word(text) for text in words)


def environment_file(variables: Mapping[str, str]) -> str:
    """Lines for ``EnvironmentFile=``: other rules than those of unit files."""
    lines = []
    for name, value in variables.items():
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'{name}="{quoted}"')
    return "\n".join(lines)


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isascii() and char.isprintable():
        return char
    return f"\\x{ord(char):02x}" if ord(char) < 0x80 else f"\\U{ord(char):08x}"
