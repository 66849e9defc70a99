"""What a page answers when a person presses something: handlers, each told in full what to show.

A handler never raises for what a person can mend; it says so in the status line and leaves the rest as it is.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import gradio as gr

from app import gallery, tabs, tour
from app.desks import PANES, Desk, Desks, Shown
from app.forks import Fork
from app.form import order_of
from app.gallery import Pair
from app.jobs import Control, Job, Prepare, Status, Until
from app.keep import Found, Keep, Kept, Run, ended
from app.lens import Item, Lens
from app.links import Asked
from app.orders import LIMITS
from app.session import Workshop
from app.tokenizers import agreement, bench
from safe_core import trace
from safe_core.types import InputError, SafeError

TICK: Final = 0.09
"""Least seconds between two updates of the page: more would cost without being seen."""
HEARTBEAT: Final = 1.0
"""Most seconds without an update: a page that went away is only noticed when something is sent to it."""

CUT_OFF: Final = (
    "This page was loaded again while a run was going on, because of a reload or because the server was gone for a moment. "
    "The run ended there; all it had made is here. Press Run to begin it anew."
)


class Answers:
    """The handlers of all pages, and what they share: the desks, the recorded pairs and the way to the models."""

    def __init__(self, workshop: Workshop, traces: Path, keep: Keep, fields: Sequence[str]) -> None:
        """``fields`` names the form's fields, in the order in which their values come."""
        self.desks = Desks()
        self.workshop = workshop
        self.traces = traces
        self.pairs = gallery.pairs(traces)
        self.keep = keep
        self.fields = fields
        self._walk: list[dict[str, Any]] | None = None
        self._serials = itertools.count()

    # -- opening what is recorded -------------------------------------------------------------------------------------------

    def arrive(self, asked: str, page: str, request: gr.Request) -> list[Any]:
        """What a page that was just loaded shows: what was on it before, else the pair that its address names, else the first.

        ``asked`` is the address's part behind ``#``. Told are the streamed parts, the page's own name, and the form.
        """
        desk, place = self.desks.of(request.session_hash), Asked.of(asked)
        same = [page, *[gr.skip()] * len(self.fields)]
        found = self._found(page, desk)
        if found is not None and place.trace in ("", found.kept.name or ""):
            desk.form = found.kept.form
            form = desk.form or {}
            same[1:] = [form.get(name, gr.skip()) for name in self.fields]
            if found.kept.name is None:
                status = Status("done", CUT_OFF if found.cut else "This is what was on the page before it was loaded again.")
                return [*self._show(desk, found.shown, status, None), *same]
            place = dataclasses.replace(place, trace=found.kept.name)
        desk.page = page
        pair = next((pair for pair in self.pairs if pair.name == place.trace), None) or next(iter(self.pairs), None)
        if pair is None:
            status = Status("error", place.missing(None)) if place.trace else Status("idle", "Write a prompt and press Run.")
            return [gr.skip(), _line(status), *_idle(), *same]
        return [*self._opened_at(desk, pair, place), *same]

    def address(self, page: str, request: gr.Request, wish: gr.EventData) -> list[Any]:
        """The reader changed the address: another pair is opened, the lens finds places within a pair by itself."""
        desk, place = self._desk(request, page), Asked.of(str(wish._data.get("hash") or ""))
        pair = next((pair for pair in self.pairs if pair.name == (place.trace or desk.name)), None)
        if place.trace and (pair is None or pair.name != desk.name):
            if pair is not None:
                return self._opened_at(desk, pair, place)
            return _refused(place.missing(None))
        missing = place.missing({s.key: s.events for s in desk.shown}) if desk.going is None else ""
        return [gr.skip(), _line(Status("error", missing)) if missing else gr.skip(), gr.skip(), gr.skip()]

    def _opened_at(self, desk: Desk, pair: Pair, place: Asked) -> list[Any]:
        """A pair; the status says what of the place a link asks for is not there."""
        desk.before = None
        items, status, *buttons = self._open(desk, pair)
        runs = {s.key: s.events for s in desk.shown} if pair.name == place.trace else None
        missing = place.missing(runs) if place.trace and status["kind"] != "error" else ""
        return [items, _line(Status("error", missing)) if missing else status, *buttons]

    def _desk(self, request: gr.Request, page: str) -> Desk:
        """The desk of a page. One that this server does not know yet, because it was started anew, is laid as it was left."""
        desk = self.desks.of(request.session_hash)
        if not desk.page and page:
            desk.page = page
            found = self.keep.find(page)
            if found is not None and not desk.shown:
                pair = next((pair for pair in self.pairs if pair.name == found.kept.name), None)
                desk.shown, desk.name = found.shown if pair is None else self._runs(pair), found.kept.name
        return desk

    def _found(self, page: str, mine: Desk) -> Found | None:
        """What a page left; its run, if one still goes on, is stopped."""
        left = self.desks.claim(page, mine)
        found = self.keep.find(page)
        if left is None:
            return found
        running = left.going
        if running is not None:
            running.control.stop()
        if found is None or left.name is not None or left.before is not None:
            return found
        shown = [Shown(s.key, s.title, ended(list(s.events)), s.order) for s in left.shown if s.events]
        return Found(kept=found.kept, shown=shown, cut=running is not None) if shown else found

    def opener(self, pair: Pair) -> Callable[[str, gr.Request], list[Any]]:
        """Opens a pair of the gallery."""

        def opened(page: str, request: gr.Request) -> list[Any]:
            desk = self._desk(request, page)
            desk.before = None
            return self._open(desk, pair)

        return opened

    def _open(self, desk: Desk, pair: Pair) -> list[Any]:
        try:
            shown = self._runs(pair)
        except SafeError as problem:
            return [gr.skip(), _line(Status("error", str(problem))), *_idle()]
        return self._show(desk, shown, Status("idle", f"Recorded · {pair.title}. {pair.look_for}"), pair.name)

    def _runs(self, pair: Pair) -> list[Shown]:
        """The runs of a recorded pair. Raises SafeError where a file of it cannot be read."""
        traces = [gallery.read(path) for path in pair.files(self.traces)]
        titles = (pair.left.title, pair.right.title)
        return [Shown(key, title, t.events) for key, title, t in zip(PANES, titles, traces, strict=True)]

    def upload(self, paths: list[str] | None, page: str, request: gr.Request) -> list[Any]:
        """One or two uploaded traces; what was shown stays where one of them cannot be used."""
        desk = self._desk(request, page)
        names = [Path(path).name for path in paths or ()]
        try:
            if not 1 <= len(names) <= 2:
                raise InputError(f"Choose one or two traces to open, not {len(names)}.")
            traces = [_read_upload(path) for path in paths or ()]
        except SafeError as problem:
            return [gr.skip(), _line(Status("error", str(problem))), *_idle()]
        shown = [Shown(key, "", t.events) for key, t in zip(PANES, traces, strict=False)]
        desk.before = None
        return self._show(desk, shown, Status("idle", f"Opened {' and '.join(names)}"), None)

    def _show(self, desk: Desk, shown: list[Shown], status: Status, name: str | None) -> list[Any]:
        """Finished runs in the lens."""
        desk.end()
        desk.shown, desk.name = shown, name
        if desk.before is None:
            self._keep(desk)
        items: list[Item] = [Lens.view([(s.key, s.title) for s in shown], name)]
        for s in shown:
            items += Lens.items(s.key, s.events)
        return [items, _line(status), *_idle()]

    def _keep(self, desk: Desk, going: Sequence[str] = ()) -> None:
        """Write down what is on a page; of a recorded pair its name is enough, and runs that go on are added to as they do."""
        runs = [Run(key=s.key, title=s.title, order=s.order) for s in desk.shown]
        kept = Kept(name=desk.name, runs=[] if desk.name else runs, form=desk.form)
        self.keep.begin(desk.page, kept, [] if desk.name else [s for s in desk.shown if s.events and s.key not in going])

    # -- the tour -----------------------------------------------------------------------------------------------------------

    def _stops(self) -> list[dict[str, Any]]:
        if self._walk is None:
            self._walk = tour.stops(self.pairs, self.traces)
        return self._walk

    def _tour(self, opened: str | None) -> dict[str, Any]:
        """What the tour's card is told."""
        return {"offered": True, "stops": self._stops(), "opened": opened, "serial": next(self._serials)}

    def begin_tour(self, page: str, request: gr.Request) -> list[Any]:
        """The stops; what is on the page is kept for later."""
        desk = self._desk(request, page)
        try:
            told = self._tour(None)
        except SafeError as problem:
            return [{"offered": True, "serial": next(self._serials)}, _line(Status("error", str(problem)))]
        desk.before = (desk.shown, desk.name)
        return [told, gr.skip()]

    def guide(self, page: str, request: gr.Request, wish: gr.EventData) -> list[Any]:
        """The pair of the next stop."""
        desk = self._desk(request, page)
        pair = next((pair for pair in self.pairs if pair.name == wish._data.get("trace")), None)
        if desk.before is None or pair is None:
            return [gr.skip()] * 5
        return [self._tour(pair.name), *self._open(desk, pair)]

    def leave_tour(self, page: str, request: gr.Request) -> list[Any]:
        """What was on the page before the tour."""
        desk = self._desk(request, page)
        if desk.before is None:
            return [gr.skip()] * 5
        shown, name = desk.before
        told = self._show(desk, shown, Status("idle", "The tour is over. This is what was here before it."), name)
        desk.before = None
        return [self._tour(None), *told]

    # -- running ------------------------------------------------------------------------------------------------------------

    def runner(self, until: Until | None) -> Callable[..., Iterator[list[Any]]]:
        def handler(request: gr.Request, page: str, *values: Any) -> Iterator[list[Any]]:
            desk = self._desk(request, page)
            going = desk.going
            if until is not None and going is not None:
                going.control.resume(until)
                yield [gr.skip()] * 4
                return
            form = dict(zip(self.fields, values, strict=True))
            try:
                order = order_of(form)
            except SafeError as problem:
                yield _refused(str(problem))
                return
            desk.end()
            desk.form = form
            keys = PANES[: len(order.sides)]
            shown = [Shown(k, _title(side, order.names(side)), [], order) for k, side in zip(keys, order.sides, strict=True)]
            yield from self.stream(desk, shown, keys, self.workshop.order(order, keys), Control(until))

        return handler

    def fork(self, page: str, request: gr.Request, wish: gr.EventData) -> Iterator[list[Any]]:
        """On from another choice: the parent stays in its pane, the fork takes the other."""
        desk = self._desk(request, page)
        try:
            fork = Fork.of(wish._data)
            parent = desk.run(str(wish._data.get("run")))
        except SafeError as problem:
            yield _refused(str(problem))
            return
        desk.end()
        kept = Shown(parent.key, parent.title, list(parent.events), parent.order)
        key = PANES[1 - PANES.index(parent.key)]
        title = f"{parent.title or 'Run'}, forked in window {fork.window}"
        shown = sorted([kept, Shown(key, title, [], parent.order)], key=lambda s: PANES.index(s.key))
        yield from self.stream(desk, shown, [key], self.workshop.fork(kept, fork, key), Control())

    def stream(
        self,
        desk: Desk,
        shown: list[Shown],
        keys: Sequence[str],
        prepare: Prepare,
        control: Control,
    ) -> Iterator[list[Any]]:
        """Show a job while it goes on. What was on the page stays until the job's first event is there."""
        job = Job(keys, prepare, control)
        desk.job = job
        items: list[Item] = []
        told: tuple[Status, bool] | None = None
        told_at = 0.0
        try:
            job.start()
            while True:
                over = not job.is_alive()  # asked before the events are taken: none can come after
                news, now = job.take(), (job.status, job.control.paused)
                if news and not items:
                    items = self._begin(desk, shown, job)
                for key, events in news:
                    items = items + Lens.items(key, events)
                    self.keep.add(desk.page, key, events)
                if news or over or now != told or time.monotonic() - told_at > HEARTBEAT:
                    buttons = _idle() if over else _going(job.control.paused)
                    # The list each time, news or not: only what differs from the last update is sent, and after none all.
                    yield [items or gr.skip(), _line(job.status), *buttons]
                    told, told_at = now, time.monotonic()
                if over:
                    return
                time.sleep(TICK)
                job.wait(HEARTBEAT / 4)
        finally:
            control.stop()
            job.left.set()

    def _begin(self, desk: Desk, shown: list[Shown], job: Job) -> list[Item]:
        """The view of a job's runs, beside those that are kept."""
        lanes = {lane.key: lane for lane in job.lanes}
        desk.shown = [Shown(s.key, s.title, lanes[s.key].events, s.order) if s.key in lanes else s for s in shown]
        desk.name = desk.before = None
        self._keep(desk, going=list(lanes))
        items: list[Item] = [Lens.view([(s.key, s.title) for s in shown])]
        for s in shown:
            if s.key not in lanes:
                items += Lens.items(s.key, s.events)
        return items

    def pause(self, request: gr.Request) -> None:
        job = self.desks.of(request.session_hash).going
        if job is not None:
            if job.control.paused:
                job.control.resume()
            else:
                job.control.pause()

    def stop(self, request: gr.Request) -> None:
        job = self.desks.of(request.session_hash).going
        if job is not None:
            job.control.stop()

    def leave(self, request: gr.Request) -> None:
        self.desks.close(request.session_hash)

    # -- tabs ---------------------------------------------------------------------------------------------------------------

    def refresh(self, tab: str, page: str, request: gr.Request) -> list[Any]:
        """What the open tab shows of the runs on the page; the other tabs wait until they are opened."""
        desk = self._desk(request, page)
        return tabs.told(tab, desk.folder, [s for s in desk.shown if s.events])

    def compare(self, text: str, names: list[str], words: str) -> list[Any]:
        """Tokenizers side by side; what was there stays where one cannot be had."""
        try:
            if len(text) > LIMITS.text_chars or len(words) > LIMITS.text_chars:
                raise InputError(f"This page compares up to {LIMITS.text_chars:,} characters. Shorten the text or the list.")
            if not 1 <= len(names) <= LIMITS.verifiers + 1:
                raise InputError("Choose at least one tokenizer.")
            vocabularies = {name: self.workshop.vocabulary(name) for name in names}
        except SafeError as problem:
            return [gr.skip(), gr.skip(), _line(Status("error", str(problem)))]
        readings = {name: v.encode(text.encode()) for name, v in vocabularies.items()}
        return [bench(text, readings), agreement(words.splitlines(), vocabularies), _line(Status("idle", ""))]


def _line(status: Status) -> dict[str, Any]:
    return {"kind": status.kind, "text": status.text, "fraction": status.fraction}


def _going(paused: bool) -> list[Any]:
    """Pause and Stop while a job goes on."""
    return [gr.update(value="Resume" if paused else "Pause", interactive=True), gr.update(interactive=True)]


def _refused(why: str) -> list[Any]:
    """A sentence, and everything else as it is."""
    return [gr.skip(), _line(Status("error", why)), gr.skip(), gr.skip()]


def _idle() -> list[Any]:
    """Pause and Stop while none does."""
    return [gr.update(value="Pause", interactive=False), gr.update(interactive=False)]


def _title(side: str, names: Sequence[str]) -> str:
    """What a pane is called."""
    return f"{Path(names[0]).name} alone" if side.endswith("alone") else side


def _read_upload(path: str) -> trace.Trace:
    """A trace a person uploaded. The sentence names their file, not the server's copy of it."""
    try:
        return trace.loads(Path(path).read_bytes())
    except SafeError as problem:
        raise InputError(f"{Path(path).name}: {problem}") from None
    except OSError:
        raise InputError(f"{Path(path).name} did not arrive whole. Open it again.") from None
