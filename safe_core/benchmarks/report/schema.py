"""What the benchmarks' files hold, as far as the report uses it; decoding checks every number's range."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Final

import msgspec

from safe_core.types import Method

KINDS: Final = ("single", "UniTE", "UniTE+SAFE", "GaC", "GaC+SAFE")
"""What a run or a published row can be, as the paper names it, in the paper's order; ``single`` is one model alone."""

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]

Amount = Annotated[float, msgspec.Meta(ge=0.0)]

Whole = Annotated[int, msgspec.Meta(ge=0)]

Some = Annotated[int, msgspec.Meta(ge=1)]

Names = Annotated[list[str], msgspec.Meta(min_length=1)]


class Numbers(msgspec.Struct, frozen=True):
    """What is used of a run's statistics (``safe_core.trace.Statistics``), of one question or summed over all."""

    tokens: Amount = 0.0
    ensembles: Amount = 0.0
    ensemble_rate: Amount = 0.0
    drafted: Amount = 0.0
    discarded: Amount = 0.0
    oov: Amount = 0.0
    asked_oov: Amount = 0.0
    engine_share: Amount = 0.0
    tokens_per_second: Amount = 0.0
    ms: dict[str, Amount] = {}

    @property
    def exposure(self) -> float:
        """Share of the response's tokens at which a model was asked though it read an OOV-like prefix."""
        return self.asked_oov / self.tokens if self.tokens else 0.0


class Subject(msgspec.Struct, frozen=True):
    """One subject of a task, as a summary has it."""

    questions: Whole
    correct: Whole
    accuracy: Share


class Summary(msgspec.Struct, frozen=True):
    """``summary.json``: one method with its models on one task. ``models`` has the drafter first."""

    task: str
    method: Method
    label: str
    models: Names
    questions: Some
    correct: Whole
    accuracy: Share
    interval: tuple[Share, Share]
    statistics: Numbers
    settings: dict[str, Any] = {}
    failed: Whole = 0
    complete: bool = True
    subjects: dict[str, Subject] = {}
    harness_share: Share = 0.0
    seconds: Amount = 0.0
    versions: dict[str, str] = {}

    @property
    def called(self) -> str:
        """The models as words, drafter first; of a folder its name alone."""
        return " + ".join(PurePosixPath(model).name if model[:1] in "/.~" else model for model in self.models)

    @property
    def kind(self) -> str:
        """The method, one of ``KINDS``."""
        fused = "GaC" if "gac" in (self.method, self.settings.get("ensemble", "unite")) else "UniTE"
        return "single" if self.method == "single" else fused + "+SAFE" * (self.method == "safe")


class Question(msgspec.Struct, frozen=True):
    """What is used of a line of ``results.jsonl``."""

    correct: bool | None = None
    statistics: Numbers | None = None


class SpeedRow(msgspec.Struct, frozen=True):
    """One method at one length on one prompt."""

    variant: str
    tokens: Some
    rate_over_own: Annotated[float, msgspec.Meta(gt=0.0)]
    prompt: str = ""
    engine_share: Amount = 0.0
    ensemble_rate: Amount = 0.0
    discarded: Amount = 0.0
    fed_over_least: dict[str, Amount] = {}


class Speed(msgspec.Struct, frozen=True):
    """What ``speed`` saves."""

    rows: Annotated[list[SpeedRow], msgspec.Meta(min_length=1)]
    models: list[str] = []
    dtype: str = ""
    title: str = ""


class Agreement(msgspec.Struct, frozen=True):
    """What ``tokenizers`` saves."""

    names: Names
    words: Some
    agreement: list[list[Share]]
    agreement_with_blank: list[list[Share]]
    oov_like: list[list[Share]]
    text_bytes: Whole

    def __post_init__(self) -> None:
        size = len(self.names)
        for matrix in (self.agreement, self.agreement_with_blank, self.oov_like):
            if [len(row) for row in matrix] != [size] * size:
                raise ValueError(f"a matrix has not {size} rows of {size} numbers")

    def between(self, one: str, other: str) -> float | None:
        """How alike two models' tokenizers cut words; ``None`` where either was not compared."""
        at = [next((at for at, name in enumerate(self.names) if f"/{m}".endswith(f"/{name}")), None) for m in (one, other)]
        return None if at[0] is None or at[1] is None else self.agreement[at[0]][at[1]]
