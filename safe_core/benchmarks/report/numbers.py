"""Numbers on their way to figures and tables: accuracies with their intervals, exposure by question, means by length."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from safe_core.benchmarks import published
from safe_core.benchmarks.report.results import Run
from safe_core.benchmarks.report.schema import Speed, SpeedRow


@dataclass(frozen=True, slots=True)
class Entry:
    """One accuracy to draw, in percent. What the paper reports has no interval and no number of questions."""

    label: str
    kind: str
    accuracy: float
    interval: tuple[float, float] | None = None
    rate: float | None = None
    questions: int | None = None

    @property
    def here(self) -> bool:
        """Whether it was measured here."""
        return self.questions is not None


def entry(run: Run, label: str | None = None) -> Entry:
    """A run as it is drawn."""
    s = run.summary
    low, high = s.interval
    rate = None if s.method == "single" else 100 * s.statistics.ensemble_rate
    return Entry(run.title if label is None else label, s.kind, 100 * s.accuracy, (100 * low, 100 * high), rate, s.questions)


def reported(row: published.Row, task: str) -> Entry:
    """A published number as it is drawn."""
    return Entry(f"paper: {row.label}", row.method, row.accuracy[task], rate=row.rate.get(task))


def wilson(correct: int, questions: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.959964
    p, n = correct / questions, questions
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


BINS: Final = (("none", 0.0), ("up to 1 %", 0.01), ("1 to 5 %", 0.05), ("over 5 %", math.inf))
"""Exposure of a question: the share of its tokens at which a model was asked on an OOV-like prefix, and the bin's upper end."""


def binned(run: Run) -> list[tuple[str, int, int]]:
    """Per bin of exposure: its name, its questions, and how many of them were answered rightly; empty bins are left out."""
    counts = {name: [0, 0] for name, _ in BINS}
    for row in run.rows:
        if row.statistics is not None and row.statistics.tokens:
            name = next(name for name, upper in BINS if row.statistics.exposure <= upper)
            counts[name][0] += 1
            counts[name][1] += bool(row.correct)
    return [(name, questions, right) for name, (questions, right) in counts.items() if questions]


def by_length(speed: Speed, variant: str, value: Callable[[SpeedRow], float]) -> dict[int, float]:
    """The mean of ``value`` over the prompts at every response length, shortest first."""
    held: defaultdict[int, list[float]] = defaultdict(list)
    for row in speed.rows:
        if row.variant == variant:
            held[row.tokens].append(value(row))
    return {tokens: sum(values) / len(values) for tokens, values in sorted(held.items())}
