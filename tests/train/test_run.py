"""What happens at a boundary, and how a run is left."""

import os
import signal
import time

import pytest
import torch
from torch import nn

import outlive
from outlive.errors import StateError
from outlive.staging.control import NO_STEPS
from outlive.staging.messages import Mode
from outlive.train.stop import EXIT_SAVE_FAILED
from train.agent_double import WAIT_SECONDS, AgentDouble
from train.steps import descend, reasons, settled, small, steps


def test_interval_of_the_agent(agent: AgentDouble) -> None:
    """The agent's interval in steps is kept, and the end is a save of its own."""
    agent.every_steps = 3
    objects = small()
    with outlive.attach(**objects) as run:
        for _ in range(7):
            descend(objects)
            run.step()
            settled(agent)
    assert steps(agent) == [3, 6, 7]
    assert reasons(agent) == ["interval", "interval", "finished"]
    assert agent.ended.outcome == "finished"


@pytest.mark.parametrize("own", [None, 2])
def test_interval_that_rests(agent: AgentDouble, own: "int | None") -> None:
    """While the agent waits after a save that failed, no interval asks for one, not the script's own."""
    agent.every_steps = NO_STEPS
    objects = small()
    with outlive.attach(every=own, **objects) as run:
        for step in range(7):
            descend(objects)
            run.step()
            settled(agent)
            if step == 4:
                assert agent.page is not None
                agent.page.every_steps = 2
    assert steps(agent) == [6, 7]


def test_own_interval_wins(agent: AgentDouble) -> None:
    """What the script says counts before what the agent says."""
    agent.every_steps = 1
    objects = small()
    with outlive.attach(every=4, **objects) as run:
        for _ in range(5):
            descend(objects)
            run.step()
            settled(agent)
    assert steps(agent) == [4, 5]


def test_save_by_hand_and_metrics(agent: AgentDouble) -> None:
    """run.save() saves at the next boundary, with the metrics of that step as numbers."""
    objects = small()
    with outlive.attach(**objects) as run:
        run.save()
        loss = descend(objects)
        run.step(loss=loss, accuracy=0.5, broken=float("nan"), label="x")
    taken = agent.last.packet
    assert (taken.step, taken.reason) == (1, "hand")
    assert taken.metrics == {"loss": pytest.approx(loss.item()), "accuracy": 0.5}
    assert steps(agent) == [1]


def test_one_checkpoint_a_step(agent: AgentDouble) -> None:
    """A second request at a step that is saved makes no second checkpoint, and counts as honoured."""
    objects = small()
    with outlive.attach(**objects) as run:
        descend(objects)
        run.save()
        run.step()
        for _ in run.epochs(1):
            serial = agent.asked.ask("notice")
        list(run.epochs(2))
        run._between_epochs()
        assert agent.asked.honoured == serial
    assert steps(agent) == [1]


def test_training_without_a_step_is_told(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """A loop that forgot run.step() is not taken for a saved one."""
    with outlive.attach(**small()) as run:
        list(run.batches([1, 2]))
    assert "run.step() was never called" in capsys.readouterr().err


def test_warning_signal_saves_and_goes_on(agent: AgentDouble) -> None:
    """SIGUSR1 saves at the next boundary, and the loop goes on."""
    objects = small()
    with outlive.attach(**objects) as run:
        for _ in range(4):
            descend(objects)
            if run.steps == 1:
                os.kill(os.getpid(), signal.SIGUSR1)
            run.step()
    assert steps(agent) == [2, 4]
    assert reasons(agent) == ["signal", "finished"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_save_and_stop(agent: AgentDouble, number: signal.Signals) -> None:
    """A signal stops the loop at the next boundary, saved, with 75; the old handlers come back."""
    before = signal.getsignal(number)
    objects = small()

    def loop() -> None:
        with outlive.attach(**objects) as run:
            while True:
                descend(objects)
                if run.steps == 2:
                    os.kill(os.getpid(), number)
                    os.kill(os.getpid(), signal.SIGTERM)  # once more does no harm
                run.step()

    with pytest.raises(SystemExit) as stopped:
        loop()
    assert stopped.value.code == 75
    assert steps(agent) == [3]
    assert reasons(agent) == ["signal"]
    assert agent.last.packet.stop
    assert agent.ended.outcome == "stopped"
    assert signal.getsignal(number) is before


def test_second_interrupt_aborts(agent: AgentDouble) -> None:
    """Ctrl-C twice is meant: the second one is not waited out, and is no fault that wants a traceback."""
    objects = small()

    def loop() -> None:
        with outlive.attach(**objects) as run:
            run.step()
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(SystemExit) as ended:
        loop()
    assert ended.value.code == EXIT_SAVE_FAILED
    assert steps(agent) == []
    assert agent.ended.outcome == "exception"


@pytest.mark.parametrize(("mode", "lines"), [("sidecar", 1), ("exec", 0)])
def test_an_interrupt_is_answered_at_once(
    agent: AgentDouble, capfd: pytest.CaptureFixture[str], mode: Mode, lines: int
) -> None:
    """Where no `outlive exec` hears the Ctrl-C, too, the training itself says that it was heard."""
    agent.mode = mode
    said: list[str] = []

    def loop() -> None:
        with outlive.attach(**small()) as run:
            run.step()
            os.kill(os.getpid(), signal.SIGINT)
            said.append(capfd.readouterr().err)
            run.step()

    with pytest.raises(SystemExit):
        loop()
    assert said[0].count("saving and stopping at the next step") == lines


def test_signal_before_any_step(agent: AgentDouble) -> None:
    """There is nothing to save then; the code still says to start again."""

    def loop() -> None:
        with outlive.attach(**small()) as run:
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in run.epochs(1):
                raise AssertionError("no epoch may begin")

    with pytest.raises(SystemExit) as stopped:
        loop()
    assert stopped.value.code == 75
    assert steps(agent) == []
    assert agent.ended.outcome == "stopped"


def test_forked_children_can_still_be_terminated(agent: AgentDouble) -> None:
    """The handlers are this process's own: a forked child dies of SIGTERM as it would without them."""
    ready, write = os.pipe()
    with outlive.attach(**small()):
        child = os.fork()
        if child == 0:
            os.write(write, b"!")
            for _ in range(1000):
                time.sleep(0.01)  # to have bytecodes at which a handler can run
            os._exit(0)
        os.read(ready, 1)  # a signal that comes while Python still sets up the child is lost
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
    os.close(ready)
    os.close(write)
    assert os.WIFSIGNALED(status)


class Breaking(torch.utils.data.Dataset[torch.Tensor]):
    """Breaks at its fifth sample."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 4:
            raise OSError("the disk is gone")
        return torch.ones(2)


def test_exception_while_fetching_is_saved(agent: AgentDouble) -> None:
    """Between two steps the state is whole, so a data set that breaks costs no step."""
    objects = small()

    def loop() -> None:
        with outlive.attach(**objects) as run:
            for _ in run.batches(torch.utils.data.DataLoader(Breaking(), num_workers=0)):
                descend(objects)
                run.step()

    with pytest.raises(OSError, match="the disk is gone"):
        loop()
    assert steps(agent) == [4]
    assert reasons(agent) == ["exception"]
    assert agent.ended.outcome == "exception"
    assert agent.ended.message == "OSError: the disk is gone"


def test_exception_inside_a_step_is_not_saved(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """A half step is never saved; the line says which checkpoint stands."""
    objects = small()

    def loop() -> None:
        with outlive.attach(every=2, **objects) as run:
            for _ in run.batches([1] * 8):
                descend(objects)
                if run.steps == 3:
                    raise ValueError("loss is not a number")
                run.step()

    with pytest.raises(ValueError, match="loss is not"):
        loop()
    assert steps(agent) == [2]
    assert "ValueError on the way to step 4: the save of step 2 stands" in capsys.readouterr().err


def test_unsaveable_state_is_refused_at_the_first_boundary(agent: AgentDouble) -> None:
    """Not hours later: the first step already tells every object that could not be kept."""

    def loop() -> None:
        with outlive.attach(**small()) as run:
            run.state.logger = open
            run.state.fine = [1]
            run.step()

    with pytest.raises(StateError, match=r"run\.state\.logger: object of type builtin_function_or_method"):
        loop()
    assert steps(agent) == []


def test_state_that_spoils_later_does_not_kill_training(
    agent: AgentDouble, capsys: pytest.CaptureFixture[str]
) -> None:
    """It kills no training: it is said once, and once it is mended saving does too."""
    objects = small()
    with outlive.attach(every=1, **objects) as run:
        for step in range(4):
            run.state.odd = object() if step in (1, 2) else None
            run.step()
            settled(agent)
    assert steps(agent) == [1, 4]
    assert capsys.readouterr().err.count("run.state.odd: object of type object") == 1


def test_arguments_that_cannot_be_values_are_refused_by_attach(agent: AgentDouble) -> None:
    """A loader or a function among the arguments is a mistake, told at once."""
    with pytest.raises(StateError, match=r"run\.state\.loader: object of type torch\.utils\.data"):
        outlive.attach(**small(), loader=torch.utils.data.DataLoader([1]))  # type: ignore[arg-type]
    assert agent.ended.outcome == "exception"


def test_a_busy_arena_makes_a_save_wait(agent: AgentDouble) -> None:
    """While the agent still reads the arena nothing is copied over it; newer state is saved afterwards."""
    agent.every_steps = 2
    agent.upload.clear()
    objects = small()
    with outlive.attach(**objects) as run:
        for step in range(1, 8):
            run.step()
            if step == 5:
                agent.upload.set()
                settled(agent)
    assert steps(agent) == [2, 6, 7]


def test_a_stop_does_not_wait_for_a_busy_arena(agent: AgentDouble) -> None:
    """A second arena is made for the last snapshot, so that a slow upload costs no step."""
    agent.every_steps = 2
    agent.upload.clear()
    objects = small()

    def loop() -> None:
        with outlive.attach(**objects) as run:
            for step in range(1, 8):
                descend(objects)
                if step == 3:
                    agent.asked.ask("notice", stop=True)
                    agent.upload.set()
                run.step()

    with pytest.raises(SystemExit):
        loop()
    assert steps(agent) == [2, 3]


def test_the_state_may_grow(agent: AgentDouble) -> None:
    """An image that no longer fits its arena gets a larger one."""
    agent.every_steps = 1
    with outlive.attach(model=nn.Linear(2, 2)) as run:
        for size in (1, 1000, 100, 100_000):
            run.state.memory = torch.full((size,), float(size))
            run.step()
            settled(agent)
    sizes = [len(kept.image) for kept in agent.kept]
    assert sizes == [192, 4160, 576, 400_128]
    with outlive.attach(model=nn.Linear(2, 2)) as run:
        assert run.state.memory.sum() == 100_000.0**2


def test_failed_saves_are_tried_again(agent: AgentDouble) -> None:
    """A save that did not become a checkpoint does not end the training, and the next one is taken."""
    agent.every_steps = 1
    agent.fail = "the store is full"
    with outlive.attach(**small()) as run:
        run.step()
        settled(agent)
        agent.fail = ""
        run.step()
    assert [kept.packet.step for kept in agent.kept] == [2]


def test_a_last_save_that_fails_is_said(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that ended without its final checkpoint does not end in silence."""
    agent.fail = "the store is full"
    with outlive.attach(**small()) as run:
        run.step()
    assert "the final state is not stored: the store is full" in capsys.readouterr().err


def test_a_failed_save_is_no_save(agent: AgentDouble) -> None:
    """A stop at the very step whose save has failed saves that step again."""
    agent.every_steps = 1
    agent.fail = "the store is full"

    def loop() -> None:
        with outlive.attach(**small()) as run:
            for _ in run.epochs(2):
                run.step()
                assert run._saving.link.wait(lambda: bool(run._saving.link.results), seconds=WAIT_SECONDS)
                agent.fail = ""
                agent.asked.ask("notice", stop=True)

    with pytest.raises(SystemExit) as stopped:
        loop()
    assert stopped.value.code == 75
    assert [kept.packet.step for kept in agent.kept] == [1]
    assert steps(agent) == [1, 1]
