"""``run.state``: the plain values of a run, as attributes."""

from collections.abc import Iterator, Mapping
from typing import Any


class Unseen:
    """What a checkpoint has brought and the script has not looked at so far."""

    def __init__(self, saved: Mapping[str, Any]) -> None:
        self._left = dict(saved)
        self._replaced: dict[str, Any] = {}

    def read(self, name: str) -> None:
        """The script has looked at it: it may do what it likes with it."""
        self._left.pop(name, None)

    def write(self, name: str) -> None:
        """The script has set it."""
        if name in self._left:
            self._replaced[name] = self._left.pop(name)

    def replaced(self) -> dict[str, Any]:
        """What was set before anyone had looked at it, each told once."""
        told, self._replaced = self._replaced, {}
        return told


class State:
    """A bag of attributes. What they hold is checked when it is saved, not when it is set."""

    __slots__ = ("__unseen", "__values")

    def __init__(self, values: Mapping[str, Any], unseen: Unseen | None = None) -> None:
        self.__values: dict[str, Any]
        self.__unseen: Unseen
        object.__setattr__(self, "_State__values", dict(values))
        object.__setattr__(self, "_State__unseen", unseen or Unseen({}))

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return self.__values

    # A type checker can't know the user's names.
    def __getattr__(self, name: str) -> Any:
        if name.startswith("_State__"):
            raise AttributeError(name)  # of one that is being copied, and has no values yet
        self.__unseen.read(name)
        try:
            return self.__values[name]
        except KeyError:
            known = ", ".join(sorted(self.__values)) or "nothing yet"
            raise AttributeError(f"run.state has no {name!r}; it holds {known}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.__unseen.write(name)
        self.__values[name] = value

    def __delattr__(self, name: str) -> None:
        if name not in self.__values:
            raise AttributeError(f"run.state has no {name!r}")
        del self.__values[name]

    def __contains__(self, name: str) -> bool:
        return name in self.__values

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.__values))

    def __len__(self) -> int:
        return len(self.__values)

    def __repr__(self) -> str:
        return f"State({', '.join(f'{name}={value!r}' for name, value in self.__values.items())})"
