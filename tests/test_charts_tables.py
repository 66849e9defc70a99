"""Charts, tables, the gallery and the tokenizer bench: folds over traces that need neither torch nor a page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from app import charts, gallery, tables
from app.charts import CHARTS, Charted
from app.glyphs import visible
from app.tokenizers import agreement, bench
from safe_core import events as ev
from safe_core import trace
from safe_core.events import Event
from safe_core.trace import statistics
from safe_core.types import TraceError
from tests.browser.made_traces import Maker, long_run
from tests.toys import toy_vocabulary

ROOT = Path(__file__).resolve().parent.parent
HOSTILE: list[Any] = [b"<b>", b"<script>alert(1)</script>", b"%{x}", b"${1}", "👩‍👩‍👧".encode(), b"\xff", b"\r\n", b"=1+1"]


@pytest.fixture(scope="module")
def pair() -> list[Charted]:
    return [Charted("left", "UniTE", long_run(120, "unite")), Charted("right", "SAFE", long_run(120, "safe", seed=1))]


def hostile(method: Any = "safe") -> list[Event]:
    return Maker(HOSTILE, method=method, fuse=0.5, models=("<i>m</i>", "${v}")).events()


# -- tables -------------------------------------------------------------------------------------------------------------------


def test_a_row_per_token_in_the_bytes_of_the_response(pair: Sequence[Charted]) -> None:
    for run in pair:
        table = tables.tokens(run.events)
        committed = [t for e in run.events if isinstance(e, ev.Commit) for t in e.tokens]
        assert list(table["token"]) == list(range(len(committed)))
        assert list(table["byte"]) == [t.start for t in committed]
        assert list(table["text"]) == [visible(bytes.fromhex(t.hex), t.eos) for t in committed]


def test_states_agree_with_the_statistics(pair: Sequence[Charted]) -> None:
    for run in pair:
        counts = tables.tokens(run.events)["state"].value_counts()
        stats = statistics(run.events)
        assert counts.get("all agree", 0) == stats["unanimous"]
        assert counts.get("majority", 0) == stats["majority"]
        assert counts.get("not safe", 0) == stats["oov"]
        assert counts.get("fused, replaced", 0) >= stats["replaced"]
        assert tables.tokens(run.events)["asked on a broken prefix"].sum() >= stats["asked_oov"] > -1


def test_windows_add_up_to_the_run(pair: Sequence[Charted]) -> None:
    for run in pair:
        table, stats = tables.windows(run.events), statistics(run.events)
        assert len(table) == stats["windows"]
        assert table["fused"].sum() == stats["ensembles"]
        assert table["replaced"].sum() == stats["replaced"]
        for phase in tables.PHASES:
            assert table[f"{phase} ms"].sum() == pytest.approx(stats["ms"][phase], abs=0.01)


def test_ensemble_points_lead_to_their_tokens(pair: Sequence[Charted]) -> None:
    for run in pair:
        texts = list(tables.tokens(run.events)["text"])
        table = tables.points(run.events)
        assert len(table) == statistics(run.events)["ensembles"]
        for row in table.to_dict("records"):
            assert row["chosen"].startswith(texts[int(row["token"])])
            assert row["replaced"] == (row["chosen"] != row["drafted"])


def test_statistics_stand_side_by_side(pair: Sequence[Charted]) -> None:
    table = tables.statistics([("Run", run.events) for run in pair])
    assert list(table.columns) == ["number", "Run (1)", "Run (2)"]
    numbers = dict(zip(table["number"], table["Run (2)"], strict=True))
    stats = statistics(pair[1].events)
    assert numbers["tokens"] == stats["tokens"]
    assert numbers["E/T"] == stats["ensemble_rate"]
    assert numbers["verify ms"] == stats["ms"]["verify"]
    for model, count in stats["fed"].items():
        assert numbers[f"tokens fed to {model}"] == count


@pytest.mark.parametrize("method", ["safe", "unite", "gac", "single"])
@pytest.mark.parametrize("length", [0, 1, 2, 5])
def test_every_prefix_has_tables_and_charts(method: Any, length: int) -> None:
    events = hostile(method)
    for end in range(1, len(events) + 1, max(1, length)):
        part = events[:end]
        for fold in (tables.tokens, tables.windows, tables.points):
            fold(part)
        tables.statistics([("x", part)])
    for draw in CHARTS:
        draw([Charted("left", "x", events[: 1 + length])]).to_json()


def test_a_fork_shows_who_chose() -> None:
    forced = ev.Ensemble(
        window=0,
        index=0,
        candidates=[],
        smooth=False,
        sharpen="none",
        chosen_hex="61",
        draft_hex="62",
        replaced=True,
        ms=0.0,
        forced=True,
    )
    (row,) = tables.points([forced]).to_dict("records")
    assert (row["by"], row["chosen"], row["drafted"], row["candidates"]) == ("a person", "a", "b", 0)


# -- charts -------------------------------------------------------------------------------------------------------------------


def test_points_of_charts_lead_to_their_tokens(pair: Sequence[Charted]) -> None:
    figure = charts.consensus(pair)
    seen = 0
    for points in figure.data:
        for (run, token), x, y in zip(points.customdata, points.x, points.y, strict=True):
            table = tables.tokens(next(c.events for c in pair if c.key == run))
            assert x == token
            assert table["mean p"][token] == y
            seen += 1
    assert seen == sum(int(tables.tokens(c.events)["mean p"].notna().sum()) for c in pair)


def test_the_threshold_is_drawn_in_every_row(pair: Sequence[Charted]) -> None:
    lines = [shape for shape in charts.consensus(pair).layout.shapes if shape.y0 == shape.y1 == 0.5]
    assert len(lines) == 2


def test_exposures_end_at_the_totals(pair: Sequence[Charted]) -> None:
    ends = {line.name: line.y[-1] for line in charts.exposures(pair).data}
    for run in pair:
        table = tables.tokens(run.events)
        assert ends[f"{run.title}: asked there"] == table["asked on a broken prefix"].sum()
        assert ends[f"{run.title}: left alone"] == (table["state"] == "not safe").sum()
    assert ends["SAFE: asked there"] == 0


def test_shares_add_up_to_one(pair: Sequence[Charted]) -> None:
    figure = charts.shares(pair)
    for k in range(2):
        assert sum(bar.x[k] for bar in figure.data) == pytest.approx(1.0)


def test_bars_are_the_statistics(pair: Sequence[Charted]) -> None:
    stats = [statistics(run.events) for run in pair]
    for bar in charts.times(pair).data:
        assert list(bar.x) == [s["ms"][bar.name] / 1e3 for s in stats]
    for bar in charts.fed(pair).data:
        assert list(bar.x) == [s["fed"].get(bar.name, 0) for s in stats]
    stand, gone = charts.drafts(pair).data
    assert [a + b for a, b in zip(stand.x, gone.x, strict=True)] == [s["drafted"] for s in stats]


@pytest.mark.parametrize("draw", [charts.shares, charts.times, charts.fed, charts.drafts])
def test_hatched_bars_keep_their_colour(pair: Sequence[Charted], draw: Callable[[Sequence[Charted]], Any]) -> None:
    """Plotly's own filling, "replace", gives the bar's colour to the lines alone: white lines would leave nothing of it."""
    markers = [bar["marker"] for bar in json.loads(draw(pair).to_json())["data"]]
    hatched = [marker for marker in markers if marker["pattern"]["shape"]]
    assert hatched
    for marker in hatched:
        assert re.fullmatch("#[0-9a-f]{6}", marker["color"])
        assert marker["pattern"]["fillmode"] == "overlay"
        assert "bgcolor" not in marker["pattern"]


def test_every_state_has_a_hue_and_a_shape_of_its_own() -> None:
    assert set(charts.LOOKS) == set(tables.STATES.values())
    fused_and_kept = [look for state, look in charts.LOOKS.items() if state != "one model"]
    assert len({symbol for _, symbol in fused_and_kept}) == len(fused_and_kept)


def test_markup_reaches_no_chart() -> None:
    runs = [Charted("left", "<b>x</b>", hostile()), Charted("right", "<b>x</b>", hostile("unite"))]
    for draw in CHARTS:
        text = draw(runs).to_json()
        shown = json.loads(text)
        assert "<script" not in text
        assert not re.search(r"<[bi]>(?!r)", json.dumps([trace.get("text") for trace in shown["data"]]))
        assert "<i>m" not in text


# -- glyphs -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b" a\n", "␣a↵"),
        (b"\r\n\t", "␍↵⇥"),
        ("\u00a0\u200b\ufeff\u200d".encode(), "[NBSP][ZWSP][BOM][ZWJ]"),
        ("漢".encode()[:2], "⟨E6 BC⟩"),
        (b"a\xff\xfeb", "a⟨FF FE⟩b"),
        ("\u202e".encode(), "[U+202E]"),
        ("\ufffd".encode(), "\ufffd"),
        (b"", ""),
    ],
)
def test_nothing_is_invisible(data: bytes, expected: str) -> None:
    assert visible(data) == expected


def test_the_end_is_no_text() -> None:
    assert visible(b"", eos=True) == "⏹ end"


# -- tokenizers ---------------------------------------------------------------------------------------------------------------


def test_the_bench_counts_what_it_draws() -> None:
    text = "Walking along the river, 東京 <b>"
    vocabularies: dict[str, Any] = {f"v{seed}": toy_vocabulary(seed, 80) for seed in (1, 2)}
    drawn = bench(text, {name: v.encode(text.encode()) for name, v in vocabularies.items()})
    ends = [{t["end"] for t in row["tokens"]} for row in drawn["rows"]]
    assert drawn["length"] == len(text.encode())
    assert drawn["common"] == sorted(ends[0] & ends[1])
    for row, own, other in zip(drawn["rows"], ends, reversed(ends), strict=True):
        assert [t["end"] for t in row["tokens"] if t["alone"]] == sorted(own - other)
    inner = len((ends[0] | ends[1]) - {drawn["length"]})
    assert drawn["summary"].startswith(f"{len(ends[0] & ends[1]) - 1} of {inner} inner boundaries")


def test_an_empty_text_draws_nothing() -> None:
    drawn = bench("", {"v": toy_vocabulary(1).encode(b"")})
    assert drawn["rows"] == []


def test_agreement_is_a_share_of_the_words() -> None:
    vocabularies: dict[str, Any] = {f"v{seed}": toy_vocabulary(seed, 120) for seed in (1, 2)}
    table = agreement(["river", "river", " ", "the", "walking"], vocabularies)
    rows = table.to_dict("records")
    assert [row["word"] for row in rows[1:]] == sorted(
        ["river", "the", "walking"], key=lambda w: next(r["cut alike"] for r in rows if r["word"] == w) == "yes"
    )
    alike = sum(row["cut alike"] == "yes" for row in rows[1:])
    assert rows[0]["cut alike"] == f"{alike / 3:.0%}"
    for row in rows[1:]:
        assert row["v1"].replace(" | ", "") == f"␣{row['word']}"


# -- gallery ------------------------------------------------------------------------------------------------------------------


def test_the_gallery_is_whole() -> None:
    offered = gallery.pairs()
    assert len(offered) == 6
    assert len({pair.name for pair in offered}) == 6
    for pair in offered:
        left, right = (gallery.read(path) for path in pair.files())
        assert (left.start.method, right.start.method) == ("unite", "safe")
        assert left.start.prompt == right.start.prompt
        assert left.start.settings["after_confirm"] == "redraft"
        assert left.end is not None
        assert right.end is not None
        run = left if pair.where.run == "left" else right
        table = tables.tokens(run.events)
        assert table["window"][pair.where.token] == pair.where.window
        assert re.fullmatch(r"[a-z-]+", pair.name)
        assert max(len(trace.dumps(t.events)) for t in (left, right)) < 500_000


def test_every_trace_of_the_gallery_is_listed() -> None:
    listed = {path.name for pair in gallery.pairs() for path in pair.files()}
    assert listed == {path.name for path in gallery.TRACES.glob("*.jsonl")}


def test_a_list_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    assert gallery.pairs(tmp_path) == []
    (tmp_path / "gallery.json").write_text('[{"name": 1}]')
    with pytest.raises(TraceError, match="cannot be used"):
        gallery.pairs(tmp_path)


def test_folds_and_replay_need_no_torch_and_charts_no_page() -> None:
    code = (
        "import sys; from app import charts, tables, gallery, tokenizers, form, session\n"
        "assert 'torch' not in sys.modules and 'gradio' not in sys.modules and 'transformers' not in sys.modules\n"
        "from app import layout, export\n"
        "pairs = gallery.pairs(); traces = [gallery.read(p) for pair in pairs for p in pair.files()]\n"
        "page = layout.Page().blocks()\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
