"""Ways of a training that once got another state into a checkpoint, or stopped the training itself."""

import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import outlive
from outlive.train import taking
from outlive.train.stop import EXIT_SAVE_FAILED
from outlive.train.taking import Taking
from train.agent_double import WAIT_SECONDS, AgentDouble
from train.hidden import Gate, descend, image_of, model_and_adam, save_hidden, tried
from train.steps import settled, steps


def stepped(objects: SimpleNamespace) -> None:
    """One step of an optimizer for all parameters, whatever they are."""
    for parameter in objects.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    objects.optimizer.step()
    objects.optimizer.zero_grad()


def of(model: nn.Module) -> SimpleNamespace:
    return SimpleNamespace(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1, momentum=0.9))


def check_not_used(agent: AgentDouble, gate: Gate, objects: SimpleNamespace, changed: nn.Module) -> None:
    """Exchange whole tensors past torch's count while nothing is copied yet, and put them back after."""
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: stepped(objects))
        save_hidden(run, gate)
        assert run._saving._taking is not None
        before = [parameter.detach().clone() for parameter in changed.parameters()]
        for parameter in changed.parameters():
            parameter.data.copy_(torch.zeros_like(parameter))
        gate.open.set()
        assert run._saving._taking._copying._copied.wait(WAIT_SECONDS)
        for parameter, was in zip(changed.parameters(), before, strict=True):
            parameter.data.copy_(was)
        stepped(objects)
        wanted = image_of(run)
        run.step()
        settled(agent)
        assert agent.last.image == wanted
    assert steps(agent) == [1, 3]


def test_an_exchange_of_channels_last_weights_is_seen(agent: AgentDouble, gate: Gate) -> None:
    """Whatever order the elements have in memory."""
    convolutions: nn.Module = nn.Sequential(*[nn.Conv2d(64, 64, 3, bias=False) for _ in range(3)])
    convolutions = convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    objects = of(convolutions)
    check_not_used(agent, gate, objects, objects.model)


def test_an_exchange_of_one_among_many_is_seen(agent: AgentDouble, gate: Gate) -> None:
    """One layer of very many, be it large or so small that it is copied at the boundary."""
    objects = of(nn.Sequential(*[nn.Linear(80, 80) for _ in range(130)]))
    check_not_used(agent, gate, objects, objects.model[77])


def test_a_buffer_is_copied_at_the_boundary(agent: AgentDouble, gate: Gate) -> None:
    """One that numpy changes before it and changes back after it, however long it has rested before."""
    objects = model_and_adam()
    objects.model.register_buffer("mask", torch.zeros(300_000))
    mask = objects.model.mask.numpy()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        mask[7] = 1.0
        wanted = save_hidden(run, gate)
        mask[7] = 0.0
        descend(objects)
        settled(agent)
        assert agent.last.image == wanted
    assert steps(agent) == [1, 2]


class Door:
    """A lock that tells when the training stands before it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if threading.current_thread().name != "outlive-copy":
            self.reached.set()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("place", ["verdict", "packet"])
def test_the_training_waits_for_a_late_hand_over(
    agent: AgentDouble, gate: Gate, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """From the comparison to the last word to the agent no optimizer steps, and no other snapshot begins."""
    inside, go_on = threading.Event(), threading.Event()
    really = getattr(Taking, place)

    def slowly(self: Taking, *arguments: Any) -> Any:
        if threading.current_thread().name == "outlive-copy":
            inside.set()
            assert go_on.wait(WAIT_SECONDS)
        return really(self, *arguments)

    monkeypatch.setattr(Taking, place, slowly)
    monkeypatch.setattr(taking, "LATE_SECONDS", 0.0)
    objects = model_and_adam()
    with outlive.attach(every=1, **vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        door = Door()
        monkeypatch.setattr(run._saving, "_landing", door)
        wanted = save_hidden(run, gate)
        gate.open.set()
        assert inside.wait(WAIT_SECONDS)

        def next_step() -> None:
            descend(objects)
            run.step()

        turn = threading.Thread(target=next_step)
        turn.start()
        while turn.is_alive() and not door.reached.wait(0.01):
            pass
        go_on.set()
        turn.join()
        assert door.reached.is_set(), "the training did not wait"
        settled(agent)
        second = next(kept for kept in agent.kept if kept.packet.step == 2)
        assert second.image == wanted
    assert 2 in steps(agent)


def test_a_late_thread_lands_no_copy_but_its_own(agent: AgentDouble, gate: Gate) -> None:
    """The copy of the next boundary has not had its time yet."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        save_hidden(run, gate)
        former = run._saving._taking
        assert former is not None
        gate.open.set()
        descend(objects)
        settled(agent)
        save_hidden(run, gate)
        newer = run._saving._taking
        assert newer is not None
        run._saving._land(former)
        assert run._saving._taking is newer
        gate.open.set()
        descend(objects)
    assert steps(agent) == [1, 2, 3]


def test_storages_can_be_resized(agent: AgentDouble, gate: Gate) -> None:
    """A save leaves no mark on the training's memory: buffers may grow, and parameters be freed meanwhile."""
    objects = model_and_adam()
    frozen = nn.Linear(300, 300).requires_grad_(False)
    objects.model.register_buffer("seen", torch.zeros(40_000))
    with outlive.attach(frozen=frozen, **vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        save_hidden(run, gate)
        gate.open.set()
        descend(objects)
        settled(agent)
        for tensor in [*objects.model.parameters(), *objects.model.buffers(), *frozen.parameters()]:
            assert tensor.untyped_storage().resizable()


def test_memory_that_is_taken_away_spoils_only_the_copy(agent: AgentDouble, gate: Gate) -> None:
    """A parameter without memory while its copy is due: that save is made at the next boundary."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        save_hidden(run, gate)
        weight = objects.model[2].weight
        was, storage = weight.data.clone(), weight.untyped_storage()
        size = storage.nbytes()
        storage.resize_(0)
        gate.open.set()
        assert run._saving._taking is not None
        assert run._saving._taking._copying._copied.wait(WAIT_SECONDS)
        storage.resize_(size)
        weight.data.copy_(was)
        descend(objects)
        run.step()
        settled(agent)
    assert steps(agent) == [1, 3]


def test_a_state_without_memory_is_not_saved(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where nothing is hidden; when the memory is back, so are the saves."""
    objects = model_and_adam()
    storage = objects.model[2].weight.untyped_storage()
    with outlive.attach(**vars(objects)) as run:
        descend(objects)
        run.step()
        descend(objects)
        was, size = objects.model[2].weight.data.clone(), storage.nbytes()
        storage.resize_(0)
        run.save()
        run.step()
        assert "model/2.weight has no memory behind it" in capsys.readouterr().err
        storage.resize_(size)
        objects.model[2].weight.data.copy_(was)
        descend(objects)
        run.save()
        run.step()
        settled(agent)
    assert steps(agent) == [3]


def test_parameters_can_be_swapped(agent: AgentDouble, gate: Gate) -> None:
    """torch swaps no tensor that anybody has a weak reference to."""
    objects = model_and_adam()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with outlive.attach(**vars(objects)) as run:
            tried(agent, run, lambda: descend(objects))
            objects.model.load_state_dict({k: v * 2 for k, v in objects.model.state_dict().items()})
            wanted = save_hidden(run, gate)
            descend(objects)
            settled(agent)
            assert agent.last.image == wanted
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


@contextmanager
def no_files_longer_than(size: int) -> Iterator[None]:
    """As under ulimit -f, which holds for shared memory, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [100_000, 10])
def test_a_save_without_room_fails_and_the_next_one_is_made(
    agent: AgentDouble, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    """The training goes on, and it is said which limit is too low: for the image, or for its notes alone."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        if size == 10:
            descend(objects)
            run.step()
        with no_files_longer_than(size):
            for _ in range(3):
                descend(objects)
                run.save()
                run.step()
        said = capsys.readouterr().err
        assert said.count("the machine gives no room for an image of ") == 1
        assert "ulimit -f" in said
        assert not agent.kept
        descend(objects)
        run.save()
        run.step()
        settled(agent)
        wanted = image_of(run)
        assert agent.last.image == wanted


def test_a_stop_without_room_is_told_and_done(agent: AgentDouble, capsys: pytest.CaptureFixture[str]) -> None:
    """The machine goes away in any case, so the training does not wait for memory."""
    objects = model_and_adam()

    def loop() -> None:
        with outlive.attach(**vars(objects)) as run:
            agent.asked.ask("notice", stop=True)
            descend(objects)
            with no_files_longer_than(100_000):
                run.step()

    with pytest.raises(SystemExit) as stopped:
        loop()
    assert stopped.value.code == EXIT_SAVE_FAILED
    assert "ulimit -f" in capsys.readouterr().err


def test_a_hidden_save_without_room_for_its_notes(agent: AgentDouble, gate: Gate) -> None:
    """It is given up where it would be handed over, inside of the optimizer's step, and made anew."""
    objects = model_and_adam()
    with outlive.attach(**vars(objects)) as run:
        tried(agent, run, lambda: descend(objects))
        save_hidden(run, gate)
        gate.open.set()
        with no_files_longer_than(10):
            descend(objects)
        run.step()
        settled(agent)
    assert steps(agent) == [1, 3]


_LEAVES = """
import threading, time
from outlive.train.beside import beside
asked = threading.Event()
def work():
    asked.wait()
    time.sleep(0.05)
    print("returned")
assert beside(work, name="outlive-copy", give_up=asked.set)
"""


def test_no_thread_outlives_the_interpreter() -> None:
    """One that copies is asked to return and waited for, also where nobody has left the run."""
    left = subprocess.run([sys.executable, "-c", _LEAVES], capture_output=True, text=True, timeout=60)
    assert (left.returncode, left.stdout, left.stderr) == (0, "returned\n", "")
