"""``outlive ls``, ``show`` and ``history``, on a real store."""

from pathlib import Path

import pytest

from fakes.checkpoints import begin, snapshot
from fakes.commands import Cli
from fakes.servers import shared
from outlive.objects.credentials import Credentials
from outlive.objects.interface import ObjectStore
from outlive.objects.location import open_store
from outlive.store import layout
from outlive.store.events import EventLog
from outlive.store.layout import CheckpointId


def test_an_empty_store_says_how_to_begin(cli: Cli, place: Path) -> None:
    """Where nothing is yet, the answer is the first command, not an error."""
    said = cli("ls")
    assert said.code == 0
    assert said.out.splitlines() == [
        f"No run in {place / 'store'} yet.",
        "Begin with: outlive exec -- python train.py",
    ]
    assert cli("ls", "--json").json == {"store": str(place / "store"), "runs": []}


def test_the_local_default_need_not_exist(cli: Cli, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """A new user has no directory yet; one that was named and isn't there is a mistake."""
    monkeypatch.delenv("OUTLIVE_STORE")
    assert "home/.local/share/outlive yet." in cli("ls").out
    said = cli("ls", str(place / "no" / "such"))
    assert said.code == 1
    assert said.err.startswith(
        f"Error: {place / 'no' / 'such'}: the directory {place / 'no'} does not exist\nTry:   "
    )


def test_ls_shows_how_each_run_stands(cli: Cli, gpt: ObjectStore) -> None:
    """A line a run: the newest step, when it was saved, how the last life ended."""
    begin(gpt, "other")
    lines = cli("ls").out.splitlines()
    assert lines[0].split() == [
        "RUN",
        "STEP",
        "SAVED",
        "AGO",
        "SIZE",
        "KEPT",
        "LIVES",
        "LAST",
        "LIFE",
        "MACHINE",
    ]
    assert lines[1].split()[:2] == ["gpt", "500"]
    assert lines[1].split()[-5:] == ["kB", "4", "3", "failed", "host-a"]
    assert "UTC" in lines[1]
    assert "other" in lines[2]
    assert "nothing yet" in lines[2]
    assert "not ended" in lines[2]
    assert lines[-1] == f"2 runs in {gpt.location}"
    first = cli("ls", gpt.location, "--json").json["runs"][0]
    assert (first["run"], first["step"], first["checkpoints"], first["last_life"]) == (
        "gpt",
        500,
        4,
        "failed",
    )
    assert first["saved_at"].endswith("Z")


def test_ls_of_a_run_shows_what_a_resume_would_try(cli: Cli, gpt: ObjectStore) -> None:
    """The checkpoints in order of preference; what is damaged says so before anyone counts on it."""
    answer = cli("ls", "gpt", "--json").json["checkpoints"]
    assert [(found["life"], found["step"], found["state"]) for found in answer] == [
        (3, 500, "newest"),
        (2, 400, "whole"),
        (1, 300, "whole"),
        (1, 100, "whole"),
    ]
    assert answer[1]["parent"] == {"life": 1, "step": 300}
    assert answer[1]["new_bytes"] < answer[1]["bytes"]
    hurt = CheckpointId(3, 500)
    gpt.delete([next(info.key for info in gpt.list(f"{layout.chunks('gpt')}{hurt}/"))])
    gpt.put(layout.manifest("gpt", CheckpointId(3, 512)), b"{}")
    lines = cli("ls", "gpt").out.splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == ["manifest", "damaged", "newest"]
    assert lines[1].split()[0] == "512"
    assert "loss 0.0025" in lines[3]


def test_a_rewind_shows_what_it_left_behind(cli: Cli, gpt: ObjectStore) -> None:
    """After a deliberate rewind the abandoned checkpoints are last and marked, and can still be shown."""
    begin(gpt, back_to=CheckpointId(1, 300)).commit(snapshot(301, b"new"))
    answer = cli("ls", "gpt", "--json").json["checkpoints"]
    assert [(found["step"], found["state"]) for found in answer] == [
        (301, "newest"),
        (300, "whole"),
        (100, "whole"),
        (500, "abandoned"),
        (400, "abandoned"),
    ]
    assert "step 500 of life 3" in cli("show", "gpt@500").out
    assert "(rewind)" in cli("history", "gpt").out


@pytest.mark.parametrize("name", ["gpt@400", "gpt@2-400", "gpt@2:400", "gpt@2-000400"])
def test_show_tells_what_a_checkpoint_holds(cli: Cli, gpt: ObjectStore, name: str) -> None:
    """One checkpoint, however it is named: when, why, how large, from where, and what is in it."""
    out = cli("show", name).out
    assert out.startswith("gpt, step 400 of life 2\n")
    assert "(interval)" in out
    assert "step 300 of life 1" in out
    assert "loss 0.0025" in out
    assert out.splitlines()[-1].split() == ["model", "2", "10,304", "10.3", "kB"]
    assert "model/1" in cli("show", name, "--tensors").out
    answer = cli("show", name, "--json").json
    assert [tensor["shape"] for tensor in answer["tensors"]] == [[10240], [64]]
    assert answer["parent"] == {"life": 1, "step": 300}


def test_a_step_that_two_lives_saved(cli: Cli, gpt: ObjectStore) -> None:
    """A step alone means the checkpoint that a resume would prefer; with its life, that one and no other."""
    begin(gpt, back_to=CheckpointId(1, 300)).commit(snapshot(400, b"again"))
    assert cli("show", "gpt@400", "--json").json["life"] == 4
    assert cli("show", "gpt@2-400", "--json").json["life"] == 2
    assert cli("show", "gpt@3-400").code == 1


def test_show_without_a_step_means_the_newest(cli: Cli, gpt: ObjectStore) -> None:
    """A run alone stands for the checkpoint that it would resume from."""
    assert cli("show", "gpt", "--json").json["step"] == 500


@pytest.mark.parametrize("verb", ["ls", "show", "history", "verify", "prune"])
def test_an_unknown_run_is_answered_with_the_nearest(cli: Cli, gpt: ObjectStore, verb: str) -> None:
    """A mistyped run is one line, with the name that was perhaps meant."""
    said = cli(verb, "gtp")
    assert (said.code, said.out) == (1, "")
    assert said.err == f"Error: there is no run gtp in {gpt.location}\nTry:   did you mean gpt?\n"


@pytest.mark.parametrize("verb", ["show", "verify"])
def test_an_unknown_step_is_answered_with_the_nearest(cli: Cli, gpt: ObjectStore, verb: str) -> None:
    """A step without a checkpoint is one line, with those that are near."""
    said = cli(verb, "gpt@390")
    assert said.code == 1
    assert said.err.splitlines() == [
        f"Error: run gpt in {gpt.location} has no checkpoint 390",
        "Try:   the nearest: gpt@300, gpt@400, gpt@500",
    ]
    begin(gpt, "other")
    assert "has no checkpoint yet" in cli(verb, "other").err


@pytest.mark.parametrize("name", ["gpt@", "gpt@x", "gpt@1-2-3", "@3", "a/b@3", "gpt@-1", "gpt@³"])
def test_a_checkpoint_that_nobody_can_mean(cli: Cli, gpt: ObjectStore, name: str) -> None:
    """A name of no possible form is a mistake in the command line: exit code 2, before any store is asked."""
    said = cli("show", name)
    assert said.code == 2
    assert said.err.startswith("Error: argument RUN[@STEP]: ")
    assert said.err.endswith("Try:   outlive show --help\n")


def test_history_tells_each_life(cli: Cli, gpt: ObjectStore) -> None:
    """A line a life: where it came from, how far it got, how it ended, what was lost, how it recovered."""
    lines = cli("history", "gpt").out.splitlines()
    assert lines[0].split() == ["LIFE", "BEGAN", "AGO", "MACHINE", "FROM", "TO", "ENDED", "LOST", "RECOVERY"]
    told = [line.split("host-a")[1].split() for line in lines[1:4]]
    assert told == [
        ["0", "300", "reclaimed,", "saved", "0", "3.2", "s"],
        ["300", "400", "vanished", "?", "3.2", "s"],
        ["400", "512", "failed", "12", "3.2", "s"],
    ]
    assert lines[-1] == "3 lives, step 512 reached, 12 steps lost, besides what vanished lives had not saved"


def test_history_tells_why_a_training_failed(cli: Cli, store: ObjectStore) -> None:
    """What the training said as it failed stands below the lives and among the events."""
    life = begin(store)
    log = EventLog(store, life.life)
    log.write("crashed", how="exit code 1", step=5, message="OSError: no file", restart=1)
    log.write("ended", outcome="failed", step=9, seconds=1.0, message="ValueError: a bad batch")
    assert "\nlife 1 failed: ValueError: a bad batch\n" in cli("history", "gpt").out
    told = cli("history", "gpt", "--events").out
    assert "the command crashed at step 5 (OSError: no file)" in told
    assert "failed at step 9 after 1.0 s: ValueError: a bad batch" in told
    assert cli("history", "gpt", "--json").json["lives"][0]["why"] == "ValueError: a bad batch"


def test_history_tells_what_happened(cli: Cli, gpt: ObjectStore) -> None:
    """With --events every event is a sentence, in order; an unknown one is shown as it is."""
    gpt.put(
        layout.history("gpt", 3, sequence=77, event="danced"),
        b'{"format":"outlive/event","version":1,"life":3,"event":"danced",'
        b'"at":"2026-11-30T23:42:43.123Z","partner":"b"}',
    )
    gpt.put(layout.history("gpt", 3, sequence=78, event="broken"), b"rubbish")
    out = cli("history", "gpt", "--events").out
    assert out.count("agent started (exec)") == 3
    assert "reclaim announced by inbox, 2 h left" in out
    assert "restored step 300 of life 1 from s3://bucket/runs: 10.2 kB in 250 ms" in out
    assert "failed at step 512 after 1 min: 1 checkpoint, 9.0 kB sent" in out
    assert "2026-11-30 23:42:43 UTC  danced: partner b" in out
    assert out.index("nothing to resume from") < out.index("restored step 300") < out.index("danced")


def test_history_for_programs(cli: Cli, gpt: ObjectStore) -> None:
    """The same as one document, with what isn't known as null."""
    lives = cli("history", "gpt", "--json").json["lives"]
    assert [life["ended"] for life in lives] == ["stopped", "vanished", "failed"]
    assert [life["steps_lost"] for life in lives] == [0, None, 12]
    assert [life["resumed_from"] for life in lives] == [
        None,
        {"life": 1, "step": 300},
        {"life": 2, "step": 400},
    ]
    assert lives[0]["recovery_seconds"] == 3.21
    assert [event["event"] for event in lives[1]["events"]] == ["started", "restored", "training"]
    assert lives[0]["command"] == ["python", "train.py"]


def test_steps_are_lost_when_the_next_life_falls_back(cli: Cli, gpt: ObjectStore) -> None:
    """What a life saved and the next one could not use counts as lost, whatever the life itself had said."""
    order = CheckpointId(3, 500)
    gpt.delete([layout.manifest("gpt", order)])
    begin(gpt)
    lives = cli("history", "gpt", "--json").json["lives"]
    assert lives[2]["steps_lost"] == 112
    assert (lives[3]["ended"], lives[3]["from_step"]) == ("open", 400)


def test_text_from_a_store_can_not_steer_a_terminal(cli: Cli, gpt: ObjectStore) -> None:
    """Whoever can write into the bucket can't move the cursor of those who read it."""
    life = begin(gpt)
    life.commit(snapshot(600, b"a", metrics={"\x1b[2Jloss\x07": 1.0}))
    for out in (cli("ls", "gpt").out, cli("show", "gpt").out):
        assert "\x1b" not in out
        assert "?[2Jloss?" in out


def test_a_place_that_is_no_store_is_no_empty_one(cli: Cli, gpt: ObjectStore, place: Path) -> None:
    """A directory that isn't there, a file, nothing at all: each is refused on one line."""
    (place / "file").write_bytes(b"")
    missing = cli("ls", str(place / "store" / ".." / "r"))
    assert (missing.code, missing.out) == (78, "")
    assert "there is no directory" in missing.err
    for arguments in (
        ("ls", "--store", str(place / "file")),
        ("ls", "gpt", "--store", ""),
        ("ls", "--store", " "),
    ):
        said = cli(*arguments)
        assert (said.code, said.out) == (78, "")
        assert said.err.startswith("Error: ")


@pytest.mark.parametrize("verb", ["show", "history", "verify", "prune", "status"])
def test_a_run_that_no_store_can_hold(cli: Cli, gpt: ObjectStore, verb: str) -> None:
    """A name with a / in it is refused by every verb that takes a run."""
    said = cli(verb, "../r")
    assert (said.code, said.out) == (2, "")
    assert "can't be called '../r'" in said.err


def test_a_bucket_is_named_on_the_command_line(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a desk without a configuration, store and endpoint can be given to a verb, as they are to exec."""
    server = shared("moto")
    monkeypatch.setenv("OUTLIVE_S3_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("OUTLIVE_S3_SECRET_ACCESS_KEY", server.secret_key)
    there = ("--store", server.location("desk"), "--endpoint", server.endpoint, "--region", "us-east-1")
    assert "No run in" in cli("ls", *there).out
    keys = Credentials(access_key=server.access_key, secret_key=server.secret_key)
    begin(open_store(server.location("desk"), credentials=keys, endpoint=server.endpoint), "far")
    assert "far" in cli("ls", *there).out
    assert cli("history", "far", *there).code == 0
