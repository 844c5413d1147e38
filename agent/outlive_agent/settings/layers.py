"""Flags over environment over file: one document out of several, that knows where each value was given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from outlive_agent.settings.checks import KeyPath


@dataclass(slots=True)
class Layers:
    """Put the weakest layer first; whatever is put later wins, value by value.

    A store is one thing: a layer that names another location leaves nothing of the weaker layers' store, so
    that no key is ever sent to a place it wasn't given for.
    """

    content: dict[str, object] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)

    def put(self, document: Mapping[str, object], origins: Mapping[KeyPath, str]) -> None:
        """Lay a whole document over what is there."""
        store, new = self.content.get("store"), document.get("store")
        if isinstance(store, Mapping) and isinstance(new, Mapping) and _elsewhere(store, new):
            self._drop("store")
        self._merge(self.content, document, ())
        self.origins.update(origins)

    def put_value(self, path: Sequence[str], value: object, origin: str) -> None:
        """Lay one value over what is there; None is no value."""
        if value is None:
            return
        document: object = value
        for key in reversed(path):
            document = {key: document}
        self.put(cast("Mapping[str, object]", document), {tuple(path): origin})

    def _merge(self, below: dict[str, object], above: Mapping[str, object], path: KeyPath) -> None:
        for key, value in above.items():
            under = below.get(key)
            if isinstance(value, Mapping) and isinstance(under, dict):
                self._merge(under, value, (*path, key))
                continue
            if isinstance(value, Mapping) and under is not None:
                continue  # what stands there is no mapping, and is refused: it must not vanish unseen
            copy: dict[str, object] = {}
            below[key] = value
            if isinstance(value, Mapping):
                self._merge(copy, value, (*path, key))
                below[key] = copy

    def _drop(self, key: str) -> None:
        del self.content[key]
        for known in [known for known in self.origins if known[:1] == (key,)]:
            del self.origins[known]


def _elsewhere(below: Mapping[str, object], above: Mapping[str, object]) -> bool:
    return "location" in above and above["location"] != below.get("location")
