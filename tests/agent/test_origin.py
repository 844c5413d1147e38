"""Whose run it is: a name made of directory and script is no proof."""

import pytest

from outlive.errors import ConfigError
from outlive.objects.memory import MemoryStore
from outlive.store.lives import Identity, claim
from outlive_agent.origin import check_origin


def started(command: str, *, at: str = "/home/ann/a/mnist", host: str = "here") -> Identity:
    return Identity(host=host, machine="", pid=1, command=tuple(command.split()), cwd=at)


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (started("python train.py"), started("/usr/bin/python3.11 -u train.py")),
        (started("python train.py"), started("python /home/ann/a/mnist/train.py", at="/root/mnist")),
        (started("python train.py"), started("torchrun --nproc-per-node=1 ./train.py")),
        (started("python -m pkg.train"), started("python3 -m pkg.train")),
        (started("python -m pkg.train"), started("python pkg/train.py")),
        (started("jupyter train.ipynb"), started("jupyter /home/ann/a/mnist/train.ipynb")),
        (started("bash train.sh"), started("bash train.sh")),
    ],
)
def test_the_same_run(first: Identity, again: Identity) -> None:
    """However the same script is started, it is the same run."""
    store = MemoryStore()
    assert check_origin(store, "mnist-train", identity=first) is None
    claim(store, "mnist-train", identity=first)
    assert check_origin(store, "mnist-train", identity=again) is None


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (started("python train.py"), started("python train.py", at="/home/ann/b/mnist")),
        (started("python a/train.py"), started("python b/train.py")),
        (started("python -m one.train"), started("python -m two.train")),
        (started("bash train.sh"), started("bash train.sh", at="/home/ann/b/mnist")),
    ],
)
def test_another_script_of_this_name(first: Identity, other: Identity) -> None:
    """Another script whose name happens to be the same does not go on with the checkpoints of the first."""
    store = MemoryStore()
    claim(store, "mnist-train", identity=first)
    with pytest.raises(ConfigError, match=r"/home/ann/a/mnist.* and this is ") as refused:
        check_origin(store, "mnist-train", identity=other)
    assert "--run NAME" in refused.value.hint


def test_another_machine_is_told() -> None:
    """Elsewhere the same script may lie somewhere else: it goes on, and where it was before is said."""
    store = MemoryStore()
    claim(store, "mnist-train", identity=started("python train.py"))
    line = check_origin(
        store, "mnist-train", identity=started("python train.py", at="/w/mnist", host="there")
    )
    assert line == "life 1 of mnist-train was started as /home/ann/a/mnist/train.py on here"


def test_other_arguments_are_told() -> None:
    """A second experiment with the same script goes on with the first, which is rarely what was meant."""
    store = MemoryStore()
    claim(store, "mnist-train", identity=started("python train.py --lr 0.1"))
    line = check_origin(store, "mnist-train", identity=started("python train.py --lr 0.2"))
    assert line is not None
    assert "(--lr 0.1)" in line
