"""The sentence about the last save: its figures, and who it is that gives no more time."""

import stat
from pathlib import Path

import pytest

from outlive_agent.doctor.checkpoint import State
from outlive_agent.doctor.fit import Speeds, largest, last_save, needed_rate, save_seconds
from outlive_agent.doctor.surroundings import Around
from outlive_agent.doctor.units_seen import UnitsSeen, units_seen
from outlive_agent.doctor.window import Window, shortest, stop
from outlive_agent.settings.readers import every
from outlive_agent.settings.values import Every
from outlive_agent.sources.providers import PROVIDERS

SPEEDS = Speeds(copy=2e9, upload=120e6)
AWS = Window(seconds=120.0, whose="AWS EC2")


def state(size: float, *, sent: float | None = None, step_seconds: float | None = None) -> State:
    return State(
        whole_bytes=int(size),
        sent_bytes=int(size if sent is None else sent),
        source="a test",
        step_seconds=step_seconds,
    )


def around(name: str | None = None, *inside: str) -> Around:
    provider = None if name is None else PROVIDERS[name]
    return Around(provider=provider, inside=[PROVIDERS[one] for one in inside], how="a test")


def test_a_save_that_does_not_fit() -> None:
    """Size, need, window, loss in time and steps, and both ways out: oftener, or faster."""
    found = last_save(state(15e9, step_seconds=0.5), SPEEDS, AWS, every=Every())
    assert found.level == "warning"
    assert found.seen == (
        "a final save of 15.0 GB needs about 3 min 20 s here (copy 7.5 s, upload 2 min 5 s, and half as "
        "much again); AWS EC2 gives 2 min: it would not fit, "
        "up to 15 min of training, about 1,800 steps, may be lost"
    )
    assert found.change == (
        "save: {every: 5 min}, so that no more than that is lost; "
        "or 210 MB/s of upload: a bucket nearer, another machine"
    )
    assert found.figures["fits"] is False


def test_a_save_that_may_just_fit() -> None:
    """The agent will try what fits without the margin, so that is not called lost."""
    found = last_save(state(12e9), SPEEDS, AWS, every=Every())
    assert (found.level, found.figures["fits"]) == ("warning", False)
    assert "it fits only if nothing goes slower; else up to 15 min of training may be lost" in found.seen


def test_a_save_that_fits() -> None:
    """What lies in the store already is not sent again, so a frozen base costs a copy alone."""
    found = last_save(state(14.2e9, sent=1e9), SPEEDS, AWS, every=Every())
    assert (found.level, found.figures["fits"], found.change) == ("ok", True, "")
    assert "(1.0 GB of it to send)" in found.seen


@pytest.mark.parametrize(
    ("interval", "lost"),
    [("200 steps", "up to 200 steps may be lost"), ("5 min", "up to 5 min of training may be lost")],
)
def test_what_is_lost(interval: str, lost: str) -> None:
    """The configured interval bounds the loss."""
    assert lost in last_save(state(14.2e9), SPEEDS, AWS, every=every(interval)).seen


def test_saving_oftener_is_no_advice_where_it_is_done() -> None:
    """An upload that takes longer than the interval leaves a smaller state, or a faster way."""
    found = last_save(state(14.2e9), SPEEDS, AWS, every=every("2 min"))
    assert "save: {every" not in found.change
    huge = last_save(state(140e9), SPEEDS, Window(seconds=600.0, whose="Azure"), every=Every())
    assert "up to 38 min 53 s of training may be lost" in huge.seen
    assert "smaller state" in huge.change


def test_a_rate_that_nobody_has_is_no_advice() -> None:
    """30 s for 60 GB: only saving oftener is said."""
    found = last_save(state(60e9), SPEEDS, Window(seconds=30.0, whose="Azure"), every=Every())
    assert "of upload" not in found.change


@pytest.mark.parametrize("seconds", [5.0, 30.0, 120.0, 7200.0])
def test_the_largest_state_just_fits(seconds: float) -> None:
    """Both directions of the arithmetic agree: what is named as the largest needs the whole window."""
    window = Window(seconds=seconds, whose="somebody")
    assert save_seconds(state(largest(window, SPEEDS)), SPEEDS) == pytest.approx(seconds, rel=1e-6)
    found = last_save(None, SPEEDS, window, every=Every())
    assert (found.level, found.figures["largest_bytes"]) == ("ok", int(largest(window, SPEEDS)))
    assert "12 bytes a parameter" in found.seen


def test_no_notice_at_all() -> None:
    """Where processes are killed without a word, periodic saves alone count, whatever the size."""
    window = Window(seconds=0.0, whose="Vast.ai")
    assert "Vast.ai gives no notice" in last_save(state(1e6), SPEEDS, window, every=Every()).seen
    assert last_save(None, SPEEDS, window, every=Every()).level == "warning"
    assert needed_rate(None, window).level == "warning"


def test_from_a_desk() -> None:
    """Without the machine's rate: the one that it must have, or that nobody has it."""
    assert needed_rate(state(14e9), AWS).figures["needed_bytes_per_second"] == int(1.5 * 14e9 / (120 - 2.5))
    assert needed_rate(state(140e9), AWS).level == "warning"
    assert needed_rate(state(14e9), None).level == "warning"


@pytest.mark.parametrize(
    ("where", "grace", "given", "expected"),
    [
        (around("aws"), None, None, (120.0, "AWS EC2")),
        (around("aws", "kubernetes"), None, None, (30.0, "Kubernetes")),
        (around("aws", "kubernetes"), 300.0, None, (120.0, "AWS EC2")),
        (around(None, "kubernetes"), 300.0, None, (300.0, "who stops it (OUTLIVE_STOP_WINDOW)")),
        (around(), 40.0, None, (40.0, "who stops it (OUTLIVE_STOP_WINDOW)")),
        (around("digitalocean"), None, None, (7200.0, "DigitalOcean's mail, if it is passed on,")),
        (around("aws"), None, 15.0, (15.0, "the window you gave")),
        (around("tencent"), None, None, None),
        (around(), None, None, None),
    ],
)
def test_the_shortest_window_counts(
    where: Around, grace: float | None, given: float | None, expected: tuple[float, str] | None
) -> None:
    """Of all who may end it, the one that gives least; what the user says wins."""
    found = shortest(where, grace=grace, given=given)
    assert (None if found is None else (found.seconds, found.whose)) == expected


def test_unit_times_against_the_window() -> None:
    """A training that may use the whole window to stop leaves nothing for the upload."""
    units = UnitsSeen(train=30.0, agent=20.0)
    assert [f.level for f in stop(units, Window(seconds=30.0, whose="Azure"), {}, grace=None)] == ["warning"]
    assert [f.level for f in stop(units, AWS, {}, grace=None)] == ["ok"]
    assert [f.level for f in stop(None, AWS, {}, grace=None)] == []


def test_pods_and_jobs() -> None:
    """A pod's grace can't be found out, so it is asked for; a job's end is told."""
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert [f.level for f in stop(None, None, pod, grace=None)] == ["warning"]
    assert [f.level for f in stop(None, None, pod, grace=60.0)] == ["ok"]
    job = {"SLURM_JOB_ID": "7"}
    assert [f.level for f in stop(None, None, job, grace=None)] == ["warning"]
    told = stop(None, None, {**job, "SLURM_JOB_END_TIME": "10000"}, grace=None, now=4000.0)
    assert [(f.level, f.figures["seconds_left"]) for f in told] == [("ok", 6000)]
    over = stop(None, None, {**job, "SLURM_JOB_END_TIME": "10000"}, grace=None, now=10001.0)
    assert [f.level for f in over] == ["warning"]


def systemctl(path: Path, text: str) -> list[str]:
    program = path / "systemctl"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return [str(program)]


def test_systemd_is_asked(tmp_path: Path) -> None:
    """What systemd prints is understood, for ever too; units that are not installed are none."""
    told = """\
Id=outlive-agent.service
LoadState=loaded
TimeoutStopUSec=1min 30s

Id=outlive-train.service
LoadState=loaded
TimeoutStopUSec=infinity
Environment=HOME=/x VIRTUAL_ENV=/opt/train PATH=/opt/train/bin:/bin"""
    venv = Path("/opt/train")
    assert units_seen(systemctl=systemctl(tmp_path, told)) == UnitsSeen(
        agent=90.0, train=float("inf"), environment=venv
    )
    missing = told.replace("LoadState=loaded", "LoadState=not-found")
    assert units_seen(systemctl=systemctl(tmp_path, missing)) is None
    assert units_seen(systemctl=[str(tmp_path / "none")]) is None
    assert units_seen(systemctl=["false"]) is None
