"""What an ensemble method is: one file with one class that fuses the rows at one position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from safe_core.model import Rows
from safe_core.types import Candidate, InputError, Settings, Symbol
from safe_core.vocabulary import Vocabulary

SMOOTH = 0.5
"""A fused distribution whose maximum is below this is smooth, and only then sharpened."""


@dataclass(frozen=True, slots=True)
class Fusion:
    """Candidates in the order of their final score, the winner first; ``smooth`` says whether sharpening was due."""

    candidates: tuple[Candidate, ...]
    smooth: bool


class Ensemble(Protocol):
    """Fuses one row per model, drafter first."""

    def stands(self, p_top: float) -> bool:
        """Whether the method itself leaves the drafter's token alone; ``p_top`` is the drafter's highest probability."""
        ...

    def fuse(self, rows: Sequence[Rows], k: Sequence[int]) -> Fusion:
        """Fuse row ``k[v]`` of ``rows[v]`` for every model ``v``."""
        ...


def normalised_weights(settings: Settings, models: int) -> tuple[float, ...]:
    """The weights of a run, made to sum to 1. Raises InputError where there is not one per model."""
    if settings.weights is None:
        return (1.0 / models,) * models
    if len(settings.weights) != models:
        raise InputError(f"There are {len(settings.weights)} weights for {models} models; give one per model.")
    total = math.fsum(settings.weights)
    return tuple(w / total for w in settings.weights)


def top_symbols(rows: Rows, k: int, vocabulary: Vocabulary, count: int) -> list[Symbol]:
    """The ``count`` most probable strings of a row, best first, ties by lowest id; control tokens left out, EOS one of them."""
    row, size = rows.logits[k], rows.logits.shape[-1]
    want = min(count + 8, size)  # room for control tokens and second spellings of one string
    while True:
        values, ids = torch.topk(row, want)
        found: dict[Symbol, float] = {}
        for value, i in sorted(zip(values.tolist(), ids.tolist(), strict=True), key=lambda pair: (-pair[0], pair[1])):
            if value > -math.inf and i not in vocabulary.control_ids:
                token = vocabulary.token(i, 0)
                found.setdefault((token.bytes, token.eos), value)
        best = list(found.items())[:count]
        # Where the values tie with the last one fetched, a lower id may be missing.
        if want == size or (len(best) == count and best[-1][1] > float(values[-1])):
            return [symbol for symbol, _ in best]
        want = min(want * 8, size)
