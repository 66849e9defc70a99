"""GaC: fuse over the union of all vocabularies."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from safe_core.ensemble.base import SMOOTH, Fusion, first_symbols, leaders, normalised_weights
from safe_core.ensemble.sharpen import BLANK
from safe_core.model import Rows
from safe_core.types import EOS, Candidate, Settings, Symbol
from safe_core.vocabulary import Vocabulary

GATE: Final = 0.5
"""GaC leaves a token alone whose own model is surer of it than this."""
DEEPER: Final = 8
"""How many times ``top_k`` every model's own order is searched before the whole union is averaged."""

Scores = dict[Symbol, float]
Probabilities = dict[Symbol, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Shared:
    """One model's ids of the strings that all models have.

    ``one`` holds an id of each string ``[C]``; ``several`` are the places in it whose strings have ``further`` ids, each of
    which ``belongs`` to one of these places.
    """

    one: Tensor
    several: Tensor
    belongs: Tensor
    further: Tensor


class Union:
    """All byte-strings of all vocabularies, and where every model's ids fall among them. Built once per model set.

    Its columns are the ids of the largest vocabulary; behind them come the strings that only others have; the last column,
    ``size``, takes what is no candidate.
    """

    def __init__(self, vocabularies: Sequence[Vocabulary]) -> None:
        self._vocabularies = tuple(vocabularies)
        self._largest = max(vocabularies, key=lambda v: v.size)
        others: dict[Symbol, int] = {}
        columns = [self._columns(v, others) for v in vocabularies]
        self._others = list(others)
        self.size = self._largest.size + len(others)
        self.maps = [torch.tensor([self.size if c < 0 else c for c in found], dtype=torch.long) for found in columns]
        self._twins = [self._several(found) for found in self.maps]

    def _columns(self, vocabulary: Vocabulary, others: dict[Symbol, int]) -> list[int]:
        """The column of every id; -1 for what is no candidate."""
        found = []
        for i in range(vocabulary.size):
            if i in vocabulary.control_ids or (i in vocabulary.eos_ids and i != vocabulary.eos_id):
                found.append(-1)
                continue
            data, eos = symbol = EOS if i == vocabulary.eos_id else (vocabulary.bytes_of(i), False)
            own = self._largest.eos_id if eos else self._largest.id_of(data)
            found.append(others.setdefault(symbol, self._largest.size + len(others)) if own is None else own)
        return found

    def _several(self, columns: Tensor) -> dict[Symbol, list[int]]:
        """The ids of every string that has more than one."""
        often = columns.bincount(minlength=self.size + 1) > 1
        often[-1] = False
        out: dict[Symbol, list[int]] = {}
        for i in often[columns].nonzero().flatten().tolist():
            out.setdefault(self.symbol(int(columns[i])), []).append(i)
        return out

    def symbol(self, column: int) -> Symbol:
        """The string of a column."""
        if column >= self._largest.size:
            return self._others[column - self._largest.size]
        return EOS if column == self._largest.eos_id else (self._largest.bytes_of(column), False)

    def ids(self, m: int, symbol: Symbol) -> list[int]:
        """Model ``m``'s ids that spell a string."""
        if symbol in self._twins[m]:
            return self._twins[m][symbol]
        own = self._vocabularies[m].eos_id if symbol[1] else self._vocabularies[m].id_of(symbol[0])
        return [] if own is None else [own]

    def spellings(self, m: int) -> int:
        """The most ids that model ``m`` has for one string."""
        return max(map(len, self._twins[m].values()), default=1)

    @cached_property
    def in_order(self) -> list[tuple[list[bytes], Tensor]]:
        """Per model: all strings in bytes order and their ids; a prefix is a range of it. End of sequence is left out."""
        out = []
        for vocabulary, columns in zip(self._vocabularies, self.maps, strict=True):
            ids = (i for i in (columns < self.size).nonzero().flatten().tolist() if i != vocabulary.eos_id)
            order = sorted((vocabulary.bytes_of(i), i) for i in ids)
            out.append(([data for data, _ in order], torch.tensor([i for _, i in order], dtype=torch.long)))
        return out

    def shared(self, models: Sequence[int]) -> list[Shared]:
        """The strings that all of ``models`` have, in one order."""
        held = torch.ones(self.size + 1, dtype=torch.bool)
        for m in models:
            held &= self.maps[m].bincount(minlength=self.size + 1) > 0
        held[-1] = False
        place = torch.where(held, held.cumsum(0) - 1, -1)
        out = []
        for m in models:
            ids = (place[self.maps[m]] >= 0).nonzero().flatten()
            at = place[self.maps[m][ids]]
            one = torch.zeros(int(held.sum()), dtype=torch.long).index_put_((at,), ids)
            further = one[at] != ids
            several, belongs = torch.unique(at[further], return_inverse=True)
            out.append(Shared(one, several, belongs, ids[further]))
        return out


class GaC:
    """Full union: every model's whole softmax, mapped and averaged. Its gate stays in front, under SAFE too."""

    def __init__(self, vocabularies: Sequence[Vocabulary], settings: Settings) -> None:
        self._vocabularies = tuple(vocabularies)
        self._settings = settings
        self._weights = normalised_weights(settings, len(vocabularies))
        self._asked = [m for m, w in enumerate(self._weights) if w > 0.0]

    @cached_property
    def union(self) -> Union:
        return Union(self._vocabularies)

    @cached_property
    def _shared(self) -> list[Shared]:
        return self.union.shared(self._asked)

    def stands(self, p_top: float) -> bool:
        """Whether the drafter is sure enough that GaC does not ensemble at all."""
        return p_top > GATE

    def fuse(self, rows: Sequence[Rows], k: Sequence[int]) -> Fusion:
        """Average over the whole union; the candidates reported are the best of the mean and of every model.

        No string that is far down every model's own order can lead the mean: the search goes as deep as that takes (Fagin's
        threshold algorithm), and only what it meets is computed, in double precision.
        """
        rows = [r.on_cpu(at) for r, at in zip(rows, k, strict=True)]
        p, tops = self._leading(rows)
        means = {symbol: self._mean(x) for symbol, x in p.items()}
        scores, smooth = means, max(means.values()) < SMOOTH
        if smooth and self._settings.sharpen == "heur":
            scores = means | self._strengthened(rows, means, tops[0])
        elif smooth and self._settings.sharpen == "geom":
            products = self._geometric_means(rows)
            total = float(products.sum(dtype=torch.float64))
            p = self._probabilities(rows, self._highest(products)) | p
            scores = {symbol: self._geometric(x) / total if total > 0.0 else 0.0 for symbol, x in p.items()}
        rank = {symbol: i for i, symbol in enumerate(tops[0])}
        order = sorted(p, key=lambda s: (-scores[s], rank.get(s, len(rank)), s))
        level = next((i for i, s in enumerate(order) if scores[s] < scores[order[0]]), len(order))
        kept = {*order[: max(self._settings.top_k, min(level, 64))], *(s for top in tops for s in top)}
        return Fusion(tuple(Candidate(*s, p[s], self._mean(p[s]), scores[s]) for s in order if s in kept), smooth)

    def _mean(self, p: Sequence[float]) -> float:
        return min(1.0, math.fsum(w * x for w, x in zip(self._weights, p, strict=True)))

    def _geometric(self, p: Sequence[float]) -> float:
        if any(p[m] <= 0.0 for m in self._asked):
            return 0.0
        return math.exp(math.fsum(self._weights[m] * math.log(p[m]) for m in self._asked))

    def _leading(self, rows: Sequence[Rows]) -> tuple[Probabilities, list[list[Symbol]]]:
        """Probabilities of at least the ``top_k`` strings of highest mean, and every model's own ``top_k``, best first."""
        count = self._settings.top_k
        for depth in (count, DEEPER * count):
            found = [first_symbols(r, 0, v, depth) for r, v in zip(rows, self._vocabularies, strict=True)]
            met = dict.fromkeys(symbol for symbols, _ in found for symbol in symbols)
            p = self._probabilities(rows, list(met))
            # The most that the mean of a string can be that no model has met.
            rest = [self.union.spellings(m) * rows[m].p_at(0, bound) for m, (_, bound) in enumerate(found)]
            if self._mean(rest) <= sorted(map(self._mean, p.values()), reverse=True)[:count][-1]:
                break
        else:  # every model is undecided
            p = self._probabilities(rows, list(met | dict.fromkeys(self._averaged(rows))))
        return p, [symbols[:count] for symbols, _ in found]

    def _averaged(self, rows: Sequence[Rows]) -> list[Symbol]:
        """What leads the mean over the whole union ``[U]``, float32."""
        mean = torch.zeros(self.union.size + 1)
        for m in self._asked:
            mean.index_add_(0, self.union.maps[m], self._weights[m] * rows[m].probabilities(0))
        return [self.union.symbol(c) for c in self._best(mean[:-1])]

    def _highest(self, products: Tensor) -> list[Symbol]:
        """The strings of highest geometric mean."""
        m = self._asked[0]
        return [self.union.symbol(int(self.union.maps[m][self._shared[0].one[at]])) for at in self._best(products)]

    def _best(self, values: Tensor) -> list[int]:
        """Places of the ``top_k`` largest positive values, and some of what ties with the last."""
        if not len(values):
            return []
        found, _ = leaders(values, self._settings.top_k)
        order = values[found].sort(descending=True, stable=True).indices[: self._settings.top_k + 64]
        return [i for i in found[order].tolist() if float(values[i]) > 0.0]

    def _probabilities(self, rows: Sequence[Rows], symbols: Sequence[Symbol]) -> Probabilities:
        """Every model's probability of each string; spellings of one string add up."""
        per_model = []
        for m, r in enumerate(rows):
            ids = [self.union.ids(m, symbol) for symbol in symbols]
            flat = iter(r.probabilities_of(0, [i for group in ids for i in group]))
            per_model.append([min(1.0, math.fsum([next(flat) for _ in group])) for group in ids])
        return dict(zip(symbols, zip(*per_model, strict=True), strict=True))

    def _strengthened(self, rows: Sequence[Rows], means: Scores, drafter_top: Sequence[Symbol]) -> Scores:
        """The drafter's strong strings with the mass of all that start with them (see :func:`sharpen.heur`)."""
        out = {}
        for strong in drafter_top:
            if not (strong[1] or strong == BLANK or means[strong] <= self._settings.lam):
                mass = [w * self._mass_behind(m, r, strong[0]) for m, (w, r) in enumerate(zip(self._weights, rows, strict=True))]
                out[strong] = math.fsum([means[strong], *mass])
        return out

    def _mass_behind(self, m: int, rows: Rows, prefix: bytes) -> float:
        """Model ``m``'s probability of all longer strings that start with ``prefix``."""
        strings, ids = self.union.in_order[m]
        last = bisect_left(strings, _after(prefix))
        first = bisect_left(strings, prefix + b"\0", 0, last)
        return float(rows.probabilities(0, ids[first:last]).sum(dtype=torch.float64))

    def _geometric_means(self, rows: Sequence[Rows]) -> Tensor:
        """The geometric mean of the strings that all models have ``[C]``, not normalised; 0 for all others."""
        logs = torch.zeros(self._shared[0].one.shape[0])
        for m, found in zip(self._asked, self._shared, strict=True):
            own = rows[m].logits[0].index_select(0, found.one).sub_(rows[m].lse(0))
            again = rows[m].probabilities(0, found.further)
            own[found.several] = own[found.several].exp().index_add_(0, found.belongs, again).log()
            logs.add_(own, alpha=self._weights[m])
        return logs.exp_()


def _after(prefix: bytes) -> bytes:
    """The first byte-string behind all that start with ``prefix``."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b"\xff" * (len(prefix) + 64)
