"""The page: where everything stands, and what is told to whom when a person presses something."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import gradio as gr

from app import gallery, report, tour
from app.answers import Answers
from app.desks import PANES
from app.gallery import Pair
from app.jobs import Until
from app.keep import Keep, private_folder
from app.lens import Lens
from app.orders import LIMITS, METHODS, NOTHING
from app.session import Workshop
from app.tabs import TABLES
from app.tokenizers import WORDS
from app.widgets import PAGE, Bench, StatusLine, Tour
from safe_core import zoo

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
CLEAR_PLACE: Final = """(...all) => {
  history.replaceState(history.state, "", location.pathname + location.search);
  return all;
}"""
"""A new run is nobody's link: the place of the last one must not pull the reader about in it."""


class Page:
    """Builds the page and holds what all its visitors share: the desks and the way to the models."""

    def __init__(
        self, models: Sequence[str] = (), *, any_model: bool = True, traces: Path = gallery.TRACES, keep: Keep | None = None
    ) -> None:
        """``models`` are offered besides the built-in ones; ``any_model`` lets a person name others; ``keep`` holds open pages,
        by default in a private folder for temporary files."""
        built_in = [model.name for model in zoo.builtin_models()]
        self.models = list(dict.fromkeys([*built_in, *models]))
        self.any_model = any_model
        workshop = Workshop(None if any_model else self.models)
        self.answers = Answers(workshop, traces, keep or Keep(private_folder()), [*FIELDS, "stop"])
        self.pairs = self.answers.pairs

    # -- where everything stands --------------------------------------------------------------------------------------------

    def blocks(self) -> gr.Blocks:
        """The page, ready to launch."""
        with gr.Blocks(title="SAFE lens", fill_width=True, analytics_enabled=False, delete_cache=(3600, 43200)) as demo:
            with gr.Row(elem_classes="sl-top"):
                gr.HTML(
                    "<header class='sl-head'><h1>SAFE lens</h1><p>Language models with different tokenizers, fused token by "
                    "token: see where every token came from, who agreed, who could not be asked, and why it stayed.</p></header>"
                )
                self.tour = Tour({"offered": tour.offered(self.pairs)}, elem_id="tour", min_width=200)
            self._form()
            self.asked, self.page = gr.Textbox(visible=False), gr.Textbox(visible=False)
            self.lens = Lens(elem_id="lens", can_fork=True)
            self._tabs()
            self._wire(demo)
        return demo

    def _form(self) -> None:
        with gr.Row(elem_classes="sl-form"):
            with gr.Column(scale=5, min_width=300):
                self.prompt = gr.Textbox(label="Prompt", lines=3, max_lines=12, value=EXAMPLES[0], elem_id="prompt")
                self.examples = gr.Dataset(
                    components=[self.prompt], samples=[[text] for text in EXAMPLES], label="Examples", elem_id="examples"
                )
            with gr.Column(scale=6, min_width=320):
                with gr.Row():
                    self.left = gr.Dropdown(list(METHODS), value="UniTE", label="Left", elem_id="left", min_width=120)
                    self.right = gr.Dropdown([*METHODS, NOTHING], value="SAFE", label="Right", elem_id="right", min_width=120)
                with gr.Row():
                    self.drafter = self._picker("Drafter", self.models[0], "drafter")
                    self.verifiers = self._picker("Verifiers", self.models[1:2], "verifiers", multiselect=True)
        with gr.Accordion("Advanced", open=False, elem_id="advanced"):
            self._advanced()
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
            with gr.Tab("Report", id="report"):
                report.build()

    def _traces(self) -> None:
        self.cards: list[tuple[gr.Button, Pair]] = []
        with gr.Row(elem_classes="sl-gallery", elem_id="gallery"):
            for pair in self.pairs:
                with gr.Column(elem_classes="sl-card", min_width=260):
                    button = gr.Button(pair.title, size="md", elem_id=f"pair-{pair.name}")
                    gr.HTML(_note(pair.look_for))
                    self.cards.append((button, pair))
        with gr.Row(elem_classes="sl-files"):
            self.upload = gr.UploadButton(
                "Open one or two traces …", file_count="multiple", size="md", elem_id="upload", min_width=180
            )
            self.downloads = [
                gr.DownloadButton(f"{side} run, trace (JSONL)", interactive=False, size="md", elem_id=f"download-{side}")
                for side in PANES
            ]
            self.offline = gr.DownloadButton(
                "Both, offline page (HTML)", interactive=False, size="md", elem_id="download-html", min_width=180
            )

    def _tables(self) -> None:
        self.numbers = gr.Dataframe(label="Statistics, side by side", interactive=False, wrap=True, elem_id="table-statistics")
        self.windows = [_frame(f"Windows, {side}", f"table-windows-{side}") for side in PANES]
        self.points = [_frame(f"Ensemble points, {side}", f"table-points-{side}") for side in PANES]
        with gr.Row(elem_classes="sl-files"):
            self.csv = {
                name: gr.DownloadButton(f"{name}.csv", size="sm", interactive=False, elem_id=f"csv-{name}", min_width=120)
                for name in TABLES
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
        demo.unload(self.answers.leave)
        arrived = [*self.streamed, self.page, *self.fields.values()]
        opened = demo.load(self.answers.arrive, [self.asked, self.page], arrived, js=self._arrival_js(), **QUIET)
        self.status.address(self.answers.address, self.page, self.streamed, **AT_ONCE)
        self._then_refresh(opened)

    def _wire_runs(self) -> None:
        inputs = list(self.fields.values())
        steps: list[tuple[Any, Until | None]] = [(self.step, "window"), (self.fusion, "fusion"), (self.oov, "oov")]
        for button, until in [(self.run, None), *steps]:
            self._then_refresh(
                button.click(
                    self.answers.runner(until),
                    [self.page, *inputs],
                    self.streamed,
                    js=CLEAR_PLACE,
                    trigger_mode="multiple",
                    **STREAMING,
                )
            )
        self._then_refresh(
            self.lens.fork(self.answers.fork, self.page, self.streamed, js=CLEAR_PLACE, trigger_mode="multiple", **STREAMING)
        )
        self.pause.click(self.answers.pause, None, None, **AT_ONCE)
        self.stop.click(self.answers.stop, None, None, **AT_ONCE)

    def _wire_views(self) -> None:
        self.examples.click(lambda sample: sample[0], self.examples, self.prompt, **AT_ONCE)
        for button, pair in self.cards:
            place = f"(...all) => {{ history.replaceState(history.state, '', {json.dumps(pair.link)}); return all; }}"
            self._then_refresh(button.click(self.answers.opener(pair), self.page, self.streamed, js=place, **AT_ONCE))
        self._then_refresh(
            self.upload.upload(self.answers.upload, [self.upload, self.page], self.streamed, js=CLEAR_PLACE, **QUIET)
        )
        led = [self.tour, *self.streamed]
        self.tour.begin(self.answers.begin_tour, self.page, [self.tour, self.status], **AT_ONCE)
        self._then_refresh(self.tour.open(self.answers.guide, self.page, led, trigger_mode="multiple", **AT_ONCE))
        self._then_refresh(self.tour.leave(self.answers.leave_tour, self.page, led, **AT_ONCE))
        for tab, name in ((self.traces_tab, "traces"), (self.charts_tab, "charts"), (self.tables_tab, "tables")):
            tab.select(lambda name=name: name, None, self.open_tab, **AT_ONCE).then(
                self.answers.refresh, [self.open_tab, self.page], self.refreshed, **QUIET
            )
        compare = [self.bench_text, self.bench_models, self.words]
        self.bench_run.click(self.answers.compare, compare, [self.bench, self.agreement, self.status], **QUIET)

    def _then_refresh(self, event: Any) -> None:
        event.then(self.answers.refresh, [self.open_tab, self.page], self.refreshed, **QUIET)

    def _arrival_js(self) -> str:
        """Asks the page for its address and for its own name; an address without a place gets the first pair's."""
        first = json.dumps(self.pairs[0].link if self.pairs else "")
        return f"() => window.SafeLensPage.arrive({first})"


QUIET: Final[dict[str, Any]] = {"show_progress": "hidden", "api_visibility": "private"}
AT_ONCE: Final[dict[str, Any]] = {**QUIET, "queue": False}
STREAMING: Final[dict[str, Any]] = {**QUIET, "concurrency_limit": None}


def _note(text: str) -> str:
    """Words of our own gallery list as a paragraph: escaped, and safe in the toolkit's templates."""
    import html

    return f"<p class='sl-note'>{html.escape(text).replace('{', '&#123;').replace('$', '&#36;').replace('`', '&#96;')}</p>"


def _frame(label: str, id: str) -> gr.Dataframe:
    return gr.Dataframe(label=label, interactive=False, max_height=420, wrap=False, elem_id=id, buttons=["copy", "fullscreen"])


def theme() -> gr.Theme:
    """System fonts, so that nothing is fetched, and quiet colours that leave the lens its hues."""
    fonts = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif"]
    mono = ["ui-monospace", "SF Mono", "Cascadia Mono", "DejaVu Sans Mono", "monospace"]
    return gr.themes.Default(
        primary_hue="blue", neutral_hue="slate", font=fonts, font_mono=mono, spacing_size="sm", text_size="md", radius_size="md"
    )


def head() -> str:
    """The page's own style sheets and script. Not through the toolkit's ``css``: that one rewrites rules of media queries."""
    sheets = "\n".join((PAGE / name).read_text("utf-8") for name in ("page.css", "tour.css"))
    return f"<style>{sheets}</style><script>{(PAGE / 'page.js').read_text('utf-8')}</script>"
