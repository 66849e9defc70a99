"""Running generations: what a page asks for, the thread that answers, and how a person pauses, steps and stops it.

A job drives the runs of one page, one cycle at a time, so that they advance together in bytes. It reaches the models only through
the function it is given, so everything here but ``Workshop`` runs without torch.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, Literal

from app.forks import Fork, opening, settings_of
from safe_core import events as ev
from safe_core.events import Event
from safe_core.types import InputError, Method, ModelError, SafeError, Settings

if TYPE_CHECKING:
    from safe_core.model import Model
    from safe_core.vocabulary import Vocabulary

log = logging.getLogger("safe_lens")

Until = Literal["window", "fusion", "oov"]
Progress = Callable[[float | None, str], None]


# -- what may be asked for ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limits:
    """What one page may ask for, so that a public page stays up. Characters, tokens, models."""

    prompt_chars: int = 20_000
    tokens: int = 4_096
    verifiers: int = 4
    stop_strings: int = 16
    text_chars: int = 5_000


LIMITS: Final = Limits()

METHODS: Final[dict[str, tuple[Method, Literal["unite", "gac"]]]] = {
    "UniTE": ("unite", "unite"),
    "SAFE": ("safe", "unite"),
    "GaC": ("gac", "gac"),
    "GaC + SAFE": ("safe", "gac"),
    "drafter alone": ("single", "unite"),
    "verifier alone": ("single", "unite"),
}
"""What a side of the page can run, by the name a person picks: the method, and how it fuses."""

NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class Order:
    """All that decides a run of both sides. ``sides`` are picks of :data:`METHODS`, left first."""

    prompt: str
    sides: tuple[str, ...]
    drafter: str
    verifiers: tuple[str, ...]
    settings: Settings
    system: str = ""
    device: str = "auto"
    dtype: str = "auto"
    attention: str = "auto"

    def checked(self, limits: Limits = LIMITS) -> Order:
        """Itself. Raises InputError, saying what to change, where it asks for what cannot be run."""
        if not self.prompt.strip():
            raise InputError("The prompt is empty. Write a question, or pick an example.")
        for what, text in (("prompt", self.prompt), ("system prompt", self.system)):
            if len(text) > limits.prompt_chars:
                raise InputError(
                    f"The {what} has {len(text):,} characters; this page takes up to {limits.prompt_chars:,}. Shorten it."
                )
        if self.settings.max_new_tokens > limits.tokens:
            raise InputError(f"This page generates up to {limits.tokens:,} tokens a run. Lower 'max tokens'.")
        if len(self.settings.stop) > limits.stop_strings:
            raise InputError(f"This page takes up to {limits.stop_strings} stop strings. Remove some.")
        if len(self.verifiers) > limits.verifiers:
            raise InputError(f"This page runs up to {limits.verifiers} verifiers beside the drafter. Remove some.")
        if not self.drafter:
            raise InputError("No drafter is chosen. Pick the model that writes.")
        if any(side not in METHODS for side in self.sides) or not self.sides:
            raise InputError("No method is chosen. Pick one for the left side.")
        if any(side != "drafter alone" for side in self.sides) and not self.verifiers:
            raise InputError("No verifier is chosen. Pick at least one, or run the drafter alone.")
        return self

    def names(self, side: str) -> tuple[str, ...]:
        """The models a side needs, drafter first."""
        if side == "drafter alone":
            return (self.drafter,)
        return self.verifiers[:1] if side == "verifier alone" else (self.drafter, *self.verifiers)

    def settings_of(self, side: str) -> Settings:
        """A side's settings: sharpening is a part of SAFE, the baselines run as their authors have them."""
        method, ensemble = METHODS[side]
        settings = dataclasses.replace(self.settings, ensemble=ensemble)
        if method in ("unite", "gac"):
            return dataclasses.replace(settings, sharpen="none")
        return dataclasses.replace(settings, weights=None) if method == "single" else settings


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


# -- what a page holds --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Shown:
    """One run on a page: its pane, title and events (still growing while its job goes on), and the order it came from."""

    key: str
    title: str
    events: Sequence[Event]
    order: Order | None = None


@dataclass(slots=True)
class Desk:
    """What one open page shows and runs."""

    shown: list[Shown] = field(default_factory=list)
    job: Job | None = None
    name: str | None = None  # of the gallery entry on the page
    _folder: TemporaryDirectory[str] | None = None

    @property
    def folder(self) -> Path:
        """A place for files to download; it goes when the desk goes."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="safe-lens-", ignore_cleanup_errors=True)
        return Path(self._folder.name)

    @property
    def going(self) -> Job | None:
        """The job under way, if there is one."""
        return self.job if self.job is not None and not self.job.over else None

    def end(self, timeout: float = 60.0) -> None:
        """Stop what is under way and wait until the page shows no more of it."""
        job = self.job
        if job is None:
            return
        job.control.stop()
        if job.ident is not None:
            job.join(timeout)
        job.left.wait(timeout)
        self.job = None

    def run(self, key: str) -> Shown:
        """The run in a pane. Raises InputError where there is none."""
        for shown in self.shown:
            if shown.key == key and shown.events:
                return shown
        raise InputError("That run is no longer on the server. Open its trace again, or run it anew.")


class Desks:
    """The desks of all open pages, the longest unused let go first."""

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._held: OrderedDict[str, Desk] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, page: str) -> Desk:
        """The desk of a page, made at its first use."""
        dropped: list[Desk] = []
        with self._lock:
            desk = self._held.setdefault(page, Desk())
            self._held.move_to_end(page)
            while len(self._held) > self._most:
                dropped.append(self._held.popitem(last=False)[1])
        for old in dropped:
            _stop(old)
        return desk

    def close(self, page: str) -> None:
        """The page is gone: stop what it ran and forget it."""
        with self._lock:
            desk = self._held.pop(page, None)
        if desk is not None:
            _stop(desk)


def _stop(desk: Desk) -> None:
    if desk.job is not None:
        desk.job.control.stop()


# -- models -------------------------------------------------------------------------------------------------------------------


class Workshop:
    """The way from orders and forks to the engine. The first use imports torch.

    ``names`` are the only models that may be asked for; ``None`` lets a person name any folder, file or hub id.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self._names = names

    def order(self, order: Order, keys: Sequence[str]) -> Prepare:
        """One run per side."""

        def prepare(report: Progress, cancelled: Callable[[], bool]) -> Mapping[str, Iterator[Event]]:
            wanted = dict.fromkeys(name for side in order.sides for name in order.names(side))
            report(None, "Loading the libraries that run models")
            from safe_core import api

            models = {name: self._load(name, order, report) for name in wanted}
            sources: dict[str, Iterator[Event]] = {}
            for key, side in zip(keys, order.sides, strict=True):
                chosen = [models[name] for name in order.names(side)]
                method, settings = METHODS[side][0], order.settings_of(side)
                run = api.generate(method, chosen, order.prompt, settings, system=order.system or None, cancelled=cancelled)
                sources[key] = run
            return sources

        return prepare

    def fork(self, parent: Shown, fork: Fork, key: str) -> Prepare:
        """The parent's run up to the fork, and on from there."""

        def prepare(report: Progress, cancelled: Callable[[], bool]) -> Mapping[str, Iterator[Event]]:
            start = parent.events[0]
            if not isinstance(start, ev.Start):
                raise InputError("That run has no beginning, so it cannot be continued.")
            report(None, "Loading the libraries that run models")
            from safe_core import api

            models = [self._load(name, parent.order, report) for name in self._parents_names(parent, start)]
            begun = opening(parent.events, fork, models[0].vocabulary)
            system, prompts = start.settings.get("system"), start.settings.get("prompts")
            settings = settings_of(start)
            run = api.generate(
                start.method,
                models,
                start.prompt,
                settings,
                system=system,
                prompts=prompts,
                cancelled=cancelled,
                opening=begun,
            )
            return {key: run}

        return prepare

    def vocabulary(self, name: str, report: Progress = lambda *_: None) -> Vocabulary:
        """A model's tokens, without its weights."""
        self._allow(name)
        from safe_core import zoo
        from safe_core.vocabulary import Vocabulary, fast_tokenizer

        return Vocabulary(fast_tokenizer(zoo.load_tokenizer(name, report), name), name=name)

    def _parents_names(self, parent: Shown, start: ev.Start) -> Sequence[str]:
        """How the parent's models were asked for: as ordered, else as its trace names them."""
        named = [m.name for m in start.models]
        if parent.order is None:
            return named
        asked = (parent.order.drafter, *parent.order.verifiers)
        if start.method == "single":
            return [next((name for name in asked if name == named[0] or name.endswith(named[0])), named[0])]
        return asked

    def _load(self, name: str, order: Order | None, report: Progress) -> Model:
        self._allow(name)
        from safe_core import api

        options = {} if order is None else {"device": order.device, "dtype": order.dtype, "attention": order.attention}
        return api.load(name, progress=report, **options)

    def _allow(self, name: str) -> None:
        if self._names is not None and name not in self._names:
            raise ModelError(f"This server does not offer the model '{name}'. Choose one of: {', '.join(self._names)}.")
