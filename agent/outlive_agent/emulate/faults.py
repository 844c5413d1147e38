"""How a metadata server fails. A fault strikes the question of notices; with ``token-``, the token's."""

import re
from dataclasses import dataclass

NAMES = ("hang", "reset", "garbage", "drip", "huge", "redirect", "html", "empty")
_PATTERN = re.compile(rf"(token-)?([45][0-9][0-9]|{'|'.join(NAMES)})(-once|:[0-9]{{1,4}})?")


@dataclass(slots=True)
class Fault:
    """``left``: how often it strikes yet; None for ever."""

    name: str
    token: bool = False
    left: int | None = None

    def strikes(self, *, token: bool) -> bool:
        """Whether it strikes this question; counts."""
        if token != self.token or self.left == 0:
            return False
        if self.left is not None:
            self.left -= 1
        return True


def parse_fault(text: str) -> Fault:
    """``503``, ``401-once``, ``hang:3`` or ``token-hang``. ``ValueError`` says what is allowed."""
    found = _PATTERN.fullmatch(text)
    if found is None:
        names = ", ".join(NAMES)
        raise ValueError(f"a status such as 503, or {names}; with -once or :COUNT, and token- before it")
    count = found[3] or ""
    left = 1 if count == "-once" else int(count[1:]) if count else None
    return Fault(name=found[2], token=bool(found[1]), left=left)
