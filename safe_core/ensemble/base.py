"""What an ensemble method is: one file with one class that fuses the rows at one position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from safe_core.model import Rows
from safe_core.types import Candidate, InputError, Settings, Symbol
from safe_core.vocabulary import Vocabulary

SMOOTH = 0.5
"""A fused distribution whose maximum is below this is smooth, and only then sharpened."""
BLOCK = 256
"""Values whose maximum is taken at once in the search for the largest."""


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
        ids, bound = leaders(rows.logits[k], want)
        found: dict[Symbol, None] = {}
        pairs = zip(rows.logits[k][ids].tolist(), ids.tolist(), strict=True)
        for value, i in sorted(pairs, key=lambda pair: (-pair[0], pair[1])):
            if value > -math.inf and i not in vocabulary.control_ids:
                token = vocabulary.token(i, 0)
                found.setdefault((token.bytes, token.eos))
        if want == size or len(found) >= count:
            return list(found), -math.inf if want == size else bound
        want = min(want * 8, size)


def leaders(values: Tensor, count: int) -> tuple[Tensor, float]:
    """Indices of at least the ``count`` largest of ``values [N]``, with all that tie, and a bound: all others are below it.

    The bound is the ``count``-th largest of the maxima of blocks, and only blocks that reach it are looked into: one pass
    over memory, many times faster than a selection.
    """
    size = values.shape[0]
    whole = size - size % BLOCK
    if whole // BLOCK < 4 * count:
        bound = torch.topk(values, min(count, size)).values[-1]
        return (values >= bound).nonzero().flatten(), float(bound)
    blocks = values[:whole].view(-1, BLOCK)
    highest = blocks.amax(dim=1)
    bound = torch.topk(highest, count).values[-1]
    holding = (highest >= bound).nonzero().flatten()
    block, place = (blocks[holding] >= bound).nonzero().T
    rest = (values[whole:] >= bound).nonzero().flatten() + whole
    return torch.cat([holding[block] * BLOCK + place, rest]), float(bound)
