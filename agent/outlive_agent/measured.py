"""What this run has measured of what a last save depends on: recent samples of each figure, and their spread.

Arithmetic on the times it is told. All durations are seconds.
"""

from collections import deque
from dataclasses import dataclass
from math import sqrt

STEPS, COPIES, UPLOADS = 128, 16, 8
"""How many of the newest samples count."""
TELLING_SHARE = 0.1
"""An upload that sent less than this share of the largest one says nothing of the rate: it is round trips."""
EARLY_SHARE = 0.05
"""So much of an upload must be done before its own pace says when it ends."""
DOWN_TO_UP = 2.0
"""Until something was uploaded: how much slower that is than the download of what was restored."""
DEFAULT_UPLOAD_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """``deviation``: how far single ones stray. ``samples`` is 0 for a guess."""

    seconds: float
    deviation: float = 0.0
    samples: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """An upload under way. ``done`` of ``total`` bytes are in the store, of which ``sent`` had to be sent."""

    done: int
    total: int
    sent: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a save costs now; None where nothing is known yet.

    ``upload`` is that of ``changed_bytes``, the most that one of the recent saves had to send;
    ``in_flight_seconds`` is what the upload under way still takes.
    """

    step: Estimate | None = None
    copy: Estimate | None = None
    upload: Estimate | None = None
    changed_bytes: int | None = None
    in_flight_seconds: float | None = None
    restore_seconds: float | None = None

    @property
    def rate(self) -> float | None:
        """Bytes a second of such an upload."""
        if self.upload is None or not self.changed_bytes or self.upload.seconds <= 0:
            return None
        return self.changed_bytes / self.upload.seconds


class Measured:
    """Filled by whoever sees a step, a copy or an upload end; read whenever something is to be planned."""

    def __init__(self) -> None:
        self._gaps: deque[float] = deque(maxlen=STEPS)
        self._mean_step: float | None = None
        self._boundary: tuple[int, float] | None = None
        self._copies: deque[float] = deque(maxlen=COPIES)
        self._uploads: deque[tuple[int, float]] = deque(maxlen=UPLOADS)
        self._first: tuple[int, float] | None = None
        self._restored: tuple[int, float] | None = None

    def restored(self, size: int, seconds: float) -> None:
        """What this life resumes from was fetched."""
        self._restored = (size, seconds)

    def trainer_came(self) -> None:
        """Another trainer: its first step is not one step after the last one's."""
        self._boundary = None

    def stepped(self, step: int, at: float, *, mean: float | None) -> None:
        """The trainer's last boundary was then. Seen from time to time, so several steps may lie in between.

        What counts is how long one may wait for the next boundary, so one long step among short ones (an
        evaluation) must show: it is what is left of the time when the others took their usual time.
        """
        self._mean_step = mean
        before, self._boundary = self._boundary, (step, at)
        if before is None or step <= before[0] or at <= before[1]:
            return
        steps, seconds = step - before[0], at - before[1]
        usual = min(mean or 0.0, seconds / steps) or seconds / steps
        self._gaps.append(max(seconds / steps, seconds - (steps - 1) * usual))

    def copied(self, seconds: float) -> None:
        """A snapshot was taken."""
        self._copies.append(seconds)

    def uploaded(self, sent: int, seconds: float) -> None:
        """A snapshot became a checkpoint, for which so many bytes had to be sent."""
        if self._first is None:
            self._first = (sent, seconds)  # sends what never changes too, so it goes as soon as there are two
        else:
            self._uploads.append((sent, seconds))

    def figures(self, progress: Progress | None = None) -> Figures:
        """What a save costs by now."""
        changed, upload = self._upload(progress)
        step = _estimate(self._gaps)
        if step is None and self._mean_step is not None:
            step = Estimate(seconds=self._mean_step)
        return Figures(
            step=step,
            copy=_estimate(self._copies),
            upload=upload,
            changed_bytes=changed,
            in_flight_seconds=None if progress is None else _left(progress, upload),
            restore_seconds=None if self._restored is None else self._restored[1],
        )

    def _upload(self, progress: Progress | None) -> tuple[int | None, Estimate | None]:
        counted = list(self._uploads)
        if self._first is not None and len(counted) < 2:
            counted.insert(0, self._first)
        changed = max((sent for sent, _ in counted), default=0)
        samples = [
            seconds * (changed / sent if sent else 1.0)
            for sent, seconds in counted
            if sent >= TELLING_SHARE * changed
        ]
        now = None if progress is None else _whole(progress)
        if now is not None and (not samples or now > sum(samples) / len(samples)):
            samples.append(now)  # slower than usual: that is news. A faster one counts once it has ended
            changed = changed or (0 if progress is None else progress.total)
        if samples:
            return changed, _estimate(samples)
        if self._restored is not None:
            size, seconds = self._restored
            return size, Estimate(seconds=DOWN_TO_UP * seconds, samples=0)
        return None, None


def _whole(progress: Progress) -> float | None:
    """How long the upload under way takes in all, by its own pace."""
    if not progress.total or progress.done < EARLY_SHARE * progress.total:
        return None
    return progress.seconds * progress.total / progress.done


def _left(progress: Progress, usual: Estimate | None) -> float:
    whole = _whole(progress)
    if whole is not None:
        return whole - progress.seconds
    expected = DEFAULT_UPLOAD_SECONDS if usual is None else usual.seconds
    # One that should be done and has hardly begun is not about to end.
    return max(expected - progress.seconds, progress.seconds)


def _estimate(samples: "deque[float] | list[float]") -> Estimate | None:
    count = len(samples)
    if not count:
        return None
    mean = sum(samples) / count
    strayed = sum((sample - mean) ** 2 for sample in samples)
    return Estimate(seconds=mean, deviation=sqrt(strayed / (count - 1)) if count > 1 else 0.0, samples=count)
