"""Sharpening a smooth fused distribution (paper, section 4.3): longer strings lend their mass to their prefix."""

from __future__ import annotations

import math
from collections.abc import Sequence

from safe_core.types import Symbol

BLANK: Symbol = (b" ", False)


def heur(means: dict[Symbol, float], drafter_top: Sequence[Symbol], lam: float) -> dict[Symbol, float]:
    """Add to every strong candidate of the drafter's own top-k the unsharpened mass of all candidates that start with it.

    ``means`` is P_ens per candidate. Strong means P_ens > ``lam``. A lone blank and end of sequence are prefixes of nothing.
    """
    out = dict(means)
    for strong in drafter_top:
        own, eos = strong
        if eos or strong == BLANK or means.get(strong, 0.0) <= lam:
            continue
        longer = [p for (data, end), p in means.items() if not end and data != own and data.startswith(own)]
        out[strong] = math.fsum([means[strong], *longer])
    return out


def geom(p: dict[Symbol, tuple[float, ...]], weights: Sequence[float]) -> dict[Symbol, float]:
    """The weighted geometric mean per candidate, renormalised over the candidates; 0 where any weighted model gives 0."""
    out = {symbol: _geometric(values, weights) for symbol, values in p.items()}
    total = math.fsum(out.values())
    return {symbol: value / total for symbol, value in out.items()} if total > 0.0 else out


def _geometric(values: Sequence[float], weights: Sequence[float]) -> float:
    logs = [w * math.log(x) if x > 0.0 else -math.inf for x, w in zip(values, weights, strict=True) if w > 0.0]
    return math.exp(math.fsum(logs)) if -math.inf not in logs else 0.0
