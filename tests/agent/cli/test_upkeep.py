"""``outlive verify`` and ``prune``, on a real store."""

from pathlib import Path

import pytest

from fakes.commands import Cli
from outlive.objects.interface import ObjectStore
from outlive.store import layout
from outlive.store.layout import CheckpointId
from outlive.store.newest import read_manifest
from outlive_agent.cli.progress import progress


def steps(store: ObjectStore) -> list[int]:
    found = [layout.parse_manifest("gpt", info.key) for info in store.list(layout.manifests("gpt"))]
    return [checkpoint.step for checkpoint in found if checkpoint]


def test_a_whole_checkpoint_is_said_to_be_whole(cli: Cli, gpt: ObjectStore) -> None:
    """Every byte was read, and the answer says how many."""
    said = cli("verify", "gpt@400")
    assert said.code == 0
    assert said.out.startswith("gpt, step 400 of life 2, is whole: ")
    answer = cli("verify", "gpt@400", "--json").json
    manifest = read_manifest(gpt, "gpt", CheckpointId(2, 400))
    assert answer["ok"] is True
    assert answer["bytes"] == sum(blob.bytes for blob in set(manifest.blobs()))


@pytest.mark.parametrize("how", ["missing", "altered"])
def test_a_damaged_checkpoint_is_said_to_be_damaged(cli: Cli, gpt: ObjectStore, how: str) -> None:
    """One changed or missing object is found and named, and the exit code tells a script."""
    path = next(Path(gpt.location).glob(f"gpt/chunks/{CheckpointId(2, 400)}/*"))
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    said = cli("verify", "gpt@400")
    assert said.code == 1
    assert said.out.startswith("gpt, step 400 of life 2, is damaged: 1 of 4 objects\n")
    assert f"{path.name} in {gpt.location} is {how}" in said.out
    answer = cli("verify", "gpt@400", "--json")
    assert answer.code == 1
    assert [problem["key"].split("/")[-1] for problem in answer.json["problems"]] == [path.name]


def test_a_damaged_manifest_is_an_error(cli: Cli, gpt: ObjectStore) -> None:
    """A manifest that can't be read is one line on stderr, for show and verify alike."""
    gpt.put(layout.manifest("gpt", CheckpointId(3, 501)), b"{}")
    for verb in ("show", "verify"):
        said = cli(verb, "gpt@501")
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("Error: gpt/checkpoints/000003-000000000501.json is altered")


def test_prune_shows_before_it_does(cli: Cli, gpt: ObjectStore) -> None:
    """Without --yes nothing is touched, and the answer is the command that does it."""
    out = cli("prune", "gpt", "--last", "1").out.splitlines()
    assert out[0] == "gpt: 2 checkpoints would go, 2 stay"
    assert out[1:3] == ["  step 100 of life 1", "  step 300 of life 1"]
    assert out[-2:] == ["Nothing was touched. To remove it:", "  outlive prune gpt --last 1 --yes"]
    assert steps(gpt) == [100, 300, 400, 500]


def test_prune_does_what_it_showed(cli: Cli, gpt: ObjectStore) -> None:
    """With --yes exactly what was shown goes, and never what the newest life resumed from."""
    shown = cli("prune", "gpt", "--last", "1", "--json").json
    done = cli("prune", "gpt", "--last", "1", "--yes", "--json").json
    assert (shown.pop("removed"), done.pop("removed")) == (False, True)
    assert shown == done
    assert [going["step"] for going in done["checkpoints"]] == [100, 300]
    assert steps(gpt) == [400, 500]
    assert cli("verify", "gpt").code == 0


def test_prune_keeps_what_was_asked_for(cli: Cli, gpt: ObjectStore) -> None:
    """Every so many steps, and the best by a metric, stay beside the last ones."""
    answer = cli("prune", "gpt", "--last", "1", "--every", "300 steps", "--json").json
    assert [going["step"] for going in answer["checkpoints"]] == [100]
    answer = cli("prune", "gpt", "--last", "1", "--best=-loss", "--json").json
    assert [going["step"] for going in answer["checkpoints"]] == [300]
    line = cli("prune", "gpt", "--last", "1", "--best=-loss", "--store", gpt.location).out.splitlines()[-1]
    assert line.endswith(f"outlive prune gpt --last 1 --best=-loss --store {gpt.location} --yes")


@pytest.mark.parametrize(
    "flags", [["--last", "0"], ["--last", "x"], ["--every", "300"], ["--every", "0 steps"]]
)
def test_a_policy_without_sense_is_refused(cli: Cli, gpt: ObjectStore, flags: list[str]) -> None:
    """A policy that nobody can mean removes nothing: exit code 2."""
    said = cli("prune", "gpt", *flags, "--yes")
    assert said.code == 2
    assert flags[0] in said.err
    assert steps(gpt) == [100, 300, 400, 500]


def test_a_long_transfer_is_told_quietly_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Off a terminal there is a line every ten seconds and none for what is quick; never on stdout."""
    time = iter([0.0, 1.0, 10.5, 12.0])
    with progress("verifying", clock=lambda: next(time)) as tell:
        tell(1, 4_000_000)
        tell(2_000_000, 4_000_000)
        tell(3_000_000, 4_000_000)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "verifying: 2.0 MB of 4.0 MB (50 %)\n")


def test_prune_says_that_no_checkpoint_has_the_metric(cli: Cli, gpt: ObjectStore) -> None:
    """Who asks for the best by a name that nobody wrote hears so, and which names there are."""
    said = cli("prune", "gpt", "--best", "nosuch")
    assert (
        "Note: no checkpoint has a finite metric 'nosuch', so none stays as the best: they have loss"
        in said.out
    )
    assert "finite metric" not in cli("prune", "gpt", "--best=-loss").out
