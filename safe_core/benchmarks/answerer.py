"""One ensemble that answers questions: what a process, or a worker of a cluster, holds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from safe_core.types import Method, SafeError, Settings

Row = dict[str, Any]


@dataclass(frozen=True)
class Setup:
    """Everything that decides an answer, but for the question. ``models`` are names, the drafter first."""

    models: tuple[str, ...]
    method: Method
    settings: Settings
    system: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    attention: str = "auto"

    @property
    def label(self) -> str:
        """The ensemble as the paper writes it: ``A + B, UniTE+SAFE``."""
        if self.method == "single":
            return self.models[0]
        name = {"unite": "UniTE", "gac": "GaC"}[self.settings.ensemble if self.method == "safe" else self.method]
        return f"{' + '.join(self.models)}, {name}{'+SAFE' if self.method == 'safe' else ''}"


@dataclass(frozen=True)
class Question:
    """One prompt to answer. The response ends with a ``stop`` string, which is cut off, or at ``max_new_tokens``."""

    id: str
    prompt: str
    stop: tuple[str, ...] = ()
    max_new_tokens: int = 2048


class Answerer:
    """Loads the models of ``setup`` at the first question and keeps them."""

    def __init__(self, setup: Setup, *, traces: bool = False) -> None:
        self._setup = setup
        self._traces = traces
        self._models: list[Any] = []

    def load(self) -> None:
        """Load the models now. Raises ModelError or InputError with a sentence."""
        from safe_core import api

        setup = self._setup
        options: dict[str, Any] = {"device": setup.device, "dtype": setup.dtype, "attention": setup.attention}
        self._models = self._models or [api.load(name, **options) for name in setup.models]

    def answer(self, question: Question) -> Row:
        """``{id, prompt, response, reason, error, statistics, seconds, events}``; a failure is an ``error``, never raised.

        ``events`` is the trace as JSONL bytes where traces are asked for, else ``None``.
        """
        self.load()
        begun = time.perf_counter()
        try:
            told = self._run(question)
        except Exception as problem:  # one question of thousands: recorded, and the rest goes on
            sentence = str(problem) if isinstance(problem, SafeError) else f"{type(problem).__name__}: {problem}"
            told = _failure(sentence)
        return {"id": question.id, "prompt": question.prompt, **told, "seconds": round(time.perf_counter() - begun, 4)}

    def __call__(self, questions: Iterable[Question]) -> Iterator[Row]:
        """Answer one after the other."""
        return map(self.answer, questions)

    def close(self) -> None:
        """Nothing to do: the process goes, and the models with it."""

    def _run(self, question: Question) -> Row:
        from safe_core import api, trace
        from safe_core.events import End

        settings = replace(self._setup.settings, max_new_tokens=question.max_new_tokens, stop=question.stop)
        produced = api.generate(self._setup.method, self._models, question.prompt, settings, system=self._setup.system)
        kept, end = [], None
        for event in produced:
            if self._traces:
                kept.append(event)
            end = event if isinstance(event, End) else end
        assert end is not None
        return {
            "response": _cut(end.text, question.stop),
            "reason": end.reason,
            "error": end.error,
            "statistics": end.stats,
            "events": trace.dumps(kept) if self._traces else None,
        }


def _failure(sentence: str) -> Row:
    return {"response": "", "reason": "error", "error": sentence, "statistics": None, "events": None}


def lost(question: Question) -> Row:
    """The row of a question whose worker died on it again and again."""
    sentence = "The worker died on this question twice, for want of memory perhaps."
    return {"id": question.id, "prompt": question.prompt, **_failure(sentence), "seconds": 0.0}


def _cut(text: str, stops: Iterable[str]) -> str:
    ends = [at for at in (text.find(stop) for stop in stops) if at >= 0]
    return text[: min(ends)] if ends else text
