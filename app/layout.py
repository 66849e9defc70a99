"""The page: where everything stands, and what is told to whom when a person presses something."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import gradio as gr

from app import gallery
from app.export import html_of
from app.forks import Fork
from app.form import order_of
from app.gallery import Pair
from app.lens import Item, Lens
from app.session import LIMITS, METHODS, NOTHING, Control, Desk, Desks, Job, Prepare, Shown, Status, Until, Workshop
from app.tokenizers import WORDS, agreement, bench
from app.widgets import PAGE, Bench, StatusLine
from safe_core import trace, zoo
from safe_core.events import Event
from safe_core.types import InputError, SafeError

EXAMPLES: Final = (
    "What does the German word Schadenfreude mean?",
    "What is the capital of Bulgaria?",
    "Is bile made in the gallbladder?",
    "Write a Python function that counts vowels.",
    "Translate into Japanese: Good morning!",
)
FIELDS: Final = (
    *("prompt", "left", "right", "drafter", "verifiers", "n", "max_new_tokens", "sharpen", "lam", "top_k"),
    *("weights", "temperature", "seed", "after_confirm", "commit", "checks"),
    *("system", "dtype", "device", "attention"),
)
"""What the form asks for; each is an attribute of the page. Stop strings are the one whose button has their name."""
PANES: Final = ("left", "right")
TICK: Final = 0.09
"""Least seconds between two updates of the page: more would cost without being seen."""
HEARTBEAT: Final = 1.0
"""Most seconds without an update: a page that went away is only noticed when something is sent to it."""

CLEAR_PLACE: Final = """(...all) => {
  history.replaceState(history.state, "", location.pathname + location.search);
  return all;
}"""
"""A new run is nobody's link: the place of the last one must not pull the reader about in it."""


class Page:
    """Builds the page and holds what all its visitors share: the desks and the way to the models."""

    def __init__(self, models: Sequence[str] = (), *, any_model: bool = True, traces: Path = gallery.TRACES) -> None:
        """``models`` are offered besides the built-in ones; ``any_model`` lets a person name others."""
        built_in = [model.name for model in zoo.builtin_models()]
        self.models = list(dict.fromkeys([*built_in, *models]))
        self.any_model = any_model
        self.desks = Desks()
        self.workshop = Workshop(None if any_model else self.models)
        self.traces = traces
        self.pairs = gallery.pairs(traces)

    # -- where everything stands --------------------------------------------------------------------------------------------

    def blocks(self) -> gr.Blocks:
        """The page, ready to launch."""
        with gr.Blocks(title="SAFE lens", fill_width=True, analytics_enabled=False, delete_cache=(3600, 43200)) as demo:
            gr.HTML(
                "<header class='sl-head'><h1>SAFE lens</h1><p>Language models with different tokenizers, fused token by token: "
                "see where every token came from, who agreed, who could not be asked, and why it stayed.</p></header>"
            )
            self._form()
            self.asked = gr.Textbox(visible=False)
            self.lens = Lens(elem_id="lens", can_fork=True)
            self._tabs()
            self._wire(demo)
        return demo

    def _form(self) -> None:
        with gr.Row(elem_classes="sl-form"):
            with gr.Column(scale=5, min_width=300):
                self.prompt = gr.Textbox(label="Prompt", lines=4, max_lines=12, value=EXAMPLES[0], elem_id="prompt")
            with gr.Column(scale=6, min_width=320):
                with gr.Row():
                    self.left = gr.Dropdown(list(METHODS), value="UniTE", label="Left", elem_id="left", min_width=120)
                    self.right = gr.Dropdown([*METHODS, NOTHING], value="SAFE", label="Right", elem_id="right", min_width=120)
                with gr.Row():
                    self.drafter = self._picker("Drafter", self.models[0], "drafter")
                    self.verifiers = self._picker("Verifiers", self.models[1:2], "verifiers", multiselect=True)
        with gr.Accordion("Advanced", open=False, elem_id="advanced"):
            self._advanced()
        self.examples = gr.Dataset(
            components=[self.prompt], samples=[[text] for text in EXAMPLES], label="Examples", elem_id="examples"
        )
        with gr.Row(elem_classes="sl-buttons", elem_id="buttons"):
            self.run = gr.Button("▶ Run", variant="primary", size="md", elem_id="run", min_width=90)
            self.pause = gr.Button("Pause", size="md", interactive=False, elem_id="pause", min_width=84)
            self.step = gr.Button("Step window", size="md", elem_id="step", min_width=100)
            self.fusion = gr.Button("To next fusion", size="md", elem_id="to-fusion", min_width=120)
            self.oov = gr.Button("To next OOV-like", size="md", elem_id="to-oov", min_width=130)
            self.stop = gr.Button("Stop", variant="stop", size="md", interactive=False, elem_id="stop", min_width=72)
        self.status = StatusLine(elem_id="status")

    def _picker(self, label: str, value: Any, id: str, multiselect: bool = False) -> gr.Dropdown:
        own = ", or type a folder, a .gguf file, a hub id" if self.any_model else ""
        return gr.Dropdown(
            self.models,
            value=value,
            label=label,
            info=f"built-in{own}",
            multiselect=multiselect,
            max_choices=LIMITS.verifiers if multiselect else None,
            allow_custom_value=self.any_model,
            elem_id=id,
            min_width=200,
        )

    def _advanced(self) -> None:
        with gr.Row():
            self.n = gr.Dropdown(
                ["auto", *map(str, range(1, 17))], value="5", label="n", info="tokens drafted per window", min_width=110
            )
            self.max_new_tokens = gr.Number(
                128,
                label="max tokens",
                precision=0,
                minimum=1,
                maximum=LIMITS.tokens,
                info=f"up to {LIMITS.tokens:,}",
                min_width=110,
                elem_id="max-tokens",
            )
            self.sharpen = gr.Dropdown(
                ["heur", "geom", "none"], value="heur", label="sharpening", info="in SAFE, where smooth", min_width=110
            )
            self.lam = gr.Number(0.1, label="lambda", minimum=0, maximum=1, step=0.05, info="least mass for heur", min_width=110)
            self.top_k = gr.Number(10, label="k", precision=0, minimum=1, maximum=1000, info="strings per model", min_width=110)
            self.weights = gr.Textbox(label="weights", placeholder="0.5, 0.5", info="one per model, drafter first", min_width=150)
        with gr.Row():
            self.temperature = gr.Number(0, label="temperature", minimum=0, step=0.1, info="0 is greedy", min_width=110)
            self.seed = gr.Number(0, label="seed", precision=0, info="of sampling", min_width=110)
            self.after_confirm = gr.Dropdown(
                ["redraft", "continue"],
                value="redraft",
                label="after a confirmation",
                info="the rest of the window",
                min_width=130,
            )
            self.commit = gr.Dropdown(
                ["whole", "first_piece"], value="whole", label="commit", info="the chosen string", min_width=130
            )
            self.checks = gr.CheckboxGroup(
                ["OOV-like", "consensus"], value=["OOV-like", "consensus"], label="checks of SAFE", min_width=180
            )
        with gr.Row():
            self.system = gr.Textbox(label="system prompt", lines=2, min_width=240, elem_id="system")
            self.stop_strings = gr.Textbox(label="stop strings", lines=2, info="one a line; \\n is a line end", min_width=200)
            self.dtype = gr.Dropdown(["auto", *zoo.DTYPES], value="auto", label="dtype", min_width=110)
            self.device = gr.Dropdown(
                ["auto", "cpu", "cuda:0", "cuda:1", "shard"], value="auto", label="device", allow_custom_value=True, min_width=110
            )
            self.attention = gr.Dropdown(["auto", *zoo.ATTENTIONS], value="auto", label="attention", min_width=110)

    def _tabs(self) -> None:
        self.open_tab = gr.State("traces")
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab("Traces", id="traces") as self.traces_tab:
                self._traces()
            with gr.Tab("Charts", id="charts") as self.charts_tab, gr.Column(elem_id="charts"):
                from app.charts import CHARTS

                gr.HTML("<p class='sl-note'>Press a point to go to its token.</p>")
                with gr.Row(elem_classes="sl-charts"):
                    self.charts = [gr.Plot(show_label=False, container=False, min_width=420) for _ in CHARTS]
            with gr.Tab("Tables", id="tables") as self.tables_tab:
                self._tables()
            with gr.Tab("Tokenizers", id="tokenizers"):
                self._tokenizers()

    def _traces(self) -> None:
        self.cards: list[tuple[gr.Button, Pair]] = []
        with gr.Row(elem_classes="sl-gallery", elem_id="gallery"):
            for pair in self.pairs:
                with gr.Column(elem_classes="sl-card", min_width=260):
                    button = gr.Button(pair.title, size="md", elem_id=f"pair-{pair.name}")
                    gr.HTML(_note(pair.look_for))
                    self.cards.append((button, pair))
        with gr.Row(elem_classes="sl-files"):
            self.upload = gr.UploadButton("Open one or two traces …", file_count="multiple", elem_id="upload", min_width=180)
            self.downloads = [
                gr.DownloadButton(f"{side} run, trace (JSONL)", interactive=False, elem_id=f"download-{side}", min_width=180)
                for side in PANES
            ]
            self.offline = gr.DownloadButton(
                "Both, offline page (HTML)", interactive=False, elem_id="download-html", min_width=180
            )

    def _tables(self) -> None:
        self.numbers = gr.Dataframe(label="Statistics, side by side", interactive=False, wrap=True, elem_id="table-statistics")
        self.windows = [_frame(f"Windows, {side}", f"table-windows-{side}") for side in PANES]
        self.points = [_frame(f"Ensemble points, {side}", f"table-points-{side}") for side in PANES]
        with gr.Row(elem_classes="sl-files"):
            names = ["statistics", *(f"{what}-{side}" for what in ("windows", "points", "tokens") for side in PANES)]
            self.csv = {
                name: gr.DownloadButton(f"{name}.csv", size="sm", interactive=False, elem_id=f"csv-{name}", min_width=120)
                for name in names
            }

    def _tokenizers(self) -> None:
        with gr.Row():
            self.bench_text = gr.Textbox(
                "Incorrect: the gallbladder stores bile. Sofia, 東京 👩‍🚀", label="Text", lines=2, scale=3, elem_id="bench-text"
            )
            self.bench_models = self._picker("Tokenizers", self.models[:2], "bench-models", multiselect=True)
        self.bench_run = gr.Button("Compare", elem_id="bench-run", min_width=120)
        self.bench = Bench(elem_id="bench")
        with gr.Row():
            self.words = gr.Textbox("\n".join(WORDS), label="Words, one a line", lines=8, max_lines=12, elem_id="bench-words")
            with gr.Column(scale=3):
                self.agreement = gr.Dataframe(label="Words, piece by piece", interactive=False, max_height=360, wrap=True)

    # -- who is told what ---------------------------------------------------------------------------------------------------

    def _wire(self, demo: gr.Blocks) -> None:
        self.fields = {name: getattr(self, name) for name in FIELDS} | {"stop": self.stop_strings}
        self.streamed = [self.lens, self.status, self.pause, self.stop]
        self.refreshed = [
            *self.downloads,
            self.offline,
            *self.charts,
            self.numbers,
            *self.windows,
            *self.points,
            *self.csv.values(),
        ]
        self._wire_runs()
        self._wire_views()
        demo.unload(self._leave)
        opened = demo.load(self._arrive, self.asked, self.streamed, js=self._arrival_js(), **QUIET)
        self._then_refresh(opened)

    def _wire_runs(self) -> None:
        inputs = list(self.fields.values())
        steps: list[tuple[Any, Until | None]] = [(self.step, "window"), (self.fusion, "fusion"), (self.oov, "oov")]
        for button, until in [(self.run, None), *steps]:
            self._then_refresh(
                button.click(
                    self._runner(until),
                    inputs,
                    self.streamed,
                    js=CLEAR_PLACE,
                    trigger_mode="multiple",
                    **STREAMING,
                )
            )
        self._then_refresh(self.lens.fork(self._fork, None, self.streamed, js=CLEAR_PLACE, trigger_mode="multiple", **STREAMING))
        self.pause.click(self._pause, None, None, **AT_ONCE)
        self.stop.click(self._stop, None, None, **AT_ONCE)

    def _wire_views(self) -> None:
        self.examples.click(lambda sample: sample[0], self.examples, self.prompt, **AT_ONCE)
        for button, pair in self.cards:
            place = f"(...all) => {{ history.replaceState(history.state, '', {json.dumps(pair.link)}); return all; }}"
            self._then_refresh(button.click(self._opener(pair), None, self.streamed, js=place, **AT_ONCE))
        self._then_refresh(self.upload.upload(self._upload, self.upload, self.streamed, js=CLEAR_PLACE, **QUIET))
        for tab, name in ((self.traces_tab, "traces"), (self.charts_tab, "charts"), (self.tables_tab, "tables")):
            tab.select(lambda name=name: name, None, self.open_tab, **AT_ONCE).then(
                self._refresh, self.open_tab, self.refreshed, **QUIET
            )
        compare = [self.bench_text, self.bench_models, self.words]
        self.bench_run.click(self._compare, compare, [self.bench, self.agreement, self.status], **QUIET)

    def _then_refresh(self, event: Any) -> None:
        event.then(self._refresh, self.open_tab, self.refreshed, **QUIET)

    def _arrival_js(self) -> str:
        """Asks the address for a trace's name; an address without one gets the first pair's."""
        first = json.dumps(self.pairs[0].link if self.pairs else "")
        return f"""() => {{
          const asked = new URLSearchParams(location.hash.slice(1)).get("trace") || "";
          if (asked === "" && {first} !== "") history.replaceState(history.state, "", {first});
          return asked;
        }}"""

    # -- opening what is recorded -------------------------------------------------------------------------------------------

    def _arrive(self, asked: str, request: gr.Request) -> list[Any]:
        """The pair that the address names, else the first one."""
        desk = self.desks.of(request.session_hash)
        pair = next((pair for pair in self.pairs if pair.name == asked), None)
        missing = (
            f"The link asks for a trace named '{asked[:80]}', which is not in this gallery." if asked and pair is None else ""
        )
        shown = pair or next(iter(self.pairs), None)
        if shown is None:
            status = Status("error", missing) if missing else Status("idle", "Write a prompt and press Run.")
            return [gr.skip(), _line(status), *_idle()]
        items, status, *buttons = self._open(desk, shown)
        return [items, _line(Status("error", missing)) if missing else status, *buttons]

    def _opener(self, pair: Pair) -> Callable[[gr.Request], list[Any]]:
        def opened(request: gr.Request) -> list[Any]:
            return self._open(self.desks.of(request.session_hash), pair)

        return opened

    def _open(self, desk: Desk, pair: Pair) -> list[Any]:
        try:
            traces = [gallery.read(path) for path in pair.files(self.traces)]
        except SafeError as problem:
            return [gr.skip(), _line(Status("error", str(problem))), *_idle()]
        titles = (pair.left.title, pair.right.title)
        shown = [Shown(key, title, t.events) for key, title, t in zip(PANES, titles, traces, strict=True)]
        return self._show(desk, shown, Status("idle", f"Recorded · {pair.title}. {pair.look_for}"), pair.name)

    def _upload(self, paths: list[str] | None, request: gr.Request) -> list[Any]:
        """One or two uploaded traces; what was shown stays where one of them cannot be used."""
        desk = self.desks.of(request.session_hash)
        names = [Path(path).name for path in paths or ()]
        try:
            if not 1 <= len(names) <= 2:
                raise InputError(f"Choose one or two traces to open, not {len(names)}.")
            traces = [_read_upload(path) for path in paths or ()]
        except SafeError as problem:
            return [gr.skip(), _line(Status("error", str(problem))), *_idle()]
        shown = [Shown(key, "", t.events) for key, t in zip(PANES, traces, strict=False)]
        return self._show(desk, shown, Status("idle", f"Opened {' and '.join(names)}"), None)

    def _show(self, desk: Desk, shown: list[Shown], status: Status, name: str | None) -> list[Any]:
        """Finished runs in the lens."""
        desk.end()
        desk.shown, desk.name = shown, name
        items: list[Item] = [Lens.view([(s.key, s.title) for s in shown], name)]
        for s in shown:
            items += Lens.items(s.key, s.events)
        return [items, _line(status), *_idle()]

    # -- running ------------------------------------------------------------------------------------------------------------

    def _runner(self, until: Until | None) -> Callable[..., Iterator[list[Any]]]:
        names = list(self.fields)

        def handler(request: gr.Request, *values: Any) -> Iterator[list[Any]]:
            desk = self.desks.of(request.session_hash)
            going = desk.going
            if until is not None and going is not None:
                going.control.resume(until)
                yield [gr.skip()] * 4
                return
            try:
                order = order_of(dict(zip(names, values, strict=True)))
            except SafeError as problem:
                yield [gr.skip(), _line(Status("error", str(problem))), gr.skip(), gr.skip()]
                return
            desk.end()
            keys = PANES[: len(order.sides)]
            shown = [Shown(k, _title(side, order.names(side)), [], order) for k, side in zip(keys, order.sides, strict=True)]
            yield from self._stream(desk, shown, keys, self.workshop.order(order, keys), Control(until))

        return handler

    def _fork(self, request: gr.Request, wish: gr.EventData) -> Iterator[list[Any]]:
        """On from another choice: the parent stays in its pane, the fork takes the other."""
        desk = self.desks.of(request.session_hash)
        try:
            fork = Fork.of(wish._data)
            parent = desk.run(str(wish._data.get("run")))
        except SafeError as problem:
            yield [gr.skip(), _line(Status("error", str(problem))), gr.skip(), gr.skip()]
            return
        desk.end()
        kept = Shown(parent.key, parent.title, list(parent.events), parent.order)
        key = PANES[1 - PANES.index(parent.key)]
        title = f"{parent.title or 'Run'}, forked in window {fork.window}"
        shown = sorted([kept, Shown(key, title, [], parent.order)], key=lambda s: PANES.index(s.key))
        yield from self._stream(desk, shown, [key], self.workshop.fork(kept, fork, key), Control())

    def _stream(
        self, desk: Desk, shown: list[Shown], keys: Sequence[str], prepare: Prepare, control: Control
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
                if news or over or now != told or time.monotonic() - told_at > HEARTBEAT:
                    buttons = _idle() if over else _going(job.control.paused)
                    yield [items if news else gr.skip(), _line(job.status), *buttons]
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
        desk.name = None
        items: list[Item] = [Lens.view([(s.key, s.title) for s in shown])]
        for s in shown:
            if s.key not in lanes:
                items += Lens.items(s.key, s.events)
        return items

    def _pause(self, request: gr.Request) -> None:
        job = self.desks.of(request.session_hash).going
        if job is not None:
            if job.control.paused:
                job.control.resume()
            else:
                job.control.pause()

    def _stop(self, request: gr.Request) -> None:
        job = self.desks.of(request.session_hash).going
        if job is not None:
            job.control.stop()

    def _leave(self, request: gr.Request) -> None:
        self.desks.close(request.session_hash)

    # -- charts, tables, files ----------------------------------------------------------------------------------------------

    def _refresh(self, tab: str, request: gr.Request) -> list[Any]:
        """What the open tab shows of the runs on the page; the other tabs wait until they are opened."""
        desk = self.desks.of(request.session_hash)
        shown = [s for s in desk.shown if s.events]
        events = {s.key: list(s.events) for s in shown}
        files = self._files(desk.folder, shown, events) if tab == "traces" else [gr.skip()] * 3
        charts = self._drawn(shown, events) if tab == "charts" else [gr.skip()] * len(self.charts)
        tables = self._tabled(desk.folder, shown, events) if tab == "tables" else [gr.skip()] * (1 + 2 + 2 + len(self.csv))
        return [*files, *charts, *tables]

    def _files(self, folder: Path, shown: Sequence[Shown], events: dict[str, list[Event]]) -> list[Any]:
        """The traces as they are on the page, and both in one offline page."""
        made: list[Any] = []
        for key in PANES:
            if key in events:
                (folder / f"{key}.jsonl").write_bytes(trace.dumps(events[key]))
            made.append(_download(folder / f"{key}.jsonl" if key in events else None))
        if shown:
            page = html_of([(_named(s), events[s.key]) for s in shown])
            (folder / "safe-lens.html").write_text(page, encoding="utf-8")
        return [*made, _download(folder / "safe-lens.html" if shown else None)]

    def _drawn(self, shown: Sequence[Shown], events: dict[str, list[Event]]) -> list[Any]:
        from app.charts import CHARTS, Charted

        runs = [Charted(s.key, _named(s), events[s.key]) for s in shown]
        return [draw(runs) for draw in CHARTS] if runs else [None] * len(CHARTS)

    def _tabled(self, folder: Path, shown: Sequence[Shown], events: dict[str, list[Event]]) -> list[Any]:
        from app import tables

        frames = {"statistics": tables.statistics([(_named(s), events[s.key]) for s in shown])} if shown else {}
        for what, fold in (("windows", tables.windows), ("points", tables.points), ("tokens", tables.tokens)):
            frames |= {f"{what}-{key}": fold(events[key]) for key in PANES if key in events}
        for name, frame in frames.items():
            frame.to_csv(folder / f"{name}.csv", index=False)
        parts = [*(f"windows-{key}" for key in PANES), *(f"points-{key}" for key in PANES)]
        csv = [_download(folder / f"{name}.csv" if name in frames else None) for name in self.csv]
        return [*(tables.rounded(frames[name]) if name in frames else None for name in ("statistics", *parts)), *csv]

    def _compare(self, text: str, names: list[str], words: str) -> list[Any]:
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


QUIET: Final[dict[str, Any]] = {"show_progress": "hidden", "api_visibility": "private"}
AT_ONCE: Final[dict[str, Any]] = {**QUIET, "queue": False}
STREAMING: Final[dict[str, Any]] = {**QUIET, "concurrency_limit": None}


def _line(status: Status) -> dict[str, Any]:
    return {"kind": status.kind, "text": status.text, "fraction": status.fraction}


def _going(paused: bool) -> list[Any]:
    """Pause and Stop while a job goes on."""
    return [gr.update(value="Resume" if paused else "Pause", interactive=True), gr.update(interactive=True)]


def _idle() -> list[Any]:
    """Pause and Stop while none does."""
    return [gr.update(value="Pause", interactive=False), gr.update(interactive=False)]


def _title(side: str, names: Sequence[str]) -> str:
    """What a pane is called."""
    return f"{Path(names[0]).name} alone" if side.endswith("alone") else side


def _named(shown: Shown) -> str:
    return shown.title or {"left": "Left run", "right": "Right run"}[shown.key]


def _note(text: str) -> str:
    """Words of our own gallery list as a paragraph: escaped, and safe in the toolkit's templates."""
    import html

    return f"<p class='sl-note'>{html.escape(text).replace('{', '&#123;').replace('$', '&#36;').replace('`', '&#96;')}</p>"


def _frame(label: str, id: str) -> gr.Dataframe:
    return gr.Dataframe(label=label, interactive=False, max_height=420, wrap=False, elem_id=id, buttons=["copy", "fullscreen"])


def _download(path: Path | None) -> Any:
    return gr.update(value=None if path is None else str(path), interactive=path is not None)


def _read_upload(path: str) -> trace.Trace:
    """A trace a person uploaded. The sentence names their file, not the server's copy of it."""
    try:
        return trace.loads(Path(path).read_bytes())
    except SafeError as problem:
        raise InputError(f"{Path(path).name}: {problem}") from None
    except OSError:
        raise InputError(f"{Path(path).name} did not arrive whole. Open it again.") from None


def theme() -> gr.Theme:
    """System fonts, so that nothing is fetched, and quiet colours that leave the lens its hues."""
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif"]
    mono = ["ui-monospace", "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", "monospace"]
    return gr.themes.Default(
        primary_hue="blue", neutral_hue="slate", font=fonts, font_mono=mono, spacing_size="sm", text_size="md", radius_size="md"
    )


def style() -> str:
    """The page's own style sheet."""
    return (PAGE / "page.css").read_text("utf-8")


def head() -> str:
    """A script that lets points of charts lead to their tokens."""
    return f"<script>{(PAGE / 'page.js').read_text('utf-8')}</script>"
