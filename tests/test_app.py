"""The command line of the page, and the handlers behind its buttons, without a browser and without models."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import app.layout as layout
from app import gallery
from app.lens import held_packs
from app.session import Control, Job, Shown
from safe_core import trace
from safe_core.types import InputError, SafeError
from tests.browser.made_traces import long_run
from tests.test_session import FORM, eventually, toy_job

ROOT = Path(__file__).resolve().parent.parent


def app(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "app.py", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


# -- the command line ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--port", "x"], "port"),
        (["--port", "0"], "between 1 and 65535"),
        (["--auth", "nobody"], "--auth takes a name and a password"),
        (["--nonsense"], "nrecognized"),
        (["--export", "only.html"], "one or two traces"),
        (["--export", "a.jsonl", "b.jsonl", "c.jsonl", "o.html"], "one or two traces"),
        (["--export", "a.jsonl", "b.jsonl"], "must end in .html"),
        (["--export", "missing.jsonl", "o.html"], "could not be read"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments: list[str], expected: str) -> None:
    done = app(*arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_export_writes_an_offline_page(tmp_path: Path) -> None:
    sources = [tmp_path / "unite.jsonl", tmp_path / "safe.jsonl"]
    for path, method in zip(sources, ("unite", "safe"), strict=True):
        trace.write(path, long_run(20, method))  # type: ignore[arg-type]
    out = tmp_path / "page.html"
    done = app("--export", *map(str, sources), str(out))
    assert done.returncode == 0, done.stderr
    assert "<main" in out.read_text("utf-8")


def test_a_broken_trace_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_bytes(trace.dumps(long_run(5))[:-40])
    done = app("--export", str(path), str(tmp_path / "o.html"))
    assert done.returncode == 2
    assert "Line" in done.stderr
    assert not (tmp_path / "o.html").exists()


# -- handlers -----------------------------------------------------------------------------------------------------------------


def visitor(name: str = "page") -> Any:
    return types.SimpleNamespace(session_hash=name)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> layout.Page:
    """A page over a gallery of one made pair."""
    folder = tmp_path_factory.mktemp("traces")
    for method in ("unite", "safe"):
        trace.write(folder / f"{method}.jsonl", long_run(30, method))
    pair = {
        "name": "made",
        "title": "A made pair",
        "look_for": "Nothing ${x} <b>",
        "left": {"title": "UniTE", "file": "unite.jsonl"},
        "right": {"title": "SAFE", "file": "safe.jsonl"},
        "where": {"run": "left", "window": 3, "token": 3},
    }
    (folder / "gallery.json").write_text(json.dumps([pair]))
    page = layout.Page(traces=folder)
    page.blocks()
    return page


def test_the_first_screen_is_the_first_pair(built: layout.Page) -> None:
    items, status, *_ = built._arrive("", visitor())
    assert [pane["title"] for pane in items[0]["panes"]] == ["UniTE", "SAFE"]
    assert items[0]["trace"] == "made"
    assert all(held_packs([item["ref"]])[0] for item in items[1:])
    assert status["kind"] == "idle"


def test_a_link_to_what_is_not_there_says_so_and_still_shows_something(built: layout.Page) -> None:
    items, status, *_ = built._arrive("<b>gone</b>" * 50, visitor())
    assert status["kind"] == "error"
    assert "<b>gone</b>" in status["text"]
    assert len(status["text"]) < 200
    assert items[0]["trace"] == "made"


def test_a_gallery_trace_that_is_broken_keeps_the_page(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("{}\n")
    one = {"title": "x", "file": "x.jsonl"}
    where = {"run": "left", "window": 0, "token": 0}
    entry = {"name": "x", "title": "x", "look_for": "", "left": one, "right": one, "where": where}
    (tmp_path / "gallery.json").write_text(json.dumps([entry]))
    page = layout.Page(traces=tmp_path)
    _, status, *_ = page._opener(page.pairs[0])(visitor())
    assert status["kind"] == "error"
    assert "Line 1" in status["text"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"not json\n", "is not JSON"),
        (b"", "holds no trace event"),
        (b'{"event":"end","reason":"eos","text":"","stats":{}}\n', "must begin with a 'start'"),
        (b"\xff\xfe\x00", "Line 1"),
        (None, "Choose one or two"),
    ],
)
def test_an_upload_that_is_no_trace_keeps_what_was_there(
    built: layout.Page, tmp_path: Path, content: bytes | None, expected: str
) -> None:
    built._arrive("", visitor("up"))
    before = built.desks.of("up").shown
    paths = []
    if content is not None:
        (tmp_path / "mine.jsonl").write_bytes(content)
        paths = [str(tmp_path / "mine.jsonl")]
    _, status, *_ = built._upload(paths, visitor("up"))
    assert status["kind"] == "error"
    assert expected in status["text"]
    assert str(tmp_path) not in status["text"]
    assert built.desks.of("up").shown is before


def test_an_upload_is_shown_and_given_back_as_it_was(built: layout.Page, tmp_path: Path) -> None:
    data = trace.dumps(long_run(12, "safe"))
    (tmp_path / "mine.jsonl").write_bytes(data)
    items, status, *_ = built._upload([str(tmp_path / "mine.jsonl")], visitor("own"))
    assert [pane["run"] for pane in items[0]["panes"]] == ["left"]
    assert status["text"] == "Opened mine.jsonl"
    left, right, page, *rest = built._refresh("traces", visitor("own"))
    assert Path(left["value"]).read_bytes() == data
    assert right["interactive"] is False
    assert "<main" in Path(page["value"]).read_text("utf-8")
    assert len(rest) == len(built.refreshed) - 3


@pytest.mark.parametrize("tab", ["traces", "charts", "tables"])
def test_every_tab_shows_the_runs_and_an_empty_desk(built: layout.Page, tab: str) -> None:
    assert len(built._refresh(tab, visitor("nobody"))) == len(built.refreshed)
    built._arrive("", visitor())
    shown = built._refresh(tab, visitor())
    assert len(shown) == len(built.refreshed)
    if tab == "tables":
        csv = Path(shown[-1]["value"]).read_text("utf-8")
        assert csv.splitlines()[0].startswith("token,window,text,state")


def handled(stream: Iterator[list[Any]]) -> list[list[Any]]:
    return list(stream)


def test_a_bad_form_is_told_and_nothing_is_started(built: layout.Page) -> None:
    built._arrive("", visitor("form"))
    values = [(FORM | {"prompt": " "})[name] for name in built.fields]
    (update,) = handled(built._runner(None)(visitor("form"), *values))
    assert update[1]["kind"] == "error"
    assert "prompt is empty" in update[1]["text"]
    assert built.desks.of("form").shown[0].title == "UniTE"


def stream_of(built: layout.Page, page: str, job: Job) -> Iterator[list[Any]]:
    """What the page is sent of a toy job."""
    shown = [Shown(key, key, []) for key in layout.PANES]
    return built._stream(built.desks.of(page), shown, layout.PANES, job._prepare, job.control)


def test_a_run_is_streamed_as_an_append_only_list_and_kept(built: layout.Page) -> None:
    before: list[Any] = []
    status: dict[str, Any] = {}
    for update in stream_of(built, "run", toy_job(tokens=30)):
        items, status = update[:2]
        if isinstance(items, list):
            assert items[: len(before)] == before
            before = items
    assert status["kind"] == "done"
    assert [pane["run"] for pane in before[0]["panes"]] == ["left", "right"]
    desk = built.desks.of("run")
    assert [len(s.events) > 3 for s in desk.shown] == [True, True]
    assert desk.going is None
    left, right, *_ = built._refresh("traces", visitor("run"))
    for download, s in zip((left, right), desk.shown, strict=True):
        assert Path(download["value"]).read_bytes() == trace.dumps(s.events)


def test_what_was_there_stays_when_a_run_cannot_begin(built: layout.Page) -> None:
    built._arrive("", visitor("keep"))

    def broken(report: Any, cancelled: Any) -> Any:
        raise InputError("No such model is here.")

    desk = built.desks.of("keep")
    *_, last = built._stream(desk, [Shown("left", "x", [])], ["left"], broken, Control())
    assert not isinstance(last[0], list)
    assert last[1] == {"kind": "error", "text": "No such model is here.", "fraction": None}
    assert desk.shown[0].title == "UniTE"


def test_closing_the_stream_stops_the_run(built: layout.Page) -> None:
    stream = stream_of(built, "gone", toy_job(tokens=4000))
    for items, *_ in stream:
        if isinstance(items, list):
            break
    job = built.desks.of("gone").job
    assert job is not None
    stream.close()  # type: ignore[attr-defined]
    job.join(20)
    assert not job.is_alive()


def test_a_new_view_stops_the_run_under_way(built: layout.Page) -> None:
    import threading

    updates: list[Any] = []
    reader = threading.Thread(target=lambda: updates.extend(stream_of(built, "next", toy_job(tokens=4000))))
    reader.start()
    eventually(lambda: any(isinstance(u[0], list) for u in updates))
    items, *_ = built._opener(built.pairs[0])(visitor("next"))
    reader.join(5)
    assert not reader.is_alive()
    assert items[0]["trace"] == "made"
    assert built.desks.of("next").shown[0].title == "UniTE"


def test_buttons_reach_only_their_own_page(built: layout.Page) -> None:
    mine, other = built.desks.of("mine"), built.desks.of("other")
    mine.job, other.job = toy_job(), toy_job()
    built._pause(visitor("mine"))
    assert (mine.job.control.paused, other.job.control.paused) == (True, False)
    built._pause(visitor("mine"))
    assert not mine.job.control.paused
    built._stop(visitor("other"))
    assert (mine.job.control.stopped, other.job.control.stopped) == (False, True)


def test_a_step_goes_on_with_the_run_under_way(built: layout.Page) -> None:
    desk = built.desks.of("stepping")
    desk.job = toy_job()
    desk.job.control.pause()
    handled(built._runner("window")(visitor("stepping"), *[FORM[name] for name in built.fields]))
    assert not desk.job.control.paused
    desk.job.control.stop()


def test_a_public_page_offers_only_its_own_models() -> None:
    page = layout.Page(["mine"], any_model=False)
    assert page.models[-1] == "mine"
    with pytest.raises(SafeError, match="does not offer the model '/etc'"):
        page.workshop.vocabulary("/etc")


def test_tokenizer_bench_says_what_it_cannot_do(built: layout.Page) -> None:
    for text, names, words, expected in (
        ("x" * 5001, ["a"], "", "up to 5,000"),
        ("x", [], "", "at least one tokenizer"),
        ("x", ["no/such-model-here.gguf"], "", "no/such"),
    ):
        _, _, status = built._compare(text, names, words)
        assert status["kind"] == "error"
        assert expected in status["text"]


def test_the_gallery_that_comes_with_the_page_can_be_opened() -> None:
    page = layout.Page()
    assert page.pairs == gallery.pairs()
    for pair in page.pairs:
        items, status, *_ = page._opener(pair)(visitor(pair.name))
        assert status["kind"] == "idle"
        assert items[0]["trace"] == pair.name
