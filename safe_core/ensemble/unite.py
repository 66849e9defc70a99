"""UniTE: fuse the union of every model's top-k strings."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from safe_core.ensemble.base import SMOOTH, Fusion, normalised_weights, top_symbols
from safe_core.ensemble.sharpen import geom, heur
from safe_core.model import Rows
from safe_core.types import Candidate, Settings, Symbol
from safe_core.vocabulary import Vocabulary


class UniTE:
    """Top-k union. A model scores a string it has no token for by the first sub-token of its own encoding of it."""

    def __init__(self, vocabularies: Sequence[Vocabulary], settings: Settings) -> None:
        self._vocabularies = tuple(vocabularies)
        self._settings = settings
        self._weights = normalised_weights(settings, len(vocabularies))
        self._ids: list[dict[Symbol, int | None]] = [{} for _ in vocabularies]  # string -> id that scores it

    def stands(self, p_top: float) -> bool:
        """UniTE has no gate of its own: it fuses wherever it is asked."""
        return False

    def fuse(self, rows: Sequence[Rows], k: Sequence[int]) -> Fusion:
        """Softmax per model over the union only, then the weighted mean, sharpened where it is smooth."""
        tops = [top_symbols(r, at, v, self._settings.top_k) for r, at, v in zip(rows, k, self._vocabularies, strict=True)]
        union = list(dict.fromkeys(symbol for top in tops for symbol in top))
        per_model = [self._over(union, m, rows[m].logits[k[m]]) for m in range(len(rows))]
        p = {symbol: tuple(model[i] for model in per_model) for i, symbol in enumerate(union)}
        means = {s: math.fsum(w * x for w, x in zip(self._weights, ps, strict=True)) for s, ps in p.items()}
        return ranked(p, means, tops[0], self._settings, self._weights)

    def _over(self, union: Sequence[Symbol], m: int, row: torch.Tensor) -> list[float]:
        """Model ``m``'s softmax over the union, from its row ``[V]``."""
        ids = [self._scored_by(m, symbol) for symbol in union]
        known = [i for i in ids if i is not None]
        values = dict(zip(known, row[known].tolist(), strict=True)) if known else {}
        logits = [-math.inf if i is None else values[i] for i in ids]
        top = max(logits)
        if top == -math.inf:
            return [0.0] * len(union)
        mass = [math.exp(x - top) for x in logits]
        total = math.fsum(mass)
        return [x / total for x in mass]

    def _scored_by(self, m: int, symbol: Symbol) -> int | None:
        """The id whose logit is this string's score for model ``m``; ``None`` where the model cannot write it."""
        known = self._ids[m]
        if symbol not in known:
            known[symbol] = scoring_id(self._vocabularies[m], symbol)
        return known[symbol]


def scoring_id(vocabulary: Vocabulary, symbol: Symbol) -> int | None:
    """The token that holds the string, else the first of its sub-tokens that is no lone blank."""
    data, eos = symbol
    if eos:
        return vocabulary.eos_id
    whole = vocabulary.id_of(data)
    if whole is not None:
        return whole
    encoding = vocabulary.encode(data)
    if encoding.unaligned or not encoding.tokens:
        return None
    return next((t.id for t in encoding.tokens if t.bytes != b" "), encoding.tokens[0].id)


def ranked(
    p: dict[Symbol, tuple[float, ...]],
    means: dict[Symbol, float],
    drafter_top: Sequence[Symbol],
    settings: Settings,
    weights: Sequence[float],
) -> Fusion:
    """Sharpen if due, and order by final score; ties go to the drafter's order, then to bytes."""
    smooth = max(means.values()) < SMOOTH
    scores = means
    if smooth and settings.sharpen == "heur":
        scores = heur(means, drafter_top, settings.lam)
    elif smooth and settings.sharpen == "geom":
        scores = geom(p, weights)
    rank = {symbol: i for i, symbol in enumerate(drafter_top)}
    order = sorted(p, key=lambda s: (-scores[s], rank.get(s, len(rank)), s))
    return Fusion(tuple(Candidate(s[0], s[1], p[s], means[s], scores[s]) for s in order), smooth)
