"""Eq. 1 and the consensus tests: which drafted tokens stand, and where the models must be fused."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from safe_core.events import Broken, Check
from safe_core.reading import Reading, Witness
from safe_core.types import Settings, Token, Verdict


@dataclass(frozen=True, slots=True)
class Position:
    """Everything known about one drafted token: the drafter's own probability and each verifier's testimony."""

    index: int
    token: Token
    p_draft: float
    witnesses: tuple[Witness | None, ...]
    oov_for: tuple[str, ...]
    unaligned: bool
    edge: bool
    broken: tuple[Broken, ...] = ()

    @property
    def probabilities(self) -> list[float | None]:
        """P_v(t^v_j) per model, drafter first."""
        return [self.p_draft, *(None if w is None else w.p for w in self.witnesses)]

    @property
    def unanimous(self) -> bool:
        return all(w is not None and w.agrees for w in self.witnesses)

    def mean(self, weights: Sequence[float]) -> float | None:
        """Weighted mean over all models; ``fsum`` makes it the same in any order of models."""
        p = self.probabilities
        return None if None in p else math.fsum(w * x for w, x in zip(weights, p, strict=True) if x is not None)


def position(index: int, token: Token, p_draft: float, readings: Sequence[Reading], *, complete: bool) -> Position:
    """Look one drafted token up in every reading. ``complete``: nothing will follow this window, so nothing is an edge."""
    witnesses: list[Witness | None] = []
    oov_for: list[str] = []
    unaligned = edge = False
    for reading in readings:
        witness = reading.witness(token)
        if reading.is_unaligned(token.start, token.start if witness is None else witness.end):
            unaligned, witness = True, None
        elif witness is None:
            if not reading.has_boundary(token.start):
                oov_for.append(reading.model)
        elif witness.end == reading.length:
            edge = True
        witnesses.append(witness)
    edge = (edge or any(token.end == r.length for r in readings)) and not complete and not token.eos
    return Position(index, token, p_draft, tuple(witnesses), tuple(oov_for), unaligned, edge)


def judge(at: Position, weights: Sequence[float], settings: Settings) -> tuple[Verdict, float | None]:
    """The verdict on one token, and the mean probability where every model could be asked (Algorithm 1, lines 8-15)."""
    if at.oov_for and settings.check_oov:
        return "oov", None
    if at.unaligned or None in at.witnesses:
        return "unaligned", None
    mean = at.mean(weights)
    if settings.temperature > 0.0 or not settings.check_consensus:  # sampling weighs every safe token (App. H)
        return "ensemble", mean
    if at.unanimous:
        return "unanimous", mean
    return ("majority" if mean is not None and mean > 0.5 else "ensemble"), mean


def verify(
    window: Sequence[Position], weights: Sequence[float], settings: Settings, gate: Callable[[Position], bool]
) -> list[Check]:
    """Checks of the window in order, up to and with the first ensemble point; the tokens behind it stay ``unchecked``.

    ``gate`` says that the ensemble method itself lets a token stand (GaC's threshold).
    """
    checks: list[Check] = []
    for n, at in enumerate(window):
        verdict, mean = judge(at, weights, settings)
        if verdict == "ensemble" and gate(at):
            verdict = "gated"
        checks.append(check(at, verdict, mean))
        if verdict == "ensemble":
            return checks + [unchecked(later.index, later.token) for later in window[n + 1 :]]
    return checks


def check(at: Position, verdict: Verdict, mean: float | None) -> Check:
    """The trace's record of one verdict."""
    p = [None if x is None else significant(x) for x in at.probabilities]
    return Check(
        index=at.index,
        start=at.token.start,
        verdict=verdict,
        oov_for=list(at.oov_for),
        p=p,
        mean_p=None if mean is None else significant(mean),
        edge=at.edge,
        broken=list(at.broken),
    )


def unchecked(index: int, token: Token) -> Check:
    """A drafted token nobody looked at: behind an ensemble point, or waiting for the rest of a character."""
    return Check(index=index, start=token.start, verdict="unchecked", oov_for=[], p=[], mean_p=None, edge=False)


def significant(x: float) -> float:
    """Six significant digits: what a trace keeps of a probability. Decisions use the full value."""
    return float(f"{min(x, 1.0):.6g}")
