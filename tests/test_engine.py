"""The engine against the independent oracle, event by event, on toy models; and the properties SAFE promises."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safe_core import engine
from safe_core import events as ev
from safe_core.trace import dumps, loads, statistics
from safe_core.types import InputError, Method, Settings
from tests import oracle
from tests.toys import ToySession, toy_sessions, toy_vocabulary

quick = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
seeds = st.integers(0, 10_000)


def run(method: Method, sessions: list[ToySession], chosen: Settings, **more: Any) -> list[ev.Event]:
    return list(engine.run(method, sessions, chosen, "p", **more))


def agree(method: Method, sessions: list[ToySession], chosen: Settings) -> list[ev.Event]:
    """Run engine and oracle on the same sessions and compare every event."""
    first, *others = sessions
    expected = {
        "safe": lambda: oracle.safe(first, others, chosen, "p"),
        "unite": lambda: oracle.unite_alone(first, others, chosen, "p"),
        "gac": lambda: oracle.gac_alone(first, others, chosen, "p"),
        "single": lambda: oracle.single(first, chosen, "p"),
    }[method]()
    produced = run(method, sessions, chosen)
    oracle.compare(produced, expected)
    return produced


def text_of(events: list[ev.Event]) -> bytes:
    return b"".join(bytes.fromhex(t.hex) for e in events if isinstance(e, ev.Commit) for t in e.tokens)


def committed(events: list[ev.Event]) -> list[ev.CommitToken]:
    return [t for e in events if isinstance(e, ev.Commit) for t in e.tokens]


@quick
@given(
    seed=seeds,
    count=st.integers(2, 4),
    n=st.integers(1, 8),
    ensemble=st.sampled_from(["unite", "gac"]),
    sharpen=st.sampled_from(["heur", "geom", "none"]),
    after=st.sampled_from(["redraft", "continue"]),
    pad=st.sampled_from([0, 7]),
    peak=st.sampled_from([2.0, 4.0, 8.0]),
)
def test_safe_is_the_oracle(
    seed: int, count: int, n: int, ensemble: Any, sharpen: Any, after: Any, pad: int, peak: float
) -> None:
    sessions = toy_sessions(seed, count, pad=pad, peak=peak)
    chosen = Settings(n=n, ensemble=ensemble, sharpen=sharpen, after_confirm=after, max_new_tokens=24)
    agree("safe", sessions, chosen)
    agree("safe", sessions[::-1], chosen)


@quick
@given(seed=seeds, count=st.integers(2, 3), method=st.sampled_from(["unite", "gac"]), sharpen=st.sampled_from(["heur", "none"]))
def test_every_token_baselines_are_the_oracle(seed: int, count: int, method: Any, sharpen: Any) -> None:
    agree(method, toy_sessions(seed, count), Settings(sharpen=sharpen, max_new_tokens=30))


@quick
@given(seed=seeds)
def test_a_single_model_is_the_oracle(seed: int) -> None:
    agree("single", toy_sessions(seed, 1), Settings(max_new_tokens=30))


@quick
@given(
    seed=seeds, n=st.integers(1, 6), weights=st.tuples(*[st.floats(0.05, 5.0)] * 3), k=st.integers(1, 12), lam=st.floats(0, 0.4)
)
def test_weights_and_knobs_are_the_oracle(seed: int, n: int, weights: tuple[float, ...], k: int, lam: float) -> None:
    agree("safe", toy_sessions(seed, 3), Settings(n=n, weights=weights, top_k=k, lam=lam, max_new_tokens=30))


@quick
@given(
    seed=seeds,
    n=st.integers(1, 6),
    commit=st.sampled_from(["whole", "first_piece"]),
    check_oov=st.booleans(),
    check_consensus=st.booleans(),
)
def test_ablations_are_the_oracle(seed: int, n: int, commit: Any, check_oov: bool, check_consensus: bool) -> None:
    chosen = Settings(n=n, commit=commit, check_oov=check_oov, check_consensus=check_consensus, max_new_tokens=25)
    agree("safe", toy_sessions(seed, 3), chosen)


@quick
@given(seed=seeds, stop=st.sampled_from([("the",), ("ship", " in"), ("é",), ("zzz",)]), n=st.integers(1, 6))
def test_stop_strings_are_the_oracle(seed: int, stop: tuple[str, ...], n: int) -> None:
    events = agree("safe", toy_sessions(seed, 2), Settings(n=n, stop=stop, max_new_tokens=40))
    end = events[-1]
    assert isinstance(end, ev.End)
    assert (end.reason == "stop") == any(s.encode() in text_of(events) for s in stop)


@quick
@given(seed=seeds, n=st.integers(1, 6), gap=st.booleans())
def test_normalising_and_incomplete_vocabularies_are_the_oracle(seed: int, n: int, gap: bool) -> None:
    """A verifier that lower-cases, or lacks bytes, has unaligned positions; they are reported and never fused."""
    other = toy_vocabulary(seed + 1, lower=True) if not gap else toy_vocabulary(seed + 1, without=b"\xc3\xa9St")
    vocabularies = [toy_vocabulary(seed), other]
    events = agree("safe", toy_sessions(seed, 2, vocabularies=vocabularies), Settings(n=n, max_new_tokens=50))
    for verify in (e for e in events if isinstance(e, ev.Verify)):
        for check in verify.checks:
            assert check.verdict != "unaligned" or check.mean_p is None


@quick
@given(seed=seeds, n=st.integers(1, 8))
def test_a_clone_as_verifier_changes_nothing(seed: int, n: int) -> None:
    """With the drafter itself as verifier every token is unanimous, so SAFE is the drafter."""
    bytewise = toy_vocabulary(seed, pieces=0)  # what it drafts is always how it would write it
    alone, twin = (toy_sessions(seed, 1, vocabularies=[bytewise])[0] for _ in range(2))
    twin.name = "twin"
    single = run("single", [alone], Settings(max_new_tokens=24))
    safe = run("safe", [alone, twin], Settings(n=n, max_new_tokens=24))
    assert text_of(safe) == text_of(single)
    assert [t.id for t in committed(safe)] == [t.id for t in committed(single)]
    assert statistics(safe)["ensembles"] == 0


@quick
@given(seed=seeds)
def test_one_shared_tokenizer_makes_gac_under_safe_equal_to_averaging_everywhere(seed: int) -> None:
    """With identical tokenizers no token is OOV-like, and consensus only skips what averaging would keep anyway.

    Unanimity is exactly that: every model's first choice is the mean's. A majority is too, because with one
    tokenizer all models speak of the same token.
    """
    shared = toy_vocabulary(seed, pieces=0)  # single bytes: whatever is drafted is how the tokenizer would write it
    sessions = toy_sessions(seed, 2, vocabularies=[shared, shared])
    chosen = Settings(n=4, ensemble="gac", sharpen="none", max_new_tokens=24)
    safe, always = run("safe", sessions, chosen), run("gac", sessions, chosen)
    assert statistics(safe)["oov"] == 0
    assert text_of(safe) == text_of(always)


@quick
@given(seed=seeds, data=st.data())
def test_the_text_does_not_depend_on_the_window_but_at_edges(seed: int, data: st.DataObject) -> None:
    """Windows of other lengths decide alike until the first position that either decided at an edge."""
    sessions = toy_sessions(seed, 2)
    a, b = (run("safe", sessions, Settings(n=data.draw(st.integers(1, 8)), max_new_tokens=24)) for _ in range(2))
    assert text_of(a)[: _sure(a, b)] == text_of(b)[: _sure(a, b)]


def _sure(*runs: list[ev.Event]) -> int:
    """Bytes before the first check that any of the runs made at an edge, or that the run's end influenced."""
    at = [c.start for events in runs for e in events if isinstance(e, ev.Verify) for c in e.checks if c.edge]
    last = [committed(events)[-2].start if len(committed(events)) > 1 else 0 for events in runs]
    return min([*at, *last])


@quick
@given(seed=seeds, order=st.permutations([1, 2]), ensemble=st.sampled_from(["unite", "gac"]))
def test_the_order_of_verifiers_does_not_matter(seed: int, order: list[int], ensemble: Any) -> None:
    sessions = toy_sessions(seed, 3)
    chosen = Settings(ensemble=ensemble, max_new_tokens=24)
    a = run("safe", sessions, chosen)
    b = run("safe", [sessions[0], *(sessions[i] for i in order)], chosen)
    assert [t.id for t in committed(a)] == [t.id for t in committed(b)]


@quick
@given(seed=seeds)
def test_adaptive_windows_keep_within_their_bounds(seed: int) -> None:
    events = run("safe", toy_sessions(seed, 2), Settings(n="auto", max_new_tokens=40))
    lengths = [len(e.tokens) for e in events if isinstance(e, ev.Draft)]
    assert max(lengths) <= engine.LARGEST_WINDOW + 3
    assert isinstance(events[-1], ev.End)
    assert events[-1].error is None


@quick
@given(seed=seeds, temperature=st.sampled_from([0.7, 1.0, 1.5]))
def test_sampling_is_repeatable_and_seeded(seed: int, temperature: float) -> None:
    def ids(sampling_seed: int) -> list[int]:
        chosen = Settings(temperature=temperature, seed=sampling_seed, max_new_tokens=30)
        return [t.id for t in committed(run("safe", toy_sessions(seed, 2), chosen))]

    assert ids(1) == ids(1)


def test_sampling_draws_from_the_fused_distribution() -> None:
    """Over many seeds the first token's frequencies are those of P_ens (chi-square, far from its critical value)."""
    sessions = toy_sessions(3, 2, peak=2.0)
    chosen = Settings(n=1, temperature=1.0, sharpen="none", max_new_tokens=1)
    counts: dict[str, int] = {}
    expected: dict[str, float] = {}
    draws = 600
    for seed in range(draws):
        events = run("safe", sessions, Settings(**{**_fields(chosen), "seed": seed}))
        fused = next(e for e in events if isinstance(e, ev.Ensemble))
        expected.update({c.hex: c.mean for c in fused.candidates})
        first = committed(events)[0]
        counts[fused.chosen_hex] = counts.get(fused.chosen_hex, 0) + 1
        assert first.hex == fused.chosen_hex or fused.chosen_hex.startswith(first.hex)
    # UniTE's union depends on the drafted token only through the rows, which are the same for every seed.
    assert sum(expected.values()) == pytest.approx(1.0, abs=1e-3)
    chi = sum((counts.get(h, 0) - draws * p) ** 2 / (draws * p) for h, p in expected.items() if p > 0)
    assert chi < 3.0 * len(expected)


def _fields(chosen: Settings) -> dict[str, Any]:
    return {name: getattr(chosen, name) for name in chosen.__dataclass_fields__}


@quick
@given(seed=seeds, method=st.sampled_from(["safe", "unite", "gac", "single"]))
def test_a_trace_survives_writing_and_every_prefix_is_one(seed: int, method: Any) -> None:
    events = run(method, toy_sessions(seed, 1 if method == "single" else 2), Settings(max_new_tokens=12))
    data = dumps(events)
    assert list(loads(data).events) == events
    lines = data.splitlines(keepends=True)
    for length in range(1, len(lines) + 1):
        prefix = loads(b"".join(lines[:length]))
        assert list(prefix.events) == events[:length]
        assert prefix.statistics["tokens"] == len(committed(events[:length]))


@quick
@given(seed=seeds, method=st.sampled_from(["safe", "unite", "gac"]))
def test_statistics_of_a_trace_are_those_the_run_reported(seed: int, method: Any) -> None:
    events = run(method, toy_sessions(seed, 3), Settings(max_new_tokens=25))
    end = events[-1]
    assert isinstance(end, ev.End)
    assert statistics(loads(dumps(events)).events) == end.stats
    s = end.stats
    assert s["tokens"] == len(committed(events))
    assert s["drafted"] - s["discarded"] <= s["tokens"]
    assert 0 <= s["discarded"] <= s["drafted"]
    assert s["ensembles"] == sum(isinstance(e, ev.Ensemble) for e in events)


@quick
@given(seed=seeds, data=st.data())
def test_a_run_continues_from_any_cycle_of_another(seed: int, data: st.DataObject) -> None:
    """Taking a run's first cycles over and going on gives the run itself: nothing but the text is carried along."""
    sessions, chosen = toy_sessions(seed, 2), Settings(max_new_tokens=30)
    whole = run("safe", sessions, chosen)
    commits = [i for i, e in enumerate(whole) if isinstance(e, ev.Commit)]
    cut = data.draw(st.sampled_from([0, *(i + 1 for i in commits[:-1])]))
    again = run("safe", sessions, chosen, opening=whole[1:cut])
    assert [t.id for t in committed(again)] == [t.id for t in committed(whole)]
    assert statistics(again)["windows"] == statistics(whole)["windows"]


def test_a_cancelled_run_ends_within_a_window_and_says_so() -> None:
    asked = itertools.count()
    events = run("safe", toy_sessions(1, 2), Settings(n=3, max_new_tokens=240), cancelled=lambda: next(asked) >= 4)
    end = events[-1]
    assert isinstance(end, ev.End)
    assert end.reason == "cancelled"
    assert sum(isinstance(e, ev.Commit) for e in events) == 4
    assert end.text.encode()[:20] == text_of(events)[:20]


@pytest.mark.parametrize(
    ("method", "count", "says"),
    [("safe", 1, "verifier"), ("unite", 1, "verifier"), ("single", 2, "one model"), ("safe", 0, "verifier")],
)
def test_wrong_numbers_of_models_are_refused(method: Any, count: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        run(method, toy_sessions(0, count), Settings())


def test_two_models_of_one_name_are_refused() -> None:
    sessions = toy_sessions(0, 2)
    sessions[1].name = sessions[0].name
    with pytest.raises(InputError, match="both named toy-0"):
        run("safe", sessions, Settings())


def test_weights_must_fit_the_models() -> None:
    with pytest.raises(InputError, match="3 weights for 2 models"):
        run("safe", toy_sessions(0, 2), Settings(weights=(1, 1, 1)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("who", [0, 1])
def test_a_broken_row_ends_the_trace_with_an_error_that_names_model_and_place(value: float, who: int) -> None:
    sessions = toy_sessions(5, 2)
    sane = sessions[who]._row

    def row(ids: list[int]) -> Any:
        out = sane(ids)
        if len(ids) >= 6:
            out[:] = value
        return out

    sessions[who]._row = row  # type: ignore[method-assign]
    events = run("safe", sessions, Settings(max_new_tokens=24))
    end = events[-1]
    assert isinstance(end, ev.End)
    assert end.reason == "error"
    assert end.error is not None
    assert f"toy-{who}" in end.error
    assert "response token" in end.error
    assert loads(dumps(events)).events[-1] == end


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"n": 0}, "n, the tokens of a window"),
        ({"n": 65}, "n, the tokens of a window"),
        ({"lam": 1.5}, "lambda"),
        ({"top_k": 0}, "top-k"),
        ({"max_new_tokens": 0}, "max-new-tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"stop": ("",)}, "stop string"),
        ({"weights": (0.0, 0.0)}, "Weights"),
        ({"weights": (-1.0, 2.0)}, "Weights"),
    ],
)
def test_impossible_settings_are_refused_with_a_sentence(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Settings(**wrong)
