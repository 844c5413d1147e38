"""A script's loops over epochs and batches go on in the next life where they were; no data is read twice.

What is exact for which kind of data is said in `data`; how a loop is found again, in `position`. The batch
after those that the script was given is the first that the next life gets, whatever was fetched ahead: so let
no thread of your own take batches early, and let `run.step()` be the last thing in the body, since what comes
after it is not repeated. What is done between two loops is repeated, `run.step()` too. A count of `enumerate`
begins anew in each life; one in `run.state` does not. A loop with `run.step()` in another loop's body goes on
with the outer one's next batch.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Any

from outlive.errors import StateError
from outlive.train.carry import Source, Sources
from outlive.train.data import Feed, Tools, feed_for
from outlive.train.loader import Kept
from outlive.train.position import Epochs, Loop, Scope, Tree, frontier, read_scope, running
from outlive.train.randomness import Aside, draw
from outlive.train.worker import Workers

VERSION = 1
_END = object()


class Batches(Iterator[Any]):
    """The batches of one loop, those that are left of it."""

    __slots__ = ("_feed", "_loop", "_stream")

    def __init__(self, stream: Generator[Any, None, None], feed: Feed, loop: Loop) -> None:
        self._stream = stream
        self._feed = feed
        self._loop = loop

    def __next__(self) -> Any:
        return next(self._stream)

    def __len__(self) -> int:
        return 0 if self._loop.finished else max(0, self._feed.length() - self._loop.delivered)

    def close(self) -> None:
        """End the loop here, as leaving it by `break` does."""
        self._stream.close()


class Loops:
    """All loops of one run: hands out what is left of them, and knows at any time where they are.

    `on_continue` is called once, where a resumed script goes on, when all that draws random numbers on the
    way there has done so: the global generators are to be set then. `on_boundary` is called before each new
    epoch. `say` gets one line for whatever the user might wonder about.
    """

    def __init__(
        self, *, on_continue: Callable[[], None], on_boundary: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        self._on_continue = on_continue
        self._on_boundary = on_boundary
        self._say = say
        self._workers = Workers()
        self._tools = Tools(aside=Aside(), workers=self._workers, kept=Kept(), say=self._say_once)
        self._said: set[str] = set()
        self._sources = Sources()
        self._scopes = [Scope()]
        self._going_to: Scope | None = None
        self._going_after: Loop | Epochs | None = None
        self._fetching = False

    @property
    def fetching(self) -> bool:
        """Whether a batch is being fetched, or could not be: the training is at the boundary before it."""
        return self._fetching

    @property
    def pending(self) -> bool:
        """Whether `on_continue` is still to come. It never comes if the last life had no loop."""
        return self._going_to is not None

    @property
    def between(self) -> bool:
        """Whether no batch is at work here: a later life does again what was done since the last loop."""
        return bool(self._scopes[0].turns) and not any(scope.busy for scope in self._scopes)

    @property
    def epoch(self) -> int | None:
        """The epoch that the script is in; None outside of `epochs`."""
        epoch, turn = None, running(self._scopes[0])
        while turn is not None:
            epoch, turn = turn.epoch, running(turn.scope)
        return epoch

    def epochs(self, count: int) -> Iterator[int]:
        """`range(count)`, or what is left of it. A larger count than in an earlier life trains on."""
        self._fetching = False
        scope = self._scopes[-1]
        turn = scope.next_epochs()
        return self._epochs(scope, turn, count)

    def batches(self, data: Any) -> Batches:
        """The batches of `data`, or what is left of them. `outlive.train.data` says what it may be."""
        self._fetching = False
        feed = feed_for(data, self._tools)
        source = self._sources.of(data, feed.label, feed.carry)
        scope = self._scopes[-1]
        if scope.busy:
            loop = self._companion(feed.label)
            if loop is None:
                loop = Loop(data=feed.label, inner=True)
                scope.inner.append(loop)
        else:
            loop = scope.next_loop(feed.label)
            if loop.data != feed.label and not loop.finished:
                self._say_once(f"the data has changed, so its order has: {loop.data} is {feed.label} now")
        return Batches(self._batches(scope, loop, feed, source), feed, loop)

    def state(self) -> Tree:
        """Where the script is, as plain values."""
        return {"version": VERSION, "scope": self._scopes[0].state(), "sources": self._sources.state()}

    def load(self, state: Tree) -> None:
        """Go on from `state` of an earlier life, before any loop of this one has begun."""
        if state.get("version") != VERSION:
            raise StateError(
                f"the checkpoint's loop positions have version {state.get('version')}, not {VERSION}",
                hint="resume with the version of outlive that saved it",
            )
        try:
            scope = read_scope(state["scope"])
            self._sources.load(state["sources"])
        except (KeyError, TypeError, AttributeError) as error:
            raise StateError(f"loop positions in the checkpoint can't be read: {error!r}") from error
        self._scopes = [scope]
        place = frontier(scope)
        self._going_after = None if place.is_begun else place.last_turn()
        nowhere = place is scope and self._going_after is None and not place.is_begun
        self._going_to = None if nowhere else place

    def close(self) -> None:
        """End all data workers at once. Loops that are still open are over."""
        self._workers.close()
        self._tools.kept.clear()

    def _epochs(self, scope: Scope, turn: Epochs, count: int) -> Iterator[int]:
        self._extend(scope, turn, count)
        saved = frontier(turn.scope) if turn.waiting and turn.inside else None
        try:
            while turn.epoch < count and not turn.ended:
                if turn.waiting and turn.inside:
                    if turn.scope is self._going_to and not turn.scope.is_begun:
                        self._go_on()
                else:
                    self._go_on()
                    turn.inside, turn.scope = True, Scope()
                    self._on_boundary()
                turn.waiting = False
                self._scopes.append(turn.scope)
                yield turn.epoch
                self._leave(scope, turn)
        except GeneratorExit:
            self._leave(scope, turn)
            turn.ended = True
            raise
        turn.waiting = turn.inside = False
        if turn is self._going_after or (saved is not None and saved is self._going_to):
            self._go_on()

    def _extend(self, scope: Scope, turn: Epochs, count: int) -> None:
        """Of what came after the epochs in an earlier life, only loops that have ended may be run again."""
        later = scope.turns[scope.turns.index(turn) + 1 :]
        if not turn.waiting or turn.inside or turn.ended or count <= turn.epoch or not later:
            return
        if all(isinstance(each, Loop) and each.finished for each in later):
            del scope.turns[-len(later) :]
        else:
            self._say_once(
                f"epochs({count}) adds none to the {turn.epoch} that are done: the run is past them"
            )
            turn.ended = True

    def _leave(self, scope: Scope, turn: Epochs) -> None:
        """The epoch is over. Loops that are still open may go on in the next."""
        for loop in turn.scope.turns:
            if isinstance(loop, Loop) and loop.read_place is not None:
                loop.inner = loop.aged = True
                scope.inner.append(loop)
        scope.inner += turn.scope.inner
        del self._scopes[self._scopes.index(scope) + 1 :]
        turn.inside, turn.scope = False, Scope()
        turn.epoch += 1

    def _companion(self, data: str) -> Loop | None:
        for scope in reversed(self._scopes):
            loop = scope.companion(data)
            if loop is not None:
                loop.waiting = False
                return loop
        return None

    def _batches(self, scope: Scope, loop: Loop, feed: Feed, source: Source) -> Generator[Any, None, None]:
        if loop.finished:
            if loop is self._going_after:
                self._go_on()
            return
        over = False
        try:
            anew = loop.begun and loop.inner
            self._begin(scope, loop, feed, source)
            while True:
                self._fetching = True
                batch = next(feed, _END)
                if batch is _END and anew and not loop.here:
                    # Nothing was left. A script that makes a companion anew when it ends counts on a batch.
                    loop.seed, loop.delivered, anew = None, 0, False
                    feed.close()
                    self._begin(scope, loop, feed, source)
                    continue
                self._fetching = False
                if batch is _END:
                    break
                loop.deliver()
                if not loop.inner and scope is self._scopes[-1]:
                    for each in self._scopes:
                        each.age(loop, scope)
                yield batch
                loop.suspended = False
            over = True
        except GeneratorExit:
            over = True
            raise
        finally:
            loop.suspended, loop.read_place = False, None
            feed.close(settle=loop.delivered if over else None)
            if over:
                self._finish(scope, loop)
                source.leave(feed.carry.capture())

    def _begin(self, scope: Scope, loop: Loop, feed: Feed, source: Source) -> None:
        self._fetching = True  # from here on: a loop that could not be opened stands at a boundary, too
        resumed = loop.seed is not None
        if loop.seed is None:
            self._go_on()
            loop.seed = draw()
            loop.start = source.start(feed.carry.capture())
        else:
            feed.carry.put(loop.start)
        feed.open(loop.seed, loop.delivered, loop.place)
        loop.data, loop.place, loop.read_place = feed.label, None, feed.place
        if resumed and scope is self._going_to:
            self._go_on()

    def _finish(self, scope: Scope, loop: Loop) -> None:
        loop.finished, loop.start = True, {}
        for each in (scope, *self._scopes):
            if loop in each.inner:
                each.inner.remove(loop)

    def _go_on(self) -> None:
        """Here the script leaves what it had done before. Whatever is new comes after this, too."""
        if self._going_to is not None:
            self._going_to = self._going_after = None
            self._on_continue()

    def _say_once(self, line: str) -> None:
        if line not in self._said:
            self._said.add(line)
            self._say(line)
