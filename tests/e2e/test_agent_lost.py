"""The agent or the training fails while the machine lives: the other one bridges it."""

from e2e.rig.conditions import JournalLine, UnitState
from e2e.scene import AGENT, SLOW, TRAIN, Scene, drop_in, untouched, wait_finished, wait_for_step


def test_killed_agent_is_replaced_while_the_training_goes_on(scene: Scene) -> None:
    """SIGKILL of the agent costs nothing: a new one goes on with the life, its number and its trainer."""
    droplet = scene.next_machine(SLOW)
    wait_for_step(droplet, 20)
    trainer = droplet.unit(TRAIN)["MainPID"]
    droplet.run("systemctl", "kill", "--signal=KILL", AGENT)
    droplet.wait_for(JournalLine("life 1 of gpt goes on with a new agent", unit=AGENT), within=20)
    wait_for_step(droplet, scene.saved()[0].step + 20)
    assert trainer == droplet.unit(TRAIN)["MainPID"]
    wait_finished(droplet)
    assert ["finished"] == [life.outcome for life in scene.lives()]
    assert 1 == scene.events(1).count("taken-over")
    assert untouched() == scene.end()


def test_hung_agent_is_ended_by_the_watchdog_and_replaced(scene: Scene) -> None:
    """An agent that stops answering is killed by systemd, and the new one takes the training over."""
    text = drop_in(scene.user_data(SLOW), AGENT, "WatchdogSec=2\nTimeoutStopSec=1\nTimeoutAbortSec=1")
    droplet = scene.next_machine(user_data=text)
    wait_for_step(droplet, 20)
    trainer = droplet.unit(TRAIN)["MainPID"]
    droplet.run("systemctl", "kill", "--signal=STOP", AGENT)
    droplet.wait_for(JournalLine("Watchdog timeout", unit=AGENT), within=20)
    droplet.wait_for(JournalLine("life 1 of gpt goes on with a new agent", unit=AGENT), within=20)
    wait_for_step(droplet, scene.saved()[0].step + 20)
    assert trainer == droplet.unit(TRAIN)["MainPID"]
    wait_finished(droplet)
    assert untouched() == scene.end()


def test_agent_that_cannot_live_leaves_the_training_alone_until_it_is_put_right(scene: Scene) -> None:
    """An agent that dies at every start is given up by systemd (StartLimitBurst); the training goes on, says
    that nobody saves it, and is saved again by the agent that is started once the cause is gone."""
    broken = "RestartSec=100ms\nExecStartPre=/usr/bin/test ! -e /srv/broken"
    text = drop_in(scene.user_data(SLOW), AGENT, broken)
    droplet = scene.next_machine(user_data=text)
    wait_for_step(droplet, 20)
    trainer = droplet.unit(TRAIN)["MainPID"]
    droplet.run("touch", "/srv/broken")
    droplet.run("systemctl", "kill", "--signal=KILL", AGENT)
    droplet.wait_for(JournalLine("Start request repeated too quickly", unit=AGENT), within=40)
    droplet.wait_for(UnitState(AGENT, "failed"), within=10)
    droplet.wait_for(JournalLine("nobody saves", unit=TRAIN), within=20)
    assert trainer == droplet.unit(TRAIN)["MainPID"]
    droplet.run("rm", "/srv/broken")
    droplet.run("systemctl", "reset-failed", AGENT)
    droplet.run("systemctl", "start", AGENT)
    wait_for_step(droplet, scene.saved()[0].step + 20)
    assert trainer == droplet.unit(TRAIN)["MainPID"]
    wait_finished(droplet)
    assert 1 == len(scene.lives())
    assert untouched() == scene.end()


def test_crashed_training_restarts_from_memory(scene: Scene) -> None:
    """SIGKILL of the training: it starts again from what the agent holds in memory."""
    droplet = scene.next_machine(SLOW)
    wait_for_step(droplet, 20)
    droplet.run("systemctl", "kill", "--signal=KILL", TRAIN)
    resumed = droplet.wait_for(JournalLine("from memory", unit=TRAIN), within=30).message
    assert "life 1: resumed at step " in resumed
    wait_finished(droplet)
    assert 1 == len(scene.lives())
    assert untouched() == scene.end()


def test_agent_and_training_killed_at_once_go_on(scene: Scene) -> None:
    """The same life goes on from what systemd kept; where a copy was under way, from its last checkpoint."""
    droplet = scene.next_machine(SLOW)
    wait_for_step(droplet, 20)
    droplet.run("systemctl", "kill", "--signal=KILL", AGENT, TRAIN)
    resumed = droplet.wait_for(JournalLine("life 1: resumed at step ", unit=TRAIN), within=30).message
    torn = [line for line in droplet.journal.messages(unit=AGENT) if "was being copied over" in line]
    assert ("from s3://" if torn else "from memory") in resumed
    wait_finished(droplet)
    assert untouched() == scene.end()


def test_training_that_stops_without_its_agent_stays_stopped_until_that_is_back(scene: Scene) -> None:
    """Told to stop while the agent is away, it says so (74), and systemd starts it no more behind the back of
    whoever told it. With the agent the run goes on, in the life that the agent had left."""
    text = drop_in(scene.user_data(SLOW), AGENT, "Restart=no")
    droplet = scene.next_machine(user_data=text)
    wait_for_step(droplet, 20)
    droplet.run("systemctl", "kill", "--signal=KILL", AGENT)
    droplet.wait_for(UnitState(AGENT, "failed"), within=10)
    droplet.run("systemctl", "kill", "--kill-whom=main", "--signal=TERM", TRAIN)
    droplet.wait_for(JournalLine("without a last save", unit=TRAIN), within=30)
    shown = droplet.wait_for(UnitState(TRAIN, "failed"), within=10)
    assert ("74", "0") == (shown["ExecMainStatus"], shown["NRestarts"])
    saved = scene.saved()[0].step
    droplet.run("systemctl", "start", AGENT)
    wait_finished(droplet)
    assert f"resumed at step {saved} " in "\n".join(droplet.journal.messages(unit=TRAIN))
    assert [0] == [life.from_step for life in scene.lives()]
    assert untouched() == scene.end()
