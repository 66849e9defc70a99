"""The report: from files as the benchmarks write them to numbers on the page, without models; and its tab in the app."""

from __future__ import annotations

import argparse
import io
import json
import math
import random
import re
import zipfile
from collections.abc import Iterator
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from safe_core.benchmarks import published, report
from safe_core.benchmarks.report.numbers import wilson
from safe_core.types import InputError, Settings

HOSTILE = "</script><img src=x onerror=window.ran=1> ${7*7} %{x} {{x}} <b>bold</b> \u202e\u200b &lt;"
PAIR = ["smollm2-135m-instruct", "gemma-3-270m"]


# -- files as the benchmarks write them --------------------------------------------------------------------------------------


def interval(correct: int, questions: int) -> list[float]:
    """Wilson's, as the roots of (p - x)^2 = z^2 x (1 - x) / n."""
    p, k = correct / questions, 1.959964**2 / questions
    a, b, c = 1 + k, -(2 * p + k), p * p
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    return [(-b - root) / (2 * a), (-b + root) / (2 * a)]


def statistics(tokens: int, *, asked_oov: int = 0, ensembles: int = 0, drafted: int = 0, discarded: int = 0) -> dict[str, Any]:
    """The counts of a run as traces give them, as far as the report looks."""
    return {
        "tokens": tokens,
        "windows": tokens // 4,
        "ensembles": ensembles,
        "ensemble_rate": ensembles / tokens,
        "drafted": drafted,
        "discarded": discarded,
        "oov": asked_oov,
        "asked_oov": asked_oov,
        "asked_oov_by_model": {PAIR[1]: asked_oov},
        "engine_share": 0.04,
        "tokens_per_second": 21.5,
        "ms": {
            "draft": 30.0 * tokens,
            "retokenize": tokens,
            "verify": 9.0 * tokens,
            "ensemble": 0.5 * tokens,
            "other": 0.5 * tokens,
        }
        | {"forward": 38.0 * tokens, "total": 41.0 * tokens},
    }


def write_run(
    folder: Path,
    task: str,
    method: str,
    label: str,
    correct: int,
    questions: int,
    *,
    models: list[str] | None = None,
    settings: dict[str, Any] | None = None,
    exposed: float = 0.0,
    rate: float = 0.06,
    rows: bool = True,
    subjects: dict[str, tuple[int, int]] | None = None,
) -> Path:
    """A run's folder: ``summary.json`` and the lines of ``results.jsonl``."""
    folder.mkdir(parents=True)
    used = models or (PAIR[:1] if method == "single" else PAIR)
    tokens = 200 * questions
    total = statistics(
        tokens,
        asked_oov=round(exposed * tokens),
        ensembles=0 if method == "single" else round(rate * tokens),
        drafted=round(1.3 * tokens) if method == "safe" else tokens,
        discarded=round(0.3 * tokens) if method == "safe" else 0,
    )
    summary = {
        "kind": "accuracy",
        "task": task,
        "method": method,
        "label": label,
        "models": used,
        "settings": json.loads(json.dumps(asdict(Settings()) | {"max_new_tokens": 1024} | (settings or {}))),
        "questions": questions,
        "failed": 0,
        "correct": correct,
        "complete": True,
        "accuracy": correct / questions,
        "interval": [round(x, 4) for x in interval(correct, questions)],
        "subjects": {
            name: {"questions": n, "correct": c, "accuracy": c / n, "interval": interval(c, n)}
            for name, (c, n) in (subjects or {}).items()
        },
        "statistics": total,
        "harness_share": 0.013,
        "seconds": 3600.0,
        "versions": {"torch": "2.13.0", "lm_eval": "0.4.13"},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "settings.json").write_text(json.dumps({"task": task, "settings": summary["settings"]}))
    if rows:
        chance = random.Random(label)
        lines = []
        for number in range(questions):
            asked = 0 if chance.random() < 0.3 else round(min(0.12, chance.expovariate(1 / max(exposed, 1e-9))) * 200)
            own = statistics(200, asked_oov=asked if exposed else 0, ensembles=10)
            lines.append(
                {"id": f"{task}-{number}", "subject": None, "prompt": HOSTILE, "response": "x", "parsed": "1", "answer": "1"}
                | {"correct": number < correct, "reason": "eos", "error": None, "statistics": own, "seconds": 2.0, "trace": None}
            )
        (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def speed_file(path: Path, lengths: tuple[int, ...] = (100, 500, 1000, 2000)) -> Path:
    rates = {"single": 0.98, "safe": 0.8, "safe-continue": 0.84, "unite": 0.4, "gac": 0.7}
    rows = [
        {
            "prompt": prompt,
            "variant": variant,
            "tokens": tokens,
            "seconds": tokens / (30 * rate),
            "rate_over_own": rate - 0.02 * at + (0.1 if prompt == "a" else -0.1),
            "engine_share": 0.03 + 0.001 * at,
            "ensemble_rate": 1.0 if variant == "unite" else 0.05,
            "discarded": 12,
            "ms": {},
            "fed_over_least": {PAIR[0]: 1.1, PAIR[1]: 1.25},
        }
        for variant, rate in rates.items()
        for prompt in ("a", "b")
        for at, tokens in enumerate(lengths)
    ]
    path.write_text(json.dumps({"kind": "speed", "models": PAIR, "dtype": "torch.float32", "rows": rows, "mean": rates}))
    return path


def tokenizers_file(path: Path, names: tuple[str, ...] = (*PAIR, "llama-3")) -> Path:
    size = len(names)
    agreement = [[1.0 if i == j else 0.5 + 0.04 * (i + j) for j in range(size)] for i in range(size)]
    oov = [[0.0 if i == j else 0.1 + 0.05 * i for j in range(size)] for i in range(size)]
    held = {"kind": "tokenizers", "names": names, "words": 366, "agreement": agreement, "agreement_with_blank": agreement}
    path.write_text(json.dumps(held | {"oov_like": oov, "text_bytes": 1753, "versions": {}}))
    return path


def write_all(folder: Path) -> Path:
    """A folder with a bit of everything."""
    for task, questions, right in (("gsm8k", 200, (13, 21, 34, 29, 31)), ("arc", 300, (82, 77, 96, 90, 92))):
        single, unite, safe, gac, gac_safe = right
        small = {"check": (single // 2, questions // 2), "rest": (single - single // 2, questions - questions // 2)}
        write_run(folder / task / "single", task, "single", "SmolLM2 alone", single, questions, subjects=small)
        gemma = {"models": [PAIR[1]]}
        write_run(folder / task / "gemma", task, "single", "Gemma alone", single + 9, questions, **gemma)  # type: ignore[arg-type]
        write_run(folder / task / "unite", task, "unite", "SmolLM2 + Gemma, UniTE", unite, questions, exposed=0.03, rate=1.0)
        write_run(folder / task / "safe", task, "safe", "SmolLM2 + Gemma, UniTE+SAFE", safe, questions)
        fused = {"settings": {"ensemble": "gac"}}
        write_run(folder / task / "gac", task, "gac", "SmolLM2 + Gemma, GaC", gac, questions, exposed=0.01, rate=0.3, **fused)  # type: ignore[arg-type]
        write_run(folder / task / "gs", task, "safe", "SmolLM2 + Gemma, GaC+SAFE", gac_safe, questions, **fused)  # type: ignore[arg-type]
    for name, changed in {
        "n3": {"n": 3},
        "lam2": {"lam": 0.2},
        "plain": {"sharpen": "none"},
        "oov": {"check_oov": False},
        "consensus": {"check_consensus": False},
    }.items():
        exposed = 0.02 if name == "oov" else 0.0
        label = "SmolLM2 + Gemma, UniTE+SAFE"
        write_run(folder / "gsm8k" / name, "gsm8k", "safe", label, 30, 200, settings=changed, exposed=exposed)
    write_run(folder / "gsm8k" / "turned", "gsm8k", "safe", "Gemma + SmolLM2, UniTE+SAFE", 27, 200, models=PAIR[::-1])
    speed_file(folder / "speed.json")
    tokenizers_file(folder / "tokenizers.json")
    return folder


# -- what is on a page -----------------------------------------------------------------------------------------------------------


class Read(HTMLParser):
    """Tables as rows of texts, and all text that a reader sees; fails on a tag the page does not use itself."""

    OURS = re.compile(
        "html|head|meta|title|style|body|header|h[123]|p|nav|a|main|section|div|b|span|ul|li|i|figure|figcaption|table|thead|tbody"
        "|tr|th|td|br|details|summary|footer|noscript|script"
    )

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[list[list[str]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._cell: list[str] | None = None
        self._in = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert self.OURS.fullmatch(tag), f"<{tag}> is not the page's own"
        self.attributes += attrs
        self._in = tag
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._cell = []
        elif tag == "br" and self._cell is not None:
            self._cell.append("\n")
        elif tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self.tables[-1][-1].append("".join(self._cell))
            self._cell = None
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in == "script":
            self.scripts[-1] += data
        elif self._in != "style":
            self.texts.append(data)
            if self._cell is not None:
                self._cell.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).replace("\xa0", " ").split())

    @property
    def figures(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.scripts[0])
        return found


def page_of(*paths: Path) -> str:
    return report.page_of(report.results_of(report.files_of(paths)))


def row(read: Read, label: str) -> list[str]:
    """The first row of any table in which a cell is this label."""
    return next(cells for table in read.tables for cells in table if label in cells)


def test_accuracies_stand_in_the_table_with_their_interval_beside_the_papers(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "gsm8k", "safe", "Ours", 34, 200, rate=0.0516)
    write_run(tmp_path / "b", "arc", "safe", "Ours", 90, 300, rate=0.1)
    read = Read(page_of(tmp_path))
    low, high = (100 * x for x in interval(34, 200))
    cells = row(read, "Ours")
    assert f"17.00 (5.16)\n{low:.1f} – {high:.1f}, of 200" in cells
    assert any(cell.startswith("30.00 (10.00)\n") for cell in cells), "both tasks stand in one line"
    assert row(read, "I+Q, UniTE+SAFE")[-5:] == [
        "77.81 (12.59)",
        "77.40 (3.82)",
        "92.04 (5.16)",
        "82.97 (10.35)",
        "90.78 (14.47)",
    ]
    assert "a run of MMLU-redux, MATH500 or BBH; published numbers only" in read.text


def test_intervals_are_drawn_where_they_are(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "gsm8k", "unite", "Ours", 3, 40, exposed=0.02)
    figure = Read(page_of(tmp_path)).figures[0]
    (ours,) = [t for t in figure["data"] if t.get("error_x", {}).get("array")]
    low, high = (100 * x for x in interval(3, 40))
    assert ours["x"] == [7.5]
    assert ours["x"][0] + ours["error_x"]["array"][0] == pytest.approx(high, abs=0.01)
    assert ours["x"][0] - ours["error_x"]["arrayminus"][0] == pytest.approx(low, abs=0.01)
    paper = [t for t in figure["data"] if t["name"].endswith(", paper")]
    assert sorted(x for t in paper for x in t["x"]) == sorted(r.accuracy["gsm8k"] for r in published.MAIN)
    assert all(t["marker"]["symbol"].endswith("-open") and not t.get("error_x") for t in paper)


@pytest.mark.parametrize(("correct", "questions"), [(0, 10), (10, 10), (3, 40), (660, 1319)])
def test_wilson(correct: int, questions: int) -> None:
    assert wilson(correct, questions) == pytest.approx(interval(correct, questions), abs=1e-9)


def test_questions_are_sorted_by_exposure(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", "gsm8k", "unite", "Ours", 2, 4, rows=False, exposed=0.02)
    asked = [0, 1, 20, 30]  # of 200 tokens each
    lines = [{"correct": at < 2, "statistics": statistics(200, asked_oov=n)} for at, n in enumerate(asked)]
    (folder / "results.jsonl").write_text("\n".join(map(json.dumps, lines)))
    figure = next(f for f in Read(page_of(tmp_path)).figures if "exposure of" in f["layout"]["xaxis"]["title"]["text"])
    (ours,) = figure["data"]
    assert ours["text"] == ["none: 1 of 1 right", "up to 1 %: 1 of 1 right", "over 5 %: 0 of 2 right"]
    assert ours["y"] == [100.0, 100.0, 0.0]
    assert ours["y"][2] + ours["error_y"]["array"][2] == pytest.approx(100 * interval(0, 2)[1])


def test_runs_of_one_label_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "gsm8k", "safe", "Ours", 3, 40)
    write_run(tmp_path / "b", "gsm8k", "safe", "Ours", 4, 40, settings={"n": 3, "sharpen": "none"})
    write_run(tmp_path / "c", "gsm8k", "safe", "Ours", 5, 40, settings={"check_oov": False})
    write_run(tmp_path / "d", "gsm8k", "safe", "Ours", 6, 40, settings={"check_oov": False})
    runs = report.results_of(report.files_of([tmp_path])).runs
    assert [run.title for run in runs] == [
        "Ours · default settings",
        "Ours · n 3, no sharpening",
        f"Ours · no OOV-like check, 40 questions, {tmp_path.name}/c",
        f"Ours · no OOV-like check, 40 questions, {tmp_path.name}/d",
    ]


def test_the_sections_say_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    read = Read(page_of(write_all(tmp_path / "all")))
    assert (
        "GSM8K, smollm2-135m-instruct + gemma-3-270m: UniTE+SAFE 17.0 %, UniTE 10.5 % (+6.5 points of 200 questions" in read.text
    )
    assert "weaker drafts: SmolLM2 + Gemma" in "".join(map(str, read.figures)).replace("<br>", " ")
    assert "no OOV-like check" in row(read, f"{' + '.join(PAIR)}, UniTE+SAFE: no OOV-like check")[-4]
    assert ["smollm2-135m-instruct", "100.0", "54.0", "58.0"] in [cells for table in read.tables for cells in table]
    assert "a run of MMLU-redux, no chain of thought or ARC-C, no chain of thought; published" in read.text
    assert "whose models all have 32B in their names" in read.text
    empty = Read(page_of(tokenizers_file(tmp_path / "tokenizers.json")))
    for words in (
        "a measurement of speed",
        "a run of a method that fuses",
        "a SAFE run that counted its drafts",
        "a weak drafter",
    ):
        assert words in empty.text.lower() or words in empty.text
    assert empty.figures == [], "no empty charts"


def test_similar_tokenizers_are_known_by_their_measurement(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "math500", "safe", "Alike", 30, 60, models=["hub/one", "/data/models/two"])
    said = "a run whose models' tokenizers cut 90% of the words alike"
    assert said in Read(page_of(tmp_path)).text
    held = json.loads(tokenizers_file(tmp_path / "tokenizers.json", ("one", "two")).read_text())
    (tmp_path / "tokenizers.json").write_text(json.dumps(held | {"agreement": [[1.0, 0.95], [0.95, 1.0]]}))
    read = Read(page_of(tmp_path))
    assert said not in read.text
    similar = next(table for table in read.tables if any("Qwen2-7B + Llama-3.1-8B, GaC" in cells for cells in table))
    assert any("Alike" in cells for cells in similar)


def test_failed_and_unfinished_runs_are_told(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", "gsm8k", "safe", "Ours", 3, 40)
    held = json.loads((folder / "summary.json").read_text()) | {"failed": 2, "complete": False}
    (folder / "summary.json").write_text(json.dumps(held))
    text = Read(page_of(tmp_path)).text
    assert "40 questions a run. 2 answers ended with an error and count as wrong. 1 run did not finish." in text
    assert "40, 2 failed, not finished" in text


def test_speed_is_a_ratio_over_length(tmp_path: Path) -> None:
    read = Read(page_of(speed_file(tmp_path / "speed.json", (100, 1000))))
    figure = read.figures[0]
    safe = next(t for t in figure["data"] if t["name"] == "UniTE+SAFE")
    assert safe["x"] == [100, 1000]
    assert safe["y"][0] == pytest.approx((1 / 0.9 + 1 / 0.7) / 2), "the mean over prompts"
    assert "Means over 2 prompts" in read.text
    single = Read(page_of(speed_file(tmp_path / "speed.json", (500,))))
    assert "Only 500 tokens were measured" in single.text


def test_speed_measured_several_times_in_one_file(tmp_path: Path) -> None:
    held = json.loads(speed_file(tmp_path / "speed.json").read_text())
    nested = {"kind": "speed", "measured_on": "a card", "sdpa 0.05": held, "sdpa 0.15": held}
    (tmp_path / "speed.json").write_text(json.dumps(nested))
    assert [s.title for s in report.results_of(report.files_of([tmp_path])).speeds] == ["sdpa 0.05", "sdpa 0.15"]


# -- files of others -----------------------------------------------------------------------------------------------------------


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    write_run(
        tmp_path / "a",
        HOSTILE,
        "unite",
        HOSTILE,
        3,
        10,
        models=[HOSTILE, "b"],
        exposed=0.02,
        subjects={HOSTILE: (1, 5), "b": (2, 5)},
    )
    tokenizers_file(tmp_path / "tokenizers.json", (HOSTILE, "b", "c"))
    held = json.loads(speed_file(tmp_path / "speed.json").read_text())
    held["models"], held["rows"][0]["variant"] = [HOSTILE], HOSTILE
    (tmp_path / "speed.json").write_text(json.dumps(held))
    (tmp_path / "<img src=x>.json").write_text(json.dumps({"kind": HOSTILE}))
    page = page_of(tmp_path)
    read = Read(page)  # fails on a tag that is not the page's own
    shown = HOSTILE.replace("\u202e\u200b", "[U+202E][U+200B]")
    assert any(shown in cells for table in read.tables for cells in table)
    assert not {"\u202e", "\u200b"} & set(page[: page.index('id="figures"')]), "nothing is hidden, in headings and cells neither"
    assert not any(name.startswith("on") for name, _ in read.attributes)
    assert page.count("</script>") == 3
    assert "<img src=x>.json was left out" in read.text
    drawn = json.dumps(read.figures)
    assert "<img" not in drawn, "figures hold escaped text only"
    assert "%{x} {{x}}" not in drawn


def test_nothing_is_fetched(tmp_path: Path) -> None:
    page = page_of(write_all(tmp_path / "all"))
    read = Read(page)
    assert "default-src 'none'" in page
    assert not {"src", "srcset", "action", "formaction"} & {name for name, _ in read.attributes}
    assert all(value and value.startswith("#") for name, value in read.attributes if name == "href")
    assert page.count("plotly.js v") == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("{", "truncated"),
        ("", "is empty"),
        ("[1]", "its 'kind' is none of"),
        ({"kind": "other"}, "its 'kind' is none of"),
        ({"accuracy": "high"}, "Expected `float`"),
        ({"accuracy": 1.5}, "<= 1.0"),
        ({"correct": 99}, "99 of 40 questions cannot be right"),
        ({"interval": [0.5, 0.6]}, "outside its interval"),
        ({"models": []}, "length >= 1"),
        ("[" * 100_000, "left out"),
    ],
)
def test_a_broken_file_is_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, expected: str
) -> None:
    good = write_run(tmp_path / "good", "gsm8k", "safe", "Good", 3, 40)
    bad = write_run(tmp_path / "bad", "gsm8k", "safe", "Bad", 3, 40)
    held = json.loads((bad / "summary.json").read_text())
    (bad / "summary.json").write_text(change if isinstance(change, str) else json.dumps(held | change))
    options = parsed([str(good), str(bad), "--out", str(tmp_path / "r.html")])
    result = report.run(options)
    assert result["runs"] == 1
    told = capsys.readouterr().err
    assert "bad/summary.json was left out" in told
    assert expected in told
    assert "Traceback" not in told
    text = Read((tmp_path / "r.html").read_text()).text
    assert "bad/summary.json was left out" in text
    assert "Bad" not in text.replace("bad", ""), "nothing of it is shown"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('{"correct": true}\n{"correct": 3}\n', "line 2"),
        ('{"correct": true}\n' * 3, "its 3 questions, 3 right, are not those of the summary beside it"),
    ],
)
def test_questions_that_do_not_fit_are_left_out(tmp_path: Path, lines: str, expected: str) -> None:
    folder = write_run(tmp_path / "a", "gsm8k", "unite", "Ours", 3, 40)
    (folder / "results.jsonl").write_text(lines)
    results = report.results_of(report.files_of([tmp_path]))
    assert len(results.runs) == 1
    assert results.runs[0].rows == ()
    assert expected in results.problems[0]


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    return parser.parse_args(arguments)


def test_no_usable_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match=r"x\.json was left out"):
        report.run(parsed([str(tmp_path)]))
    (tmp_path / "x.json").unlink()
    with pytest.raises(InputError, match=r"no summary\.json"):
        report.run(parsed([str(tmp_path)]))
    with pytest.raises(InputError, match="no file or folder"):
        report.run(parsed([str(tmp_path / "nowhere")]))


def test_the_page_must_be_writable(tmp_path: Path) -> None:
    speed_file(tmp_path / "speed.json")
    with pytest.raises(InputError, match="cannot be written"):
        report.run(parsed([str(tmp_path), "--out", str(tmp_path / "no" / "r.html")]))


# -- the tab in the app --------------------------------------------------------------------------------------------------------


def zipped(folder: Path, target: Path) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder.parent))
    return target


def test_a_zip_of_a_folder_gives_the_folders_report(tmp_path: Path) -> None:
    from app.report import report_of

    folder = write_all(tmp_path / "all")
    page, said = report_of([str(zipped(folder, tmp_path / "all.zip"))])
    assert said == "Made of 18 runs, 1 speed measurement, 1 tokenizer comparison."
    assert Read(page).figures == Read(page_of(folder)).figures


def test_loose_files_are_paired_by_what_they_count(tmp_path: Path) -> None:
    from app.report import uploaded

    for name, correct in (("a", 3), ("b", 4)):
        write_run(tmp_path / name, "gsm8k", "unite", f"Run {name}", correct, 40, exposed=0.02)
    paths = [str(path) for path in sorted(tmp_path.rglob("*.json*"))]
    results = report.results_of(uploaded(paths))
    assert [len(run.rows) for run in results.runs] == [40, 40]
    assert not results.problems


def test_uploads_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from app import report as tab

    with pytest.raises(InputError, match="at least one"):
        tab.report_of([])
    (tmp_path / "no.zip").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(InputError, match=r"no\.zip is no zip archive"):
        tab.report_of([str(tmp_path / "no.zip")])
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", b" " * (tab.MOST_BYTES + 1))
    assert bomb.stat().st_size < 1 << 20
    with pytest.raises(InputError, match=r"bomb\.zip holds more than"):
        tab.report_of([str(bomb)])
    monkeypatch.setattr(tab, "MOST_FILES", 1)
    files = [speed_file(tmp_path / "a.json"), speed_file(tmp_path / "b.json")]
    with pytest.raises(InputError, match="more than 1 files"):
        tab.report_of([str(path) for path in files])


def test_names_in_an_archive_reach_no_file(tmp_path: Path) -> None:
    from app.report import report_of

    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"kind": "secret"}))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../secret.json", speed_file(tmp_path / "s.json").read_text())
    (tmp_path / "a.zip").write_bytes(buffer.getvalue())
    _, said = report_of([str(tmp_path / "a.zip")])
    assert said == "Made of 1 speed measurement."
    assert json.loads(secret.read_text()) == {"kind": "secret"}


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A page with nothing but the report on it."""
    gr = pytest.importorskip("gradio")
    from app.report import build

    with gr.Blocks(analytics_enabled=False) as demo, gr.Tab("Report"):
        build()
    _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1", max_file_size="24mb")
    yield url
    demo.close()


def test_only_uploaded_files_are_read(tmp_path: Path, address: str) -> None:
    """A request that names another file of the server is refused; the same request for an uploaded one is answered."""
    import httpx

    path = speed_file(tmp_path / "not-uploaded.json")
    with httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        config = client.get("config").json()
        (button,) = [d["id"] for d in config["dependencies"] if d["targets"] and d["targets"][0][1] == "click"]
        sent = client.post("gradio_api/upload", files={"files": ("speed.json", path.read_bytes())}).json()[0]

        def answer(asked: str, session: str) -> dict[str, Any]:
            files = [{"path": asked, "meta": {"_type": "gradio.FileData"}}]
            body = {"data": [files], "fn_index": button, "session_hash": session}
            client.post("gradio_api/queue/join", json=body).raise_for_status()
            with client.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as answers:
                for line in answers.iter_lines():
                    if "process_completed" in line:
                        found: dict[str, Any] = json.loads(line.removeprefix("data:"))
                        return found
            raise AssertionError("no answer")

        refused, taken = answer(str(path), "one"), answer(sent, "two")
    assert refused["success"] is False
    assert "Made of" not in json.dumps(refused)
    assert taken["success"] is True
    assert taken["output"]["data"][2]["text"] == "Made of 1 speed measurement."


# -- in a browser ---------------------------------------------------------------------------------------------------------------


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (360, "light"), (360, "dark")])
def test_it_opens_from_disk_without_a_network(tmp_path: Path, browser: Any, width: int, scheme: str) -> None:
    folder = write_all(tmp_path / "all")
    write_run(folder / "hostile", HOSTILE, "unite", HOSTILE, 3, 10, models=[HOSTILE, "b"], exposed=0.02)
    (tmp_path / "r.html").write_text(page_of(folder))
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    tab = context.new_page()
    problems: list[str] = []
    tab.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("request", lambda r: problems.append(r.url) if not r.url.startswith(("file:", "data:", "blob:")) else None)
    tab.goto((tmp_path / "r.html").as_uri())
    tab.wait_for_function("document.documentElement.dataset.drawn", timeout=60_000)
    assert problems == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    figures = len(Read((tmp_path / "r.html").read_text()).figures)
    assert tab.locator(".plot .main-svg").count() >= figures
    background, ink = tab.evaluate(
        "[getComputedStyle(document.body).backgroundColor, document.querySelector('.plot .xtick text').style.fill]"
    )
    assert (_light(background) > 128) is (scheme == "light")
    assert (_light(ink) > 128) is (scheme == "dark"), "the figures follow the theme"
    assert tab.evaluate("window.ran === undefined && !document.querySelector('img')")
    tab.screenshot(path=str(tmp_path / f"report-{width}-{scheme}.png"), full_page=True)
    context.close()


def _light(colour: str) -> float:
    numbers = [float(n) for n in re.findall(r"[\d.]+", colour)][:3]
    return sum(numbers) / 3


@pytest.mark.browser
def test_a_person_uploads_and_reads(tmp_path: Path, page: Any, address: str) -> None:
    archive = zipped(write_all(tmp_path / "all"), tmp_path / "all.zip")
    page.goto(address)
    page.set_input_files("#report-files input[type=file]", str(archive))
    page.wait_for_selector("#report-files >> text=all.zip")
    page.click("#report-make")
    page.wait_for_selector("#report-status [data-kind=done]", timeout=60_000)
    assert page.get_attribute("#report-frame iframe", "sandbox") == "allow-scripts"
    frame = page.frame_locator("#report-frame iframe")
    frame.locator("html[data-drawn]").wait_for(timeout=60_000)
    assert frame.locator("h1").inner_text() == "SAFE, measured"
    with page.expect_download() as started:
        page.click("#report-download")
    started.value.save_as(tmp_path / "got.html")
    assert Read((tmp_path / "got.html").read_text()).figures == Read(page_of(tmp_path / "all")).figures
    page.screenshot(path=str(tmp_path / "tab.png"))
