"""Reads the single values of a job file; ``ValueError`` carries what is allowed."""

import re
from dataclasses import dataclass

from outlive_agent.bootstrap.size import LIMITS
from outlive_agent.settings.readers import matching

_SECRET_NAME = re.compile(
    r"(?:SECRET|PASSWORD|PASSWD|TOKEN|API_?KEY|ACCESS_?KEY(?:_ID)?|PRIVATE_?KEY)$", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"(?:AKIA|ASIA|DO00|DO801)[A-Z0-9]{12,}|(?:gh[pousr]|hf|sk|dop_v1)_\w{16,}|github_pat_\w{16,}|sk-[\w-]{16,}"
    r"|-----BEGIN|//[^/\s]*:[^/\s]*@"
)
_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,99}$"
_NO_PRINT = "text without line breaks and control characters"
_REFERENCE = "{from_env: NAME}, and set NAME where you run `outlive user-data`; this looks like a secret"

https = matching(r"^https://[^@?#\s]+$", "an https URL without user and password in it")
git_url = matching(
    r"^(?:https://[^@?#\s]+|git@[\w.-]+:[\w./~-]+|ssh://[\w.@/:~-]+|file:///[^\s]+)$",
    "a git URL, such as https://github.com/me/training.git; if it is private, add token: {from_env: NAME}",
)
git_ref = matching(r"^[A-Za-z0-9_][\w./+-]{0,254}$", "a branch, a tag or a commit")
package = matching(
    r"^(?:outlive(?:\[[a-z,]+\])?(?:\s*(?:===?|~=|>=)[\w.!+*,<>=~ ]+|\s*@\s*\S+)?|(?:git\+)?https://[^\s@]+(?:@[\w./-]+)?|/\S+\.whl)$",
    "what pip installs: outlive==1.2, https://...whl, git+https://..., or a wheel's path on the machine",
)
name = matching(_NAME, "the name of an environment variable")
absolute_path = matching(r"^/[\w./@+-]*$", "an absolute path of A-Z a-z 0-9 . _ / @ + -")
inner_path = matching(
    r"^(?!/)(?!(?:.*/)?\.\.(?:/|$))[\w./@+-]+$",
    "a path within the source, of A-Z a-z 0-9 . _ / @ + - and without ..",
)
python = matching(
    r"^(?:python3(?:\.\d+)?|/[\w./@+-]+)$", "python3, python3.12, or a path such as /opt/conda/bin/python"
)
provider = matching(f"^(?:{'|'.join(LIMITS)})$", " or ".join(LIMITS))
_user = matching(r"^(?!root$)[a-z_][a-z0-9_-]{0,31}$", "a user's name, such as train")


def is_name(text: str) -> bool:
    return bool(re.fullmatch(_NAME, text))


@dataclass(frozen=True, slots=True)
class FromEnv:
    """A value that stands in this variable when user-data is made."""

    name: str


def from_env(value: object) -> FromEnv:
    if not isinstance(value, dict) or list(value) != ["from_env"]:
        raise ValueError("{from_env: NAME}; the value itself doesn't belong here")
    return FromEnv(name(value["from_env"]))


def variable(variable_name: str, value: object) -> str | FromEnv:
    """The value of one variable of the training's environment."""
    if isinstance(value, dict):
        return from_env(value)
    if isinstance(value, list) or value is None:
        raise ValueError("text, a number, true, false, or {from_env: NAME}")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if not text.isprintable():
        raise ValueError(_NO_PRINT)
    if text and (_SECRET_NAME.search(variable_name) or _SECRET_VALUE.search(text)):
        raise ValueError(_REFERENCE)
    return text


def requirements(value: object) -> str | tuple[str, ...]:
    """A file in the source, or the lines of one."""
    if isinstance(value, str):
        return inner_path(value)
    if isinstance(value, list) and all(isinstance(line, str) and line.isprintable() for line in value):
        if any(_SECRET_VALUE.search(line) for line in value):
            raise ValueError("no secrets; put them into a file that pip reads on the machine")
        return tuple(value)
    raise ValueError(
        "a file in the source, such as requirements.txt, or a list such as [numpy, 'torch==2.9']"
    )


def paths(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("a list of absolute paths")  # noqa: TRY004 - the readers' one way to say no
    return tuple(absolute_path(path) for path in value)


def user(value: object) -> str:
    if value == "root":
        raise ValueError("another user than root, who could read the keys")
    return _user(value)
