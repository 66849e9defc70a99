"""Answering on Ray: workers give the rows that one process gives, and a worker's death loses nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from safe_core.benchmarks.answerer import Answerer, Question, Row, Setup
from safe_core.benchmarks.cluster import Workers
from safe_core.types import InputError, Settings

pytestmark = pytest.mark.real

PAIR = ("smollm2-135m-instruct", "gemma-3-270m")
SETUP = Setup(PAIR, "safe", Settings(), dtype="float32")
QUESTIONS = [Question(f"q{k}", f"Name {k} cities in Bulgaria.", (), 8) for k in range(2, 6)]


@pytest.fixture
def workers() -> Iterator[Workers]:
    crew = Workers(SETUP, 2, traces=True)
    try:
        crew.load()
        yield crew
    finally:
        crew.close()


def untimed(rows: list[Row]) -> dict[str, tuple[object, ...]]:
    kept = ("prompt", "response", "reason", "error")
    return {r["id"]: (*(r[k] for k in kept), r["statistics"]["ensembles"], r["statistics"]["fed"]) for r in rows}


def answering() -> list[psutil.Process]:
    """This machine's worker processes that hold models."""
    found = psutil.Process().children(recursive=True)
    return [p for p in found if p.name().startswith("ray::Answerer") or "ray::Answerer" in " ".join(p.cmdline())]


def test_two_workers_give_the_rows_of_one_process_and_survive_a_death(workers: Workers) -> None:
    alone = untimed(list(Answerer(SETUP)(QUESTIONS)))
    assert untimed(list(workers(QUESTIONS))) == alone
    assert len(answering()) == 2

    rows: list[Row] = []
    answers = workers(QUESTIONS)
    rows.append(next(answers))
    os.kill(answering()[0].pid, signal.SIGKILL)
    rows += answers
    assert len(rows) == len(QUESTIONS)
    assert untimed(rows) == alone


def test_a_model_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    crew = Workers(Setup((str(tmp_path / "nothing"),), "single", Settings()), 1)
    try:
        with pytest.raises(InputError, match="nothing"):
            crew.load()
    finally:
        crew.close()
