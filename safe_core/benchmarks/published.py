"""What the paper reports ("When to Ensemble", ICLR 2026), to be set beside what is measured here.

Accuracies are percentages of questions answered rightly, with greedy decoding, at most 2,048 tokens, FP16, zero-shot chain of
thought (BBH: 3 shots), n = 5, sharpening ``heur`` with lambda = 0.1. ``rate`` is E/T, ensemble operations per 100 response
tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

TASKS: Final = {
    "mmlu-redux": "MMLU-redux",
    "math500": "MATH500",
    "gsm8k": "GSM8K",
    "bbh": "BBH",
    "arc": "ARC-C",
    "mmlu-redux-nocot": "MMLU-redux, no chain of thought",
    "arc-nocot": "ARC-C, no chain of thought",
}
"""Titles of the tasks, in the paper's order; the last two are its control."""

MAIN_TASKS: Final = ("mmlu-redux", "math500", "gsm8k", "bbh", "arc")
CONTROL_TASKS: Final = ("mmlu-redux-nocot", "arc-nocot")
ABLATION_TASKS: Final = ("mmlu-redux", "math500", "gsm8k")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a published table: who, how, and per task the accuracy and E/T in percent; of an ablation what it changes."""

    models: str
    method: str
    accuracy: dict[str, float]
    rate: dict[str, float] = field(default_factory=dict)
    setting: str = ""

    @property
    def label(self) -> str:
        """What tells the line from the others of its table."""
        if self.setting:
            return self.setting
        return f"{self.models}, {self.method}" if self.method != "single" else self.models


def _row(models: str, method: str, accuracy: tuple[float, ...], rate: tuple[float, ...] = ()) -> Row:
    rates = dict(zip(MAIN_TASKS, rate, strict=True)) if rate else {}
    return Row(models, method, dict(zip(MAIN_TASKS, accuracy, strict=True)), rates)


MAIN: Final = (
    _row("Internlm3-8B", "single", (76.89, 74.8, 90.14, 82.26, 90.27)),
    _row("Qwen2.5-7B", "single", (74.88, 72.4, 91.81, 79.15, 88.74)),
    _row("EXAONE3.5-7.8B", "single", (73.25, 72.8, 90.45, 78.75, 90.44)),
    _row("I+Q", "GaC", (77.00, 74.2, 91.28, 82.34, 90.61), (8.43, 1.04, 0.82, 5.69, 10.22)),
    _row("I+Q", "GaC+SAFE", (77.11, 76.0, 91.36, 82.34, 91.13), (5.23, 0.71, 0.67, 3.73, 6.22)),
    _row("I+Q", "UniTE", (73.39, 59.6, 75.06, 79.58, 87.97)),
    _row("I+Q", "UniTE+SAFE", (77.81, 77.4, 92.04, 82.97, 90.78), (12.59, 3.82, 5.16, 10.35, 14.47)),
    _row("Q+E", "UniTE", (53.75, 43.4, 77.03, 67.45, 72.61)),
    _row("Q+E", "UniTE+SAFE", (76.54, 76.4, 92.72, 81.69, 90.78), (17.24, 4.69, 5.60, 14.03, 19.24)),
    _row("I+E", "UniTE", (72.51, 73.6, 89.31, 78.04, 88.23)),
    _row("I+E", "UniTE+SAFE", (76.08, 77.0, 90.75, 81.37, 90.27), (15.84, 4.72, 5.55, 13.75, 17.89)),
    _row("I+Q+E", "UniTE+SAFE", (77.60, 79.0, 92.04, 82.77, 91.55), (16.18, 4.12, 5.14, 12.74, 18.60)),
)
"""The main table. I, Q and E are the three single models."""

CONTROL: Final = (
    Row("I+Q", "UniTE", {"mmlu-redux-nocot": 69.36, "arc-nocot": 88.40}),
    Row("I+Q", "UniTE+SAFE", {"mmlu-redux-nocot": 69.36, "arc-nocot": 88.40}),
)
"""Answers of one token: nothing to become unstable, and both methods are right equally often."""

SIMILAR: Final = (
    Row("best of Qwen2-7B, Llama-3.1-8B", "single", {"math500": 49.8}),
    Row("Qwen2-7B + Llama-3.1-8B", "UniTE", {"math500": 54.0}),
    Row("Qwen2-7B + Llama-3.1-8B", "UniTE+SAFE", {"math500": 55.6}),
    Row("Qwen2-7B + Llama-3.1-8B", "GaC", {"math500": 52.4}),
    Row("Qwen2-7B + Llama-3.1-8B", "GaC+SAFE", {"math500": 59.4}),
)

LARGE: Final = (
    Row("32B pair", "GaC", {"mmlu-redux": 82.73, "math500": 80.4}),
    Row("32B pair", "GaC+SAFE", {"mmlu-redux": 83.79, "math500": 81.6}),
)


def _ablation(setting: str, mmlu_redux: float, math500: float | None, gsm8k: float) -> Row:
    given = {"mmlu-redux": mmlu_redux, "math500": math500, "gsm8k": gsm8k}
    accuracy = {task: value for task, value in given.items() if value is not None}
    return Row("I+Q", "UniTE+SAFE", accuracy, setting=setting)


ABLATIONS: Final = (
    _ablation("as the paper has it (lambda 0.1, n 5)", 77.81, 77.4, 92.04),
    _ablation("no sharpening", 77.53, 76.6, 91.66),
    _ablation("lambda 0.2", 77.28, 77.6, 92.04),
    _ablation("lambda 0.3", 77.21, 76.6, 91.89),
    _ablation("geometric sharpening", 78.31, 77.6, 92.27),
    _ablation("n 3", 77.67, None, 91.66),
    _ablation("n 8", 78.31, None, 92.04),
)

AGREEMENT: Final = (53.06, 46.8, 63.81)
"""Figure 4: percent of the Oxford 5000 that the three pairs of tokenizers cut alike."""

OVER_SINGLE_AT_1000: Final = {"UniTE": (80 / 40, 80 / 30), "UniTE+SAFE": (1.0, 40 / 30)}
"""Time over a single model's at 1,000 tokens of MATH500, least and most, read off the latency figure: a single model takes 30 to
40 s, UniTE about 80 s, UniTE+SAFE at most about 10 s more than the single model."""

GAC_UNCACHED: Final = "GaC without care for the cache took about 200 s at 800 tokens"
