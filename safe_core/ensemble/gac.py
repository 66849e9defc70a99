"""GaC: fuse over the union of all vocabularies."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import torch
from torch import Tensor

from safe_core.ensemble.base import SMOOTH, Fusion, first_symbols, normalised_weights
from safe_core.ensemble.sharpen import BLANK
from safe_core.model import Rows, block_maxima, leaders
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
    ``size``, takes what is no candidate. ``spellings`` says for each model the most ids that it has for one string.
    """

    def __init__(self, vocabularies: Sequence[Vocabulary]) -> None:
        self._vocabularies = tuple(vocabularies)
        self._largest = max(vocabularies, key=lambda v: v.size)
        others: dict[Symbol, int] = {}
        columns = [self._columns(v, others) for v in vocabularies]
        self._others = list(others)
        self.size = self._largest.size + len(others)
        self.maps = [torch.tensor([self.size if c < 0 else c for c in found], dtype=torch.long) for found in columns]
        self._ids = [self._several(found) for found in self.maps]  # by string; the others are added as they are asked for
        self.spellings = [max(map(len, ids.values()), default=1) for ids in self._ids]

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
        known = self._ids[m]
        if symbol not in known:  # what leads at one position often leads at the next
            own = self._vocabularies[m].eos_id if symbol[1] else self._vocabularies[m].id_of(symbol[0])
            known[symbol] = [] if own is None else [own]
        return known[symbol]

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
        p, means, tops, rest = self._leading(rows)
        scores, smooth = means, max(means.values()) < SMOOTH
        if smooth and self._settings.sharpen == "heur":
            scores = means | self._strengthened(rows, means, tops[0])
        elif smooth and self._settings.sharpen == "geom":
            p, scores = self._geometrically(rows, p, rest)
        rank = {symbol: i for i, symbol in enumerate(tops[0])}
        order = sorted(p, key=lambda s: (-scores[s], rank.get(s, len(rank)), s))
        level = next((i for i, s in enumerate(order) if scores[s] < scores[order[0]]), len(order))
        kept = {*order[: max(self._settings.top_k, min(level, 64))], *(s for top in tops for s in top)}
        return Fusion(tuple(Candidate(*s, p[s], self._mean(p[s]), scores[s]) for s in order if s in kept), smooth)

    def _mean(self, p: Sequence[float]) -> float:
        return min(1.0, math.fsum([w * x for w, x in zip(self._weights, p, strict=True)]))

    def _geometric(self, p: Sequence[float]) -> float:
        if min([p[m] for m in self._asked]) <= 0.0:
            return 0.0
        return math.exp(math.fsum([self._weights[m] * math.log(p[m]) for m in self._asked]))

    def _leading(self, rows: Sequence[Rows]) -> tuple[Probabilities, Scores, list[list[Symbol]], list[float]]:
        """Probabilities and mean of at least the ``top_k`` strings that lead, every model's own ``top_k``, best first, and the
        most that every model can give to a string that is not among these."""
        count = self._settings.top_k
        p: Probabilities = {}
        means: Scores = {}

        def meet(symbols: Iterable[Symbol]) -> None:
            more = self._probabilities(rows, [symbol for symbol in symbols if symbol not in p])
            p.update(more)
            means.update({symbol: self._mean(x) for symbol, x in more.items()})

        for depth in (count, DEEPER * count):
            found = [first_symbols(r, 0, v, depth) for r, v in zip(rows, self._vocabularies, strict=True)]
            meet(dict.fromkeys(symbol for symbols, _ in found for symbol in symbols))
            rest = [self.union.spellings[m] * rows[m].p_at(0, bound) for m, (_, bound) in enumerate(found)]
            if self._mean(rest) <= sorted(means.values(), reverse=True)[:count][-1]:
                break
        else:  # every model is undecided
            meet(self._averaged(rows))
        return p, means, [symbols[:count] for symbols, _ in found], rest

    def _geometrically(self, rows: Sequence[Rows], p: Probabilities, rest: Sequence[float]) -> tuple[Probabilities, Scores]:
        """Scores by the geometric mean, renormalised over the union; with them, strings that lead now and were not in ``p``."""
        products = self._geometric_means(rows)
        total = float(products.sum(dtype=torch.float64))
        if total <= 0.0:
            return p, dict.fromkeys(p, 0.0)
        scores = {symbol: self._geometric(x) / total for symbol, x in p.items()}
        if self._geometric(rest) / total > sorted(scores.values(), reverse=True)[: self._settings.top_k][-1]:
            more = self._probabilities(rows, [symbol for symbol in self._highest(products) if symbol not in p])
            return p | more, scores | {symbol: self._geometric(x) / total for symbol, x in more.items()}
        return p, scores

    def _averaged(self, rows: Sequence[Rows]) -> list[Symbol]:
        """What leads the mean over the whole union ``[U]``, float32."""
        mean = torch.zeros(self.union.size + 1)
        for m in self._asked:
            mean.index_add_(0, self.union.maps[m], self._weights[m] * rows[m].probabilities(0))
        return [self.union.symbol(c) for c in self._best(mean[:-1])]

    def _highest(self, products: Tensor) -> list[Symbol]:
        """The strings of highest geometric mean."""
        ids = self._shared[0].one[self._best(products)]
        return [self.union.symbol(column) for column in self.union.maps[self._asked[0]][ids].tolist()]

    def _best(self, values: Tensor) -> list[int]:
        """Places of the ``top_k`` largest positive values, and some of what ties with the last but for float32's rounding."""
        if not len(values):
            return []
        found, _ = leaders(values, block_maxima(values), self._settings.top_k)
        most = self._settings.top_k + 64
        value, order = values[found].sort(descending=True, stable=True)
        least = (1.0 - 1e-5) * float(value[min(self._settings.top_k, len(value)) - 1])
        return [i for i, x in zip(found[order[:most]].tolist(), value[:most].tolist(), strict=True) if x > 0.0 and x >= least]

    def _probabilities(self, rows: Sequence[Rows], symbols: Sequence[Symbol]) -> Probabilities:
        """Every model's probability of each string; spellings of one string add up."""
        per_model = []
        for m, r in enumerate(rows):
            spelled = [self.union.ids(m, symbol) for symbol in symbols]
            flat = iter(r.probabilities_of(0, list(itertools.chain(*spelled))))
            per_model.append([next(flat) if len(ids) == 1 else min(1.0, math.fsum([next(flat) for _ in ids])) for ids in spelled])
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
            own = rows[m].logits[0].index_select(0, found.one).float().sub_(rows[m].lse(0))
            if len(found.further):
                again = rows[m].probabilities(0, found.further)
                own[found.several] = own[found.several].exp().index_add_(0, found.belongs, again).log()
            logs.add_(own, alpha=self._weights[m])
        return logs.exp_()


def _after(prefix: bytes) -> bytes:
    """The first byte-string behind all that start with ``prefix``."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else b"\xff" * (len(prefix) + 64)
