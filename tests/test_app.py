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

from app import gallery, layout
from app.answers import Answers
from app.desks import PANES, Shown
from app.jobs import Control, Job
from app.keep import Keep
from app.lens import held_packs
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
def laid(tmp_path_factory: pytest.TempPathFactory) -> layout.Page:
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
    page = layout.Page(traces=folder, keep=Keep(tmp_path_factory.mktemp("kept")))
    page.blocks()
    return page


@pytest.fixture
def built(laid: layout.Page) -> Answers:
    """Its handlers."""
    return laid.answers


def test_the_first_screen_is_the_first_pair(built: Answers) -> None:
    items, status, *_ = built.arrive("", "", visitor())
    assert [pane["title"] for pane in items[0]["panes"]] == ["UniTE", "SAFE"]
    assert items[0]["trace"] == "made"
    assert all(held_packs([item["ref"]])[0] for item in items[1:])
    assert status["kind"] == "idle"


def test_a_link_to_what_is_not_there_says_so_and_still_shows_something(built: Answers) -> None:
    items, status, *_ = built.arrive("#trace=" + "<b>gone</b>" * 50, "", visitor())
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
    _, status, *_ = page.answers.opener(page.pairs[0])("", visitor())
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
    built: Answers, tmp_path: Path, content: bytes | None, expected: str
) -> None:
    built.arrive("", "", visitor("up"))
    before = built.desks.of("up").shown
    paths = []
    if content is not None:
        (tmp_path / "mine.jsonl").write_bytes(content)
        paths = [str(tmp_path / "mine.jsonl")]
    _, status, *_ = built.upload(paths, "", visitor("up"))
    assert status["kind"] == "error"
    assert expected in status["text"]
    assert str(tmp_path) not in status["text"]
    assert built.desks.of("up").shown is before


def test_an_upload_is_shown_and_given_back_as_it_was(laid: layout.Page, built: Answers, tmp_path: Path) -> None:
    data = trace.dumps(long_run(12, "safe"))
    (tmp_path / "mine.jsonl").write_bytes(data)
    items, status, *_ = built.upload([str(tmp_path / "mine.jsonl")], "", visitor("own"))
    assert [pane["run"] for pane in items[0]["panes"]] == ["left"]
    assert status["text"] == "Opened mine.jsonl"
    left, right, page, *rest = built.refresh("traces", "", visitor("own"))
    assert Path(left["value"]).read_bytes() == data
    assert right["interactive"] is False
    assert "<main" in Path(page["value"]).read_text("utf-8")
    assert len(rest) == len(laid.refreshed) - 3


@pytest.mark.parametrize("tab", ["traces", "charts", "tables"])
def test_every_tab_shows_the_runs_and_an_empty_desk(laid: layout.Page, built: Answers, tab: str) -> None:
    assert len(built.refresh(tab, "", visitor("nobody"))) == len(laid.refreshed)
    built.arrive("", "", visitor())
    shown = built.refresh(tab, "", visitor())
    assert len(shown) == len(laid.refreshed)
    if tab == "tables":
        csv = Path(shown[-1]["value"]).read_text("utf-8")
        assert csv.splitlines()[0].startswith("token,window,text,state")


def handled(stream: Iterator[list[Any]]) -> list[list[Any]]:
    return list(stream)


def test_a_bad_form_is_told_and_nothing_is_started(built: Answers) -> None:
    built.arrive("", "", visitor("form"))
    values = [(FORM | {"prompt": " "})[name] for name in built.fields]
    (update,) = handled(built.runner(None)(visitor("form"), "", *values))
    assert update[1]["kind"] == "error"
    assert "prompt is empty" in update[1]["text"]
    assert built.desks.of("form").shown[0].title == "UniTE"


def stream_of(built: Answers, page: str, job: Job) -> Iterator[list[Any]]:
    """What the page is sent of a toy job."""
    shown = [Shown(key, key, []) for key in PANES]
    return built.stream(built.desks.of(page), shown, PANES, job._prepare, job.control)


def test_a_run_is_streamed_as_an_append_only_list_and_kept(built: Answers) -> None:
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
    left, right, *_ = built.refresh("traces", "", visitor("run"))
    for download, s in zip((left, right), desk.shown, strict=True):
        assert Path(download["value"]).read_bytes() == trace.dumps(s.events)


def test_what_was_there_stays_when_a_run_cannot_begin(built: Answers) -> None:
    built.arrive("", "", visitor("keep"))

    def broken(report: Any, cancelled: Any) -> Any:
        raise InputError("No such model is here.")

    desk = built.desks.of("keep")
    *_, last = built.stream(desk, [Shown("left", "x", [])], ["left"], broken, Control())
    assert not isinstance(last[0], list)
    assert last[1] == {"kind": "error", "text": "No such model is here.", "fraction": None}
    assert desk.shown[0].title == "UniTE"


def test_closing_the_stream_stops_the_run(built: Answers) -> None:
    stream = stream_of(built, "gone", toy_job(tokens=4000))
    for items, *_ in stream:
        if isinstance(items, list):
            break
    job = built.desks.of("gone").job
    assert job is not None
    stream.close()  # type: ignore[attr-defined]
    job.join(20)
    assert not job.is_alive()


def test_a_new_view_stops_the_run_under_way(built: Answers) -> None:
    import threading

    updates: list[Any] = []
    reader = threading.Thread(target=lambda: updates.extend(stream_of(built, "next", toy_job(tokens=4000))))
    reader.start()
    eventually(lambda: any(isinstance(u[0], list) for u in updates))
    items, *_ = built.opener(built.pairs[0])("", visitor("next"))
    reader.join(5)
    assert not reader.is_alive()
    assert items[0]["trace"] == "made"
    assert built.desks.of("next").shown[0].title == "UniTE"


def test_buttons_reach_only_their_own_page(built: Answers) -> None:
    mine, other = built.desks.of("mine"), built.desks.of("other")
    mine.job, other.job = toy_job(), toy_job()
    built.pause(visitor("mine"))
    assert (mine.job.control.paused, other.job.control.paused) == (True, False)
    built.pause(visitor("mine"))
    assert not mine.job.control.paused
    built.stop(visitor("other"))
    assert (mine.job.control.stopped, other.job.control.stopped) == (False, True)


def test_a_step_goes_on_with_the_run_under_way(built: Answers) -> None:
    desk = built.desks.of("stepping")
    desk.job = toy_job()
    desk.job.control.pause()
    handled(built.runner("window")(visitor("stepping"), "", *[FORM[name] for name in built.fields]))
    assert not desk.job.control.paused
    desk.job.control.stop()


def test_a_public_page_offers_only_its_own_models() -> None:
    page = layout.Page(["mine"], any_model=False)
    assert page.models[-1] == "mine"
    with pytest.raises(SafeError, match="does not offer the model '/etc'"):
        page.answers.workshop.vocabulary("/etc")


def test_tokenizer_bench_says_what_it_cannot_do(built: Answers) -> None:
    for text, names, words, expected in (
        ("x" * 5001, ["a"], "", "up to 5,000"),
        ("x", [], "", "at least one tokenizer"),
        ("x", ["no/such-model-here.gguf"], "", "no/such"),
    ):
        _, _, status = built.compare(text, names, words)
        assert status["kind"] == "error"
        assert expected in status["text"]


def test_the_gallery_that_comes_with_the_page_can_be_opened() -> None:
    page = layout.Page()
    assert page.pairs == gallery.pairs()
    for pair in page.pairs:
        items, status, *_ = page.answers.opener(pair)("", visitor(pair.name))
        assert status["kind"] == "idle"
        assert items[0]["trace"] == pair.name


# -- links --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("#trace=made&run=right&token=3", ""),
        ("#trace=made", ""),
        ("#trace=made&run=left&token=30", "token '30', but that run has 30 tokens"),
        ("#trace=made&run=left&token=-1", "token '-1'"),
        ("#trace=made&run=left&token=%3Cb%3E", "token '<b>'"),
        ("#trace=made&window=99999999999999999999", "window '99999999999999999999'"),
        ("#trace=made&run=middle&token=1", "run 'middle', but there are only: left, right"),
        ("#trace=%00&token=1", "trace named '\0'"),
        ("#" + "trace=x&" * 2000, "trace named 'x'"),
    ],
)
def test_what_a_link_asks_for_and_is_not_there_is_a_sentence(built: Answers, asked: str, said: str) -> None:
    items, status, *_ = built.arrive(asked, "", visitor("link"))
    assert items[0]["trace"] == "made"
    assert (status["kind"] == "error") == (said != "")
    assert said in status["text"]


def wish(**data: Any) -> Any:
    return types.SimpleNamespace(_data=data)


def test_a_changed_address_opens_its_pair_and_tells_what_is_missing(built: Answers) -> None:
    built.upload([], "", visitor("address"))
    items, status, *_ = built.address("", visitor("address"), wish(hash="#trace=made&token=2"))
    assert items[0]["trace"] == "made"
    items, status, *_ = built.address("", visitor("address"), wish(hash="#trace=made&token=3"))
    assert not isinstance(items, list)
    for there, said in (("#trace=made&token=99", "token '99'"), ("#trace=none", "named 'none'"), ("#token=99", "token '99'")):
        items, status, *_ = built.address("", visitor("address"), wish(hash=there))
        assert not isinstance(items, list)
        assert said in status["text"]
    assert built.desks.of("address").name == "made"


# -- pages that are loaded again ----------------------------------------------------------------------------------------------

PAGE = "0123456789abcdef" * 2


def run_to_the_end(built: Answers, page: str, job: Job, name: str = PAGE) -> None:
    """A toy job on a page, with a form."""
    desk = built.desks.of(page)
    desk.page, desk.form = name, dict(FORM, prompt="of this page")
    handled(stream_of(built, page, job))


def test_a_run_that_was_over_comes_back_with_its_form(built: Answers) -> None:
    run_to_the_end(built, "old", toy_job(tokens=20))
    before = [trace.dumps(s.events) for s in built.desks.of("old").shown]
    built.leave(visitor("old"))
    items, status, _, _, page, *form = built.arrive("", PAGE, visitor("new"))
    assert [trace.dumps(s.events) for s in built.desks.of("new").shown] == before
    assert status["kind"] == "done"
    assert "before it was loaded again" in status["text"]
    assert page == PAGE
    assert dict(zip(built.fields, form, strict=True))["prompt"] == "of this page"
    assert len(items) == 3


def test_a_run_in_the_middle_is_stopped_and_what_it_made_comes_back(built: Answers) -> None:
    desk = built.desks.of("cut")
    desk.page = "a" * 32
    job = toy_job(tokens=4000)
    stream = stream_of(built, "cut", job)
    for items, *_ in stream:
        if isinstance(items, list) and len(items) > 8:
            break
    seen = [list(s.events) for s in desk.shown]
    items, status, *_ = built.arrive("#run=left&window=1&token=1", "a" * 32, visitor("cut again"))
    mine = built.desks.of("cut again").shown
    assert [s.events[: len(e)] for s, e in zip(mine, seen, strict=True)] == seen
    assert all(trace.loads(trace.dumps(s.events)).end is not None for s in mine)
    assert "loaded again while a run was going on" in status["text"]
    running = desk.job
    assert running is not None
    running.join(20)
    assert not running.is_alive()
    stream.close()  # type: ignore[attr-defined]
    assert built.arrive("", "a" * 32, visitor("cut a third time"))[1]["kind"] == "done"


def test_a_server_that_was_started_anew_knows_the_page(built: Answers, laid: layout.Page) -> None:
    run_to_the_end(built, "first life", toy_job(tokens=20), "b" * 32)
    events = [trace.dumps(s.events) for s in built.desks.of("first life").shown]
    second = layout.Page(traces=built.traces, keep=built.keep)
    second.blocks()
    left, right, *_ = second.answers.refresh("traces", "b" * 32, visitor("same tab"))
    assert [Path(side["value"]).read_bytes() for side in (left, right)] == events


def test_another_page_gets_nothing_of_it(built: Answers) -> None:
    run_to_the_end(built, "mine", toy_job(tokens=10), "c" * 32)
    for name in ("", "d" * 32, "../" + "c" * 32, "C" * 32):
        items, *_ = built.arrive("", name, visitor(f"not {name}"))
        assert items[0]["trace"] == "made"
    assert built.desks.of("mine").page == "c" * 32


def test_a_link_wins_over_what_was_there(built: Answers) -> None:
    run_to_the_end(built, "linked", toy_job(tokens=10), "e" * 32)
    items, *_ = built.arrive("#trace=made&token=1", "e" * 32, visitor("linked again"))
    assert items[0]["trace"] == "made"


# -- the tour -----------------------------------------------------------------------------------------------------------------


def test_the_tour_gives_back_what_was_there(tmp_path: Path) -> None:
    page = layout.Page(keep=Keep(tmp_path))
    answers = page.answers
    run_to_the_end(answers, "toured", toy_job(tokens=20))
    before = [(s.title, list(s.events)) for s in answers.desks.of("toured").shown]
    told, _ = answers.begin_tour(PAGE, visitor("toured"))
    assert told["offered"]
    for stop in told["stops"]:
        card, items, *_ = answers.guide(PAGE, visitor("toured"), wish(trace=stop["trace"]))
        assert card["opened"] == stop["trace"] == items[0]["trace"]
    kept = answers.keep.find(PAGE)
    assert kept is not None
    assert [list(s.events) for s in kept.shown] == [events for _, events in before]  # a reload now would not lose them
    answers.leave_tour(PAGE, visitor("toured"))
    assert [(s.title, list(s.events)) for s in answers.desks.of("toured").shown] == before
    skipped = answers.leave_tour(PAGE, visitor("toured"))
    assert not isinstance(skipped[1], list)


def test_a_gallery_without_its_traces_offers_no_tour(laid: layout.Page) -> None:
    assert laid.tour.value["offered"] is False
