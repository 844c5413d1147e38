"""What a rehearsal sees of a script's variables."""

import runpy
from pathlib import Path

SCRIPT = """
import sys
from outlive.train.around import Around

def main():
    own = 7
    return Around(set()).of(sys._getframe())

seen = main()
"""


def test_only_the_scripts_own_variables_are_seen(tmp_path: Path) -> None:
    """What Python itself holds while it runs a script, as under ``python -m``, is none of the script's."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    seen = runpy.run_path(str(script))["seen"]
    assert seen["own in main()"] == "7"
    assert not [name for name in seen if "_run_" in name or "temp_" in name]
