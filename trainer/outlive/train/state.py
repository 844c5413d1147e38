"""``run.state``: the plain values of a run, as attributes."""

from collections.abc import Iterator, Mapping
from typing import Any


class State:
    """A bag of attributes. What they hold is checked when it is saved, not when it is set."""

    __slots__ = ("__dict__",)

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

    # A type checker can't know the user's names.
    def __getattr__(self, name: str) -> Any:
        known = ", ".join(sorted(self.__dict__)) or "nothing yet"
        raise AttributeError(f"run.state has no {name!r}; it holds {known}")

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.__dict__))

    def __len__(self) -> int:
        return len(self.__dict__)

    def __repr__(self) -> str:
        return f"State({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"
