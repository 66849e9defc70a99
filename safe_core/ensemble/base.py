"""What an ensemble method is: one file with one class that fuses the rows at one position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

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
    return first_symbols(rows, k, vocabulary, count)[0][:count]


def first_symbols(rows: Rows, k: int, vocabulary: Vocabulary, count: int) -> tuple[list[Symbol], float]:
    """The same strings and a few that come next, and a logit below which all ids lie that were not looked at."""
    size = rows.logits.shape[-1]
    want = min(count + 8, size)  # room for control tokens and second spellings of one string
    while True:
        ids, bound = rows.leaders(k, want)
        found: dict[Symbol, None] = {}
        pairs = zip(rows.logits[k][ids].tolist(), ids.tolist(), strict=True)
        for value, i in sorted(pairs, key=lambda pair: (-pair[0], pair[1])):
            if value > -math.inf and i not in vocabulary.control_ids:
                found.setdefault(vocabulary.symbol(i))
        if want == size or len(found) >= count:
            return list(found), -math.inf if want == size else bound
        want = min(want * 8, size)
