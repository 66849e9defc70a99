"""Jobs, stepping, stopping, queueing and forks, on toy models."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from app.desks import Desks, Shown
from app.forks import Fork, opening, settings_of
from app.form import order_of
from app.jobs import BREATH, Control, Job, Lane, Round, Until, goals, next_lane
from app.orders import Order
from safe_core import engine
from safe_core import events as ev
from safe_core.events import Event
from safe_core.trace import Order as EventOrder
from safe_core.trace import Trace, dumps, loads
from safe_core.types import InputError, Method, Settings
from tests.toys import toy_sessions

KEYS = ("left", "right")


def toy_run(method: Method, settings: Settings, cancelled: Callable[[], bool] = lambda: False, **options: Any) -> Iterator[Event]:
    """A run of two toy models that never end by themselves."""
    speakers: Any = toy_sessions(3, 1 if method == "single" else 2, end_every=0)
    return engine.run(method, speakers, settings, "toy", cancelled=cancelled, **options)


def toy_job(until: Until | None = None, *, tokens: int = 40, turn: threading.Lock | None = None) -> Job:
    settings = Settings(max_new_tokens=tokens)

    def prepare(report: Any, cancelled: Callable[[], bool]) -> Mapping[str, Iterator[Event]]:
        report(0.5, "Preparing toys")
        return {"left": toy_run("unite", settings, cancelled), "right": toy_run("safe", settings, cancelled)}

    return Job(KEYS, prepare, Control(until), turn or threading.Lock())


def eventually(true: Callable[[], bool], timeout: float = 20.0) -> None:
    """Wait for something another thread does."""
    deadline = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def cycles(lane: Lane) -> int:
    return sum(isinstance(e, ev.Commit) for e in lane.events)


# -- running ------------------------------------------------------------------------------------------------------------------


def test_both_runs_are_what_the_engine_gives_alone() -> None:
    job = toy_job(tokens=30)
    job.start()
    job.join(60)
    assert job.status.kind == "done"
    for lane, method in zip(job.lanes, ("unite", "safe"), strict=True):
        alone = Trace(tuple(toy_run(method, Settings(max_new_tokens=30))))  # type: ignore[arg-type]
        assert Trace(tuple(lane.events)).data == alone.data
        assert len(lane.events) == len(alone.events)
        assert isinstance(lane.events[-1], ev.End)


def test_taking_gives_every_event_once_and_in_order() -> None:
    job = toy_job(tokens=25)
    job.start()
    taken: dict[str, list[Event]] = {key: [] for key in KEYS}
    while job.is_alive():
        job.wait(0.01)
        for key, events in job.take():
            taken[key] += events
    for key, events in job.take():
        taken[key] += events
    assert taken == {lane.key: lane.events for lane in job.lanes}
    assert job.take() == []


def test_runs_advance_together_in_bytes() -> None:
    settings = Settings(max_new_tokens=60)
    lanes = [Lane("left", source=toy_run("unite", settings)), Lane("right", source=toy_run("safe", settings))]
    for begun in lanes:
        begun.begin()
    widest = 0
    for _ in range(60):
        lane = next_lane(lanes)
        if lane is None or any(each.done for each in lanes):
            break
        other = lanes[1 - lanes.index(lane)]
        assert lane.length <= other.length
        before = lane.length
        lane.cycle()
        widest = max(widest, lane.length - before)
        assert abs(lane.length - other.length) <= max(widest, abs(before - other.length))
    assert widest > 0


def test_what_one_model_refuses_shows_nothing_of_the_other() -> None:
    def prepare(report: Any, cancelled: Any) -> Mapping[str, Iterator[Event]]:
        refused: Any = engine.run("safe", toy_sessions(1, 1), Settings(), "x")
        return {"left": toy_run("unite", Settings()), "right": refused}

    job = Job(KEYS, prepare, Control(), threading.Lock())
    job.start()
    job.join(20)
    assert job.status.kind == "error"
    assert "at least one verifier" in job.status.text
    assert cycles(job.lanes[0]) == 0


def test_a_failure_while_preparing_is_a_sentence_and_frees_the_turn(caplog: pytest.LogCaptureFixture) -> None:
    turn = threading.Lock()

    def broken(report: Any, cancelled: Any) -> Mapping[str, Iterator[Event]]:
        raise ZeroDivisionError

    job = Job(KEYS, broken, Control(), turn)
    job.start()
    job.join(20)
    assert job.status.kind == "error"
    assert job.status.text.endswith(".")
    assert "ZeroDivisionError" in job.status.text
    assert not turn.locked()
    assert "ZeroDivisionError" in caplog.text


# -- pausing, stepping, stopping ----------------------------------------------------------------------------------------------


def test_a_step_is_a_window_of_every_run_and_the_short_ones_catch_up() -> None:
    job = toy_job("window", tokens=200)
    job.start()
    before = [0, 0]
    for step in range(3):
        eventually(lambda: job.status.kind == "paused")
        assert job.status.text.startswith("Paused after a window")
        lengths = [lane.length for lane in job.lanes]
        assert all(now > then for now, then in zip(lengths, before, strict=True)), f"step {step}: a run did not advance"
        assert cycles(job.lanes[1]) == step + 1 or lengths[0] >= before[1]
        before = lengths
        count = [cycles(lane) for lane in job.lanes]
        time.sleep(0.05)
        assert [cycles(lane) for lane in job.lanes] == count, "it went on while paused"
        job.control.resume("window")
        eventually(lambda count=count: [cycles(lane) for lane in job.lanes] != count)  # type: ignore[misc]
    job.control.stop()
    job.join(20)


@pytest.mark.parametrize("until", ["fusion", "oov"])
def test_running_to_a_goal_stops_at_the_first_cycle_that_reaches_it(until: Until) -> None:
    job = toy_job(until, tokens=300)
    job.start()
    eventually(lambda: job.status.kind in ("paused", "done"))
    assert job.status.kind == "paused", "the toys never reached it"
    reached = []
    for lane in job.lanes:
        for cycle in _cycles_of(lane.events):
            reached.append(until in goals(cycle, lane.method, windowed=True))
    assert sum(reached) == 1
    job.control.stop()
    job.join(20)


def _cycles_of(events: Sequence[Event]) -> Iterator[list[Event]]:
    for _, group in itertools.groupby((e for e in events if not isinstance(e, ev.Start | ev.End)), key=lambda e: e.window):
        yield list(group)


def test_every_token_fusions_are_no_goal_beside_a_windowed_run() -> None:
    fusing = [e for e in toy_run("unite", Settings(max_new_tokens=30)) if isinstance(e, ev.Ensemble)]
    assert fusing
    assert not any("fusion" in goals([e], "unite", windowed=True) for e in fusing)
    assert [e.replaced for e in fusing] == ["fusion" in goals([e], "unite", windowed=False) for e in fusing]


def test_a_round_ends_when_all_have_moved_and_caught_up() -> None:
    short, long = Lane("left"), Lane("right")
    steps = Round()
    long.length = 20
    assert not steps.complete([short, long], long)
    for length in (8, 16):
        short.length = length
        assert not steps.complete([short, long], short)
    short.length = 24
    assert steps.complete([short, long], short)
    long.done = True
    short.length = 30
    assert steps.complete([short, long], short), "a run that is done is not waited for"


def test_pause_holds_and_resume_goes_on_to_the_end() -> None:
    job = toy_job(tokens=120)
    job.control.pause()
    job.start()
    eventually(lambda: job.status.kind == "paused")
    assert all(cycles(lane) == 0 for lane in job.lanes)
    job.control.resume()
    job.join(60)
    assert job.status.kind == "done"
    assert all(isinstance(lane.events[-1], ev.End) and lane.events[-1].reason == "length" for lane in job.lanes)


def test_stop_ends_within_one_window_of_each_run() -> None:
    job = toy_job(tokens=4000)
    job.start()
    eventually(lambda: cycles(job.lanes[1]) >= 2)
    job.control.stop()
    at = [cycles(lane) for lane in job.lanes]
    job.join(20)
    assert not job.is_alive()
    for lane, before in zip(job.lanes, at, strict=True):
        assert cycles(lane) <= before + 1
        last = lane.events[-1]
        assert isinstance(last, ev.End)
        assert last.reason == "cancelled"
        loads(dumps(lane.events))  # what was stopped is a whole trace
    assert job.status.text.startswith("Stopped")


def test_stop_ends_a_paused_job() -> None:
    job = toy_job("window", tokens=4000)
    job.start()
    eventually(lambda: job.status.kind == "paused")
    job.control.stop()
    job.join(5)
    assert job.status.kind == "done"
    assert all(isinstance(lane.events[-1], ev.End) for lane in job.lanes)


def test_stop_ends_a_download() -> None:
    begun = threading.Event()

    def prepare(report: Any, cancelled: Any) -> Mapping[str, Iterator[Event]]:
        for fraction in itertools.count():
            report(min(1.0, fraction / 1e4), "Downloading")
            begun.set()
            time.sleep(0.001)
        raise AssertionError

    job = Job(KEYS, prepare, Control(), threading.Lock())
    job.start()
    assert begun.wait(10)
    assert job.status.kind == "busy"
    job.control.stop()
    job.join(10)
    assert (job.status.kind, job.status.text) == ("done", "Stopped before the first token.")


# -- several pages ------------------------------------------------------------------------------------------------------------


def test_a_second_page_waits_for_the_turn_and_says_so() -> None:
    turn = threading.Lock()
    turn.acquire()
    job = toy_job(tokens=10, turn=turn)
    job.start()
    eventually(lambda: job.status.text.startswith("Waiting for another page"))
    assert job.take() == []
    turn.release()
    job.join(20)
    assert job.status.kind == "done"
    assert not turn.locked()


def test_a_waiting_page_can_be_stopped() -> None:
    turn = threading.Lock()
    turn.acquire()
    job = toy_job(turn=turn)
    job.start()
    job.control.stop()
    job.join(10 * BREATH + 5)
    assert job.status.text.startswith("Stopped")
    assert turn.locked(), "it gave back a turn it never had"


def test_a_paused_job_lets_others_compute() -> None:
    turn = threading.Lock()
    paused = toy_job("window", tokens=4000, turn=turn)
    paused.start()
    eventually(lambda: paused.status.kind == "paused")
    other = toy_job(tokens=10, turn=turn)
    other.start()
    other.join(30)
    assert other.status.kind == "done"
    paused.control.stop()
    paused.join(10)
    assert not turn.locked()


def test_closing_a_page_stops_its_job() -> None:
    desks, turn = Desks(), threading.Lock()
    desk = desks.of("page")
    desk.job = toy_job(tokens=4000, turn=turn)
    desk.job.start()
    eventually(lambda: cycles(desk.job.lanes[1]) > 0)  # type: ignore[union-attr]
    desks.close("page")
    desk.job.join(20)
    assert not turn.locked()
    assert desks.of("page") is not desk


def test_the_longest_unused_page_is_let_go() -> None:
    desks = Desks(most=2)
    first, second = desks.of("a"), desks.of("b")
    assert desks.of("a") is first
    desks.of("c")
    assert desks.of("a") is first
    assert desks.of("b") is not second


def test_a_run_that_is_gone_is_a_sentence() -> None:
    with pytest.raises(InputError, match="no longer on the server"):
        Desks().of("page").run("left")


# -- forks --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["safe", "unite"])
def parent(request: pytest.FixtureRequest) -> list[Event]:
    return list(toy_run(request.param, Settings(max_new_tokens=40, after_confirm="redraft")))


def forks(events: Sequence[Event]) -> Iterator[tuple[ev.Ensemble, Fork]]:
    for e in events:
        if isinstance(e, ev.Ensemble):
            for candidate in e.candidates[:4]:
                yield e, Fork(e.window, e.index, bytes.fromhex(candidate.hex), candidate.eos)


def test_every_candidate_gives_a_run_that_begins_as_its_parent_and_takes_the_choice(parent: list[Event]) -> None:
    start = parent[0]
    assert isinstance(start, ev.Start)
    vocabulary = toy_sessions(3, 2, end_every=0)[0].vocabulary
    tried = 0
    for fused, fork in itertools.islice(forks(parent), 0, None, 5):
        begun = opening(parent, fork, vocabulary)
        settings = Settings(**{**_settings(start), "max_new_tokens": 60})
        forked = list(toy_run(start.method, settings, opening=begun))
        order = EventOrder()
        for event in forked:
            order.accept(event)
        at = next(t.start for e in parent if isinstance(e, ev.Draft) and e.window == fork.window for t in e.tokens[fork.index :])
        data = Trace(tuple(forked)).data
        assert data[:at] == Trace(tuple(parent)).data[:at]
        assert data[at:].startswith(fork.data)
        chosen = next(e for e in forked if isinstance(e, ev.Ensemble) and (e.window, e.index) == (fork.window, fork.index))
        assert chosen.forced
        assert chosen.replaced == ((fork.data.hex(), fork.eos) != (fused.draft_hex, fused.draft_eos))
        end = forked[-1]
        assert isinstance(end, ev.End)
        assert (end.reason == "eos") == fork.eos
        tried += 1
    assert tried >= 3


def test_forking_to_what_fusion_chose_gives_the_parents_text(parent: list[Event]) -> None:
    start = parent[0]
    assert isinstance(start, ev.Start)
    vocabulary = toy_sessions(3, 2, end_every=0)[0].vocabulary
    fused = [e for e in parent if isinstance(e, ev.Ensemble)][2]
    fork = Fork(fused.window, fused.index, bytes.fromhex(fused.chosen_hex), fused.chosen_eos)
    forked = list(toy_run(start.method, settings_of(start), opening=opening(parent, fork, vocabulary)))
    assert Trace(tuple(forked)).data == Trace(tuple(parent)).data


def test_a_place_that_is_not_in_the_run_is_a_sentence(parent: list[Event]) -> None:
    vocabulary: Any = toy_sessions(3, 2)[0].vocabulary
    for fork in (Fork(9999, 0, b"a", False), Fork(0, 99, b"a", False), Fork(0, -1, b"a", False)):
        with pytest.raises(InputError, match="not in this run"):
            opening(parent, fork, vocabulary)


@pytest.mark.parametrize("wish", [{}, {"window": 1}, {"window": "x", "index": 0}, {"window": 1, "index": 0, "hex": "zz"}])
def test_a_wish_that_is_none_is_a_sentence(wish: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="did not say where"):
        Fork.of(wish)


def test_settings_survive_a_trace() -> None:
    settings = Settings(n=3, stop=("x", "\n"), weights=(0.3, 0.7), sharpen="geom", max_new_tokens=5)
    start = loads(dumps(toy_run("safe", settings))).start
    assert settings_of(start) == settings


def _settings(start: ev.Start) -> dict[str, Any]:
    settings = settings_of(start)
    return {name: getattr(settings, name) for name in settings.__slots__}


# -- orders -------------------------------------------------------------------------------------------------------------------

FORM: dict[str, Any] = {
    "prompt": "Hello?",
    "left": "UniTE",
    "right": "SAFE",
    "drafter": "a",
    "verifiers": ["b"],
    "n": "5",
    "max_new_tokens": 64,
    "sharpen": "heur",
    "lam": 0.1,
    "top_k": 10,
    "weights": "",
    "temperature": 0,
    "seed": 0,
    "stop": "",
    "system": "",
    "after_confirm": "redraft",
    "commit": "whole",
    "checks": ["OOV-like", "consensus"],
    "dtype": "auto",
    "device": "auto",
    "attention": "auto",
}


def test_the_form_as_it_opens_is_an_order() -> None:
    order = order_of(FORM)
    assert order.sides == ("UniTE", "SAFE")
    assert order.settings_of("UniTE").sharpen == "none"
    assert order.settings_of("SAFE") == Settings(max_new_tokens=64)
    assert order.settings_of("GaC + SAFE").ensemble == "gac"
    assert order.names("SAFE") == ("a", "b")
    assert order.names("drafter alone") == ("a",)
    assert order.names("verifier alone") == ("b",)


def test_fields_are_read_as_they_are_meant() -> None:
    said = {"n": "auto", "weights": "0.2; 0.8", "stop": "END\n\\n\\n", "checks": [], "right": "nothing", "left": "SAFE"}
    order = order_of(FORM | said)
    assert order.sides == ("SAFE",)
    settings = order.settings
    assert (settings.n, settings.weights, settings.stop) == ("auto", (0.2, 0.8), ("END", "\n\n"))
    assert not settings.check_oov
    assert not settings.check_consensus


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"prompt": "  \n"}, "prompt is empty"),
        ({"prompt": "x" * 20_001}, "20,001 characters"),
        ({"system": "x" * 20_001}, "system prompt has"),
        ({"max_new_tokens": 5000}, "up to 4,096 tokens"),
        ({"max_new_tokens": None}, "'max tokens' holds no number"),
        ({"max_new_tokens": 0}, "at least 1"),
        ({"n": "many"}, "'n' holds no number"),
        ({"n": "2.5"}, "whole number"),
        ({"n": "65"}, "1 to 64"),
        ({"lam": 2}, "between 0 and 1"),
        ({"temperature": float("nan")}, "cannot be used"),
        ({"weights": "a,b"}, "'weights' holds no number"),
        ({"weights": "-1,2"}, "not be negative"),
        ({"stop": "\n".join("abcdefghijklmnopqrs")}, "16 stop strings"),
        ({"verifiers": []}, "No verifier"),
        ({"verifiers": list("bcdef")}, "up to 4 verifiers"),
        ({"drafter": None}, "No drafter"),
        ({"left": None, "right": "nothing"}, "No method"),
        ({"left": "<script>"}, "No method"),
    ],
)
def test_what_cannot_be_run_is_a_sentence(said: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected) as problem:
        order_of(FORM | said)
    assert str(problem.value).endswith(".")


def test_a_drafter_alone_needs_no_verifier() -> None:
    order = order_of(FORM | {"left": "drafter alone", "right": "nothing", "verifiers": []})
    assert isinstance(order, Order)
    assert Shown("left", "x", []).order is None
