"""Running generations: the thread that answers an order, and how a person pauses, steps and stops it.

A job drives the runs of one page, one cycle at a time, so that they advance together in bytes. It reaches the models only through
the function it is given, so nothing here needs torch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from safe_core import events as ev
from safe_core.events import Event
from safe_core.types import Method, SafeError

log = logging.getLogger("safe_lens")

Until = Literal["window", "fusion", "oov"]
Progress = Callable[[float | None, str], None]


# -- pausing and stepping -----------------------------------------------------------------------------------------------------


class Control:
    """The buttons of one job. Any thread may press them; the job asks before every cycle."""

    def __init__(self, until: Until | None = None) -> None:
        self._changed = threading.Condition()
        self._until: Until | None = until
        self._paused = False
        self._stopped = False
        self.why = ""
        """Why the job pauses, in words."""

    @property
    def stopped(self) -> bool:
        """Whether the job is to end. What the engine asks once a cycle."""
        return self._stopped

    @property
    def paused(self) -> bool:
        """Whether the job waits for a button."""
        return self._paused and not self._stopped

    def stop(self) -> None:
        """End after the cycle under way."""
        self._set(stopped=True)

    def pause(self) -> None:
        """Wait after the cycle under way."""
        self._set(paused=True, why="Paused")

    def resume(self, until: Until | None = None) -> None:
        """Go on: to the end, or until both sides have made a window, or one meets a fusion or an OOV-like token."""
        self._set(paused=False, until=until)

    def may_go(self, timeout: float) -> bool:
        """Whether the next cycle may begin; waits up to ``timeout`` seconds for that."""
        with self._changed:
            return self._changed.wait_for(lambda: self._stopped or not self._paused, timeout)

    def made(self, reached: Mapping[Until, str]) -> None:
        """A cycle is complete and reached these goals (with the words for each): pause where one was asked for."""
        with self._changed:
            if self._until is not None and self._until in reached and not self._paused:
                self._paused, self.why = True, reached[self._until]

    def _set(self, *, paused: bool | None = None, stopped: bool = False, until: Until | None = None, why: str = "") -> None:
        with self._changed:
            self._stopped |= stopped
            self._paused = self._paused if paused is None else paused
            self._until, self.why = until, why
            self._changed.notify_all()


@dataclass(slots=True)
class Lane:
    """One run of a job: what it gave so far, and how far the page has fetched it."""

    key: str
    events: list[Event] = field(default_factory=list)
    source: Iterator[Event] = field(default_factory=lambda: iter(()))
    method: Method = "single"
    length: int = 0  # bytes of the response
    tokens: int = 0
    cycles: int = 0
    done: bool = False
    fetched: int = 0

    def begin(self) -> None:
        """Take the first event, which comes before any model is asked. Raises what the source has against beginning."""
        first = next(self.source)
        if isinstance(first, ev.Start):
            self.method = first.method
        self.events.append(first)

    def cycle(self) -> list[Event]:
        """The events of the next cycle, up to its commit; or the end."""
        made: list[Event] = []
        for event in self.source:
            made.append(event)
            match event:
                case ev.Commit():
                    self.length += sum(len(t.hex) // 2 for t in event.tokens)
                    self.tokens += len(event.tokens)
                    self.cycles += 1
                    break
        else:
            self.done = True
        self.events += made
        return made


def next_lane(lanes: Sequence[Lane]) -> Lane | None:
    """Whose turn it is: the shortest response of those that go on, the leftmost among equals."""
    return min((lane for lane in lanes if not lane.done), key=lambda lane: lane.length, default=None)


class Round:
    """Tells when every run has made a window and those with short windows have caught up with the longest."""

    def __init__(self) -> None:
        self._reached: dict[str, int] = {}

    def complete(self, lanes: Sequence[Lane], moved: Lane) -> bool:
        """Take a cycle into account; whether the round ends with it. The next call begins a new one."""
        self._reached.setdefault(moved.key, moved.length)
        going = [lane for lane in lanes if not lane.done]
        if any(lane.key not in self._reached for lane in going):
            return False
        if any(lane.length < max(self._reached.values()) for lane in going):
            return False
        self._reached.clear()
        return True


def goals(cycle: Sequence[Event], method: Method, windowed: bool) -> dict[Until, str]:
    """What a cycle reached that one can run to. An every-token method fuses everywhere: beside a windowed run its fusions
    are no goal, alone only those that replaced the drafter's token are."""
    found: dict[Until, str] = {}
    every_token = method in ("unite", "gac")
    for event in cycle:
        if isinstance(event, ev.Verify) and any(c.oov_for for c in event.checks if c.verdict in ("oov", "ensemble")):
            found["oov"] = "Paused at an OOV-like token"
        if isinstance(event, ev.Ensemble) and (not every_token or (event.replaced and not windowed)):
            found["fusion"] = "Paused at a fusion"
    return found


# -- jobs ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Status:
    """Where things stand, in one sentence. ``fraction`` 0 to 1 where it is known how far a long step is."""

    kind: Literal["idle", "busy", "paused", "done", "error"]
    text: str
    fraction: float | None = None


class Stopped(Exception):
    """Raised out of progress callbacks, so that a download or a conversion ends too."""


Prepare = Callable[[Progress, Callable[[], bool]], Mapping[str, Iterator[Event]]]
"""Gets models ready and opens one event source per side. May take minutes; reports on the way."""

_turn: Final = threading.Lock()
"""Held by the job that computes: models are shared by all pages. A paused job lets go of it."""

BREATH: Final = 0.25  # seconds between two looks at the buttons while waiting


class Job(threading.Thread):
    """A thread that produces the events of one page's runs."""

    def __init__(self, keys: Sequence[str], prepare: Prepare, control: Control, turn: threading.Lock = _turn) -> None:
        super().__init__(daemon=True, name="safe-lens-job")
        self.control = control
        self.lanes = [Lane(key) for key in keys]
        self.left = threading.Event()
        """Set by whoever showed this job, once nothing more of it will be shown."""
        self._prepare = prepare
        self._turn = turn
        self._changed = threading.Event()
        self._status = Status("busy", "Starting")

    @property
    def status(self) -> Status:
        """What to tell the person now."""
        if self._status.kind == "busy" and self.control.stopped:
            return Status("busy", "Stopping after this window")
        return self._status

    @property
    def over(self) -> bool:
        """Whether no event will follow."""
        return self._status.kind in ("done", "error")

    def run(self) -> None:
        """Wait for the models, then alternate between the runs until all are done. Never raises."""
        try:
            if self._take_turn():
                try:
                    for key, source in self._prepare(self._progress, lambda: self.control.stopped).items():
                        self._lane(key).source = source
                    self._drive()
                finally:
                    if self._turn_held:
                        self._give_turn()
            self._tell(self._outcome())
        except Stopped:
            self._tell(Status("done", "Stopped before the first token."))
        except SafeError as problem:
            self._tell(Status("error", str(problem)))
        except MemoryError:
            self._tell(Status("error", "The memory of this machine is full. Choose smaller models or fewer tokens."))
        except Exception as problem:  # a page must say that something broke, whatever it was
            log.exception("a run failed")
            self._tell(Status("error", f"The run failed ({type(problem).__name__}); the server's log says where."))

    def wait(self, timeout: float) -> None:
        """Until something is new, or ``timeout`` seconds have passed."""
        if self._changed.wait(timeout):
            self._changed.clear()

    def take(self) -> list[tuple[str, list[Event]]]:
        """Events that nobody has taken yet, by run."""
        news: list[tuple[str, list[Event]]] = []
        for lane in self.lanes:
            count = len(lane.events)
            if count > lane.fetched:
                news.append((lane.key, lane.events[lane.fetched : count]))
                lane.fetched = count
        return news

    _turn_held = False

    def _take_turn(self) -> bool:
        """Wait until no other page computes; False when stopped on the way."""
        while not self._turn.acquire(timeout=BREATH):
            if self.control.stopped:
                return False
            self._tell(Status("busy", "Waiting for another page's run: this one begins when that one ends or pauses."))
        self._turn_held = True
        return True

    def _give_turn(self) -> None:
        self._turn_held = False
        self._turn.release()

    def _drive(self) -> None:
        for begun in self.lanes:  # all of them before any cycle: what one model refuses must not cost the page what it shows
            begun.begin()
        steps = Round()
        while (lane := next_lane(self.lanes)) is not None:
            if self.control.paused and not self._waited():
                break
            self._tell(Status("busy", self._progress_words()))
            cycle = lane.cycle()
            windowed = any(other.method == "safe" for other in self.lanes)
            reached = goals(cycle, lane.method, windowed)
            if steps.complete(self.lanes, lane):
                reached["window"] = "Paused after a window"
            self.control.made(reached)
        for other in self.lanes:  # runs that were stopped while they waited still get their last event
            while not other.done:
                other.cycle()
        self._changed.set()

    def _waited(self) -> bool:
        """Let others compute while paused; False when stopped."""
        self._give_turn()
        while not self.control.may_go(BREATH):
            self._tell(Status("paused", f"{self.control.why} · {self._counts()}"))
        return not self.control.stopped and self._take_turn()

    def _progress(self, fraction: float | None, message: str) -> None:
        if self.control.stopped:
            raise Stopped
        self._tell(Status("busy", message, fraction))

    def _progress_words(self) -> str:
        waits = any(not lane.cycles for lane in self.lanes)
        return "Reading the prompt" if waits and not self._counted() else f"Running · {self._counts()}"

    def _counted(self) -> int:
        return sum(lane.tokens for lane in self.lanes)

    def _counts(self) -> str:
        return " | ".join(f"{lane.tokens:,}" for lane in self.lanes) + " tokens"

    def _outcome(self) -> Status:
        ends = [lane.events[-1] for lane in self.lanes if lane.events]
        failed = next((e.error for e in ends if isinstance(e, ev.End) and e.error), None)
        if failed is not None:
            return Status("error", failed)
        if not self._counted() and self.control.stopped:
            return Status("done", "Stopped before the first token.")
        return Status("done", f"{'Stopped' if self.control.stopped else 'Done'} · {self._counts()}")

    def _tell(self, status: Status) -> None:
        self._status = status
        self._changed.set()

    def _lane(self, key: str) -> Lane:
        return next(lane for lane in self.lanes if lane.key == key)
