"""GaC: fuse over the union of all vocabularies."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from safe_core.ensemble.base import SMOOTH, Fusion, normalised_weights, top_symbols
from safe_core.ensemble.sharpen import BLANK
from safe_core.model import Rows
from safe_core.types import EOS, Candidate, Settings, Symbol
from safe_core.vocabulary import Vocabulary

GATE: Final = 0.5
"""GaC leaves a token alone whose own model is surer of it than this."""


class Union:
    """All byte-strings of all vocabularies, once each, and where every model's ids fall among them.

    Built once per model set. Strings of the largest vocabulary come first and in the order of its ids, so that most of the map
    is the identity; the last column takes what is no candidate (control tokens).
    """

    def __init__(self, vocabularies: Sequence[Vocabulary]) -> None:
        column: dict[Symbol, int] = {}
        maps: list[list[int] | None] = [None] * len(vocabularies)
        for m in sorted(range(len(vocabularies)), key=lambda m: -vocabularies[m].size):
            maps[m] = [-1] * vocabularies[m].size
            for i, symbol in self._symbols(vocabularies[m]):
                maps[m][i] = column.setdefault(symbol, len(column))  # type: ignore[index]
        self.symbols: list[Symbol] = list(column)
        self.column = column
        self.size = len(column)
        self.maps = [torch.tensor(found).where(torch.tensor(found) >= 0, self.size) for found in maps]

    @staticmethod
    def _symbols(vocabulary: Vocabulary) -> list[tuple[int, Symbol]]:
        strings = [(i, (data, False)) for data, ids in vocabulary.symbols.items() for i in ids]
        eos = vocabulary.eos_id
        return sorted(strings + ([] if eos is None else [(eos, EOS)]))

    @cached_property
    def in_order(self) -> tuple[list[bytes], Tensor]:
        """All strings in bytes order and their columns: a prefix is a range of it. End of sequence is left out."""
        order = sorted((data, i) for i, (data, eos) in enumerate(self.symbols) if not eos)
        return [data for data, _ in order], torch.tensor([i for _, i in order])


class GaC:
    """Full union: every model's whole softmax, mapped and averaged. Its gate stays in front, under SAFE too."""

    def __init__(self, vocabularies: Sequence[Vocabulary], settings: Settings) -> None:
        self._vocabularies = tuple(vocabularies)
        self._settings = settings
        self._weights = normalised_weights(settings, len(vocabularies))

    @cached_property
    def union(self) -> Union:
        return Union(self._vocabularies)

    def stands(self, p_top: float) -> bool:
        """Whether the drafter is sure enough that GaC does not ensemble at all."""
        return p_top > GATE

    def fuse(self, rows: Sequence[Rows], k: Sequence[int]) -> Fusion:
        """Average over the whole union; the candidates reported are the best of the mean and of every model."""
        per_model = [self._mapped(m, rows[m].probabilities(k[m])) for m in range(len(rows))]
        mean = torch.zeros(self.union.size)
        for weight, p in sorted(zip(self._weights, per_model, strict=True), key=lambda pair: pair[0]):
            mean += weight * p
        tops = [top_symbols(r, at, v, self._settings.top_k) for r, at, v in zip(rows, k, self._vocabularies, strict=True)]
        smooth = float(mean.max()) < SMOOTH
        scores = self._sharpened(mean, per_model, tops[0]) if smooth else mean
        best = torch.topk(scores, min(self._settings.top_k, self.union.size)).indices.tolist()
        level = (scores == scores[best[0]]).nonzero().flatten().tolist() if len(best) else []
        columns = {*best, *level[:64], *(self.union.column[s] for top in tops for s in top)}
        rank = {symbol: i for i, symbol in enumerate(tops[0])}
        candidates = [self._candidate(c, per_model, mean, scores) for c in columns]
        candidates.sort(key=lambda c: (-c.score, rank.get(c.symbol, len(rank)), c.symbol))
        return Fusion(tuple(candidates), smooth)

    def _mapped(self, m: int, p: Tensor) -> Tensor:
        """Model ``m``'s probabilities ``[V]`` as ``[U]`` over the union; spellings of one string add up."""
        index = self.union.maps[m]
        out = torch.zeros(self.union.size + 1)
        return out.index_add_(0, index, p.to("cpu"))[:-1]

    def _sharpened(self, mean: Tensor, per_model: Sequence[Tensor], drafter_top: Sequence[Symbol]) -> Tensor:
        if self._settings.sharpen == "geom":
            logs = [w * p.log() for w, p in zip(self._weights, per_model, strict=True) if w > 0.0]
            product = torch.stack(logs).sum(dim=0).exp()
            return product / product.sum() if float(product.sum()) > 0.0 else product
        if self._settings.sharpen == "none":
            return mean
        out = mean.clone()
        strings, columns = self.union.in_order
        for strong in drafter_top:
            column = self.union.column[strong]
            if strong[1] or strong == BLANK or float(mean[column]) <= self._settings.lam:
                continue
            first, last = bisect_left(strings, strong[0]), bisect_left(strings, _after(strong[0]))
            out[column] = mean[columns[first:last]].sum()  # the string itself is the first of the range
        return out

    def _candidate(self, column: int, per_model: Sequence[Tensor], mean: Tensor, scores: Tensor) -> Candidate:
        data, eos = self.union.symbols[column]
        p = tuple(min(1.0, float(model[column])) for model in per_model)
        exact = math.fsum(w * x for w, x in zip(self._weights, p, strict=True))
        return Candidate(data, eos, p, min(1.0, exact), float(scores[column]))


def _after(prefix: bytes) -> bytes:
    """The first byte-string behind all that start with ``prefix``."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b"\xff" * (len(prefix) + 64)
