"""Feeding the drafter guesses: fewer passes, the same run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safe_core import engine
from safe_core import events as ev
from safe_core.lookup import Lookup
from safe_core.types import Settings
from tests.toys import toy_sessions


@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 3), max_size=40), st.integers(1, 5))
def test_a_guess_is_what_followed_the_last_pair_before(prompt: list[int], response: list[int], most: int) -> None:
    lookup = Lookup(prompt)
    lookup.extend(response)
    ids = prompt + response
    behind = [at for at in range(2, len(ids)) if ids[at - 2 : at] == ids[-2:]]
    assert lookup.guess([], most) == (ids[behind[-1] : behind[-1] + most] if len(ids) > 2 and behind else [])


def test_drafted_ids_count_for_the_pair_but_are_not_taken_in() -> None:
    lookup = Lookup([1, 2, 3, 4, 1])
    assert lookup.guess([2], 2) == [3, 4]
    assert lookup.guess([1, 2], 9) == [3, 4, 1]
    assert lookup.guess([7, 7], 2) == []


def told(events: list[ev.Event]) -> list[Any]:
    """Events without times and counts of passes."""
    kept = []
    for event in events:
        plain = msgspec.to_builtins(event)
        for field in ("ms", "forward_ms", "fed", "stats", "settings"):
            plain.pop(field, None)
        kept.append(plain)
    return kept


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("after_confirm", ["redraft", "continue"])
@pytest.mark.parametrize("n", [1, 5, 8, "auto"])
def test_guessing_changes_the_passes_and_nothing_else(n: Any, after_confirm: Any, temperature: float) -> None:
    saved = 0
    for seed in range(6):
        settings = Settings(n=n, after_confirm=after_confirm, temperature=temperature, max_new_tokens=60)
        with_guesses, without = toy_sessions(seed, 2), toy_sessions(seed, 2)
        expected = list(engine.run("safe", without, replace(settings, lookup=False), "p"))
        assert told(list(engine.run("safe", with_guesses, settings, "p"))) == told(expected)
        assert [s.passes for s in with_guesses[1:]] == [s.passes for s in without[1:]]
        assert with_guesses[0].passes <= without[0].passes
        saved += without[0].passes - with_guesses[0].passes
    assert saved > 0 or n == 1


def test_a_model_that_cannot_roll_back_is_fed_no_guess() -> None:
    for seed in range(4):
        stiff, plain = toy_sessions(seed, 2), toy_sessions(seed, 2)
        stiff[0].rolls_back = False
        list(engine.run("safe", stiff, Settings(max_new_tokens=60), "p"))
        list(engine.run("safe", plain, Settings(max_new_tokens=60, lookup=False), "p"))
        assert (stiff[0].passes, stiff[0].fed) == (plain[0].passes, plain[0].fed)


def test_guesses_stay_within_the_context() -> None:
    """A run that fits without guesses fits with them."""
    for seed in range(4):
        sessions = toy_sessions(seed, 2)
        most = 40 + len(sessions[0].prompt_ids)
        sessions[0].context = most
        longest = 0
        rows = sessions[0].rows

        def watched(ids: Any, since: int, rows: Any = rows, prompt: int = len(sessions[0].prompt_ids)) -> Any:
            nonlocal longest
            longest = max(longest, len(ids) + prompt)
            return rows(ids, since)

        sessions[0].rows = watched  # type: ignore[method-assign]
        list(engine.run("safe", sessions, Settings(max_new_tokens=40), "p"))
        assert longest <= most


def test_a_row_nobody_asked_for_may_be_broken() -> None:
    """Behind a wrong guess a model may give no usable row; that is no error of the run."""
    for seed in range(4):
        sessions, plain = toy_sessions(seed, 2), toy_sessions(seed, 2)
        expected = list(engine.run("safe", plain, Settings(max_new_tokens=60, lookup=False), "p"))
        raw = sessions[0].raw_rows

        def broken(ids: Any, since: int, raw: Any = raw) -> Any:
            rows = raw(ids, since)
            rows[1:] = np.nan  # whatever is fed along
            return rows

        sessions[0].raw_rows = broken  # type: ignore[method-assign]
        assert told(list(engine.run("safe", sessions, Settings(max_new_tokens=60), "p"))) == told(expected)
