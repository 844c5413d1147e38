"""What a key may be, the same in every store, so that a key that works on S3 also works on a disk."""

from outlive.errors import StoreError

MOST_BYTES = 1000
"""S3 allows 1024 for prefix and key together."""

MOST_PART_BYTES = 250
"""A file name may have 255."""


def check_key(key: str) -> str:
    """The key itself. ``StoreError`` if no store could hold it, or a disk would put it elsewhere."""
    problem = _problem(key)
    if problem:
        raise StoreError(
            f"{key!r} is not a key: {problem}", hint="keys are parts of text with / between them"
        )
    return key


def check_prefix(prefix: str) -> str:
    """The beginning of a key: whole parts, then perhaps the start of one more."""
    whole, _, begun = prefix.rpartition("/")
    problem = (_problem(whole) if whole else "") or unprintable(begun)
    if problem or prefix.startswith("/"):
        raise StoreError(f"{prefix!r} begins no key: {problem or 'it begins with /'}")
    return prefix


def _problem(key: str) -> str:
    if not key:
        return "it is empty"
    hidden = unprintable(key)
    if hidden:
        return hidden
    if len(key.encode()) > MOST_BYTES:
        return f"it is longer than {MOST_BYTES} bytes"
    for part in key.split("/"):
        if part in ("", ".", ".."):
            return f"it has the part {part!r}"
        if len(part.encode()) > MOST_PART_BYTES:
            return f"it has a part longer than {MOST_PART_BYTES} bytes"
    return ""


def unprintable(text: str) -> str:
    """What keeps this text out of keys and out of messages; empty if nothing does."""
    for character in text:
        if ord(character) < 32 or ord(character) == 127 or 0xD800 <= ord(character) <= 0xDFFF:
            return f"it has the character {character!r}"
    return ""
