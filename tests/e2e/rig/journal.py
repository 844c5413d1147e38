"""The guest's journal, read from its disk: the same while it runs and after it died."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from e2e.rig.processes import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the journal, with every field it carries."""

    at: datetime
    boot: str
    unit: str
    message: str
    priority: int
    fields: Mapping[str, str]

    def __str__(self) -> str:
        return (
            f"{self.at:%H:%M:%S.%f} {self.unit or self.fields.get('SYSLOG_IDENTIFIER', '-')}: {self.message}"
        )


class Journal:
    """Reads `/var/log/journal` of one disk, every boot of it, oldest line first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entries(self, *, unit: str = "", boot: str = "", matches: tuple[str, ...] = ()) -> list[Entry]:
        """The lines of `unit` (also what systemd says about it), of the boot with that id, with all `matches`
        (`FIELD=value`, as journalctl takes them)."""
        if not self._folder.is_dir():
            return []
        arguments = ["journalctl", "-D", str(self._folder), "-o", "json", "--all", "--no-pager", "--quiet"]
        arguments += ["-u", unit] if unit else []
        arguments += [f"_BOOT_ID={boot}"] if boot else []  # --boot fails where the journal has none yet
        text = run([*arguments, *matches]).stdout
        return [_entry(json.loads(line)) for line in text.splitlines()]

    def messages(self, *, unit: str = "", boot: str = "") -> list[str]:
        """Just what the lines say."""
        return [entry.message for entry in self.entries(unit=unit, boot=boot)]

    def boots(self) -> list[str]:
        """The id of each boot of this disk, oldest first."""
        return list(dict.fromkeys(entry.boot for entry in self.entries()))

    def tail(self, lines: int = 30) -> str:
        """The last lines as text, for a failure's message."""
        return "\n".join(str(entry) for entry in self.entries()[-lines:])


def _entry(raw: Mapping[str, object]) -> Entry:
    fields = {name: _text(value) for name, value in raw.items()}
    micros = int(fields["__REALTIME_TIMESTAMP"])
    return Entry(
        at=datetime.fromtimestamp(micros / 1_000_000, tz=timezone.utc),
        boot=fields.get("_BOOT_ID", ""),
        unit=fields.get("UNIT") or fields.get("_SYSTEMD_UNIT", ""),
        message=fields.get("MESSAGE", ""),
        priority=int(fields.get("PRIORITY", "6")),
        fields=fields,
    )


def _text(value: object) -> str:
    """journalctl gives bytes that aren't text as numbers, and a field that is there twice as a list."""
    if isinstance(value, list):
        if all(isinstance(item, int) for item in value):
            return bytes(value).decode(errors="replace")
        return "\n".join(_text(item) for item in value)
    return "" if value is None else str(value)
