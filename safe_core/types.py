"""Frozen values shared by every part of the engine.

Nothing here knows a model, a tokenizer or a tensor, so that a recorded run can be read and shown without torch.
Symbols are those of the paper ("When to Ensemble", ICLR 2026): ``n`` tokens a window, ``lambda`` the sharpening threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Method = Literal["safe", "unite", "gac", "single"]
EnsembleName = Literal["unite", "gac"]
Sharpening = Literal["heur", "geom", "none"]
Verdict = Literal["oov", "unanimous", "majority", "gated", "unaligned", "ensemble", "unchecked"]
Source = Literal["draft", "ensemble"]
Reason = Literal["eos", "length", "stop", "cancelled", "error"]
Role = Literal["drafter", "verifier"]


def default_sharpening(method: Method) -> Sharpening:
    """Sharpening is a part of SAFE; UniTE and GaC alone are run as their authors have them."""
    return "heur" if method == "safe" else "none"


class SafeError(Exception):
    """Something a person can mend. The message is one whole sentence that says what happened and what to do."""


class InputError(SafeError):
    """An argument, a prompt or a file that cannot be used as it is."""


class ModelError(SafeError):
    """A model that cannot be found, loaded or run."""


class TraceError(SafeError):
    """A trace file that is cut, altered, too new or no trace at all."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token of one model's reading.

    ``bytes`` are the raw bytes it stands for; ``start`` is the byte offset in the response at which it begins.
    End of sequence is a role, not a string: it has no bytes and ``eos`` set. ``control`` marks a control token
    (such as ``<|im_start|>``) that is not end of sequence; its bytes are its literal spelling.
    """

    id: int
    bytes: bytes
    start: int
    eos: bool = False
    control: bool = False

    @property
    def end(self) -> int:
        """Byte offset just behind the token."""
        return self.start + len(self.bytes)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One string the ensemble weighs at one position.

    ``p`` is each model's probability over the candidates, drafter first (0.0 where a model cannot encode the string);
    ``mean`` their weighted mean before sharpening; ``score`` the value that decides, after sharpening.
    """

    bytes: bytes
    eos: bool
    p: tuple[float, ...]
    mean: float
    score: float

    @property
    def symbol(self) -> Symbol:
        """What is being chosen: bytes, or end of sequence."""
        return (self.bytes, self.eos)


Symbol = tuple[bytes, bool]
"""Bytes of a token and whether it is end of sequence; what is compared across models instead of ids."""

EOS: Symbol = (b"", True)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides a run besides models and prompt. Defaults are the paper's.

    ``n``                tokens the drafter proposes in one window, or ``"auto"``: up to 16, more while windows pass whole,
                         fewer after early ensemble points, ending behind a token the drafter is unsure of
    ``ensemble``         how rows are fused at an ensemble point
    ``sharpen``          applied only where the fused distribution is smooth (its maximum below 1/2)
    ``lam``              lambda, the least fused probability of a candidate that ``heur`` may strengthen
    ``top_k``            k, strings each model brings to UniTE's union
    ``max_new_tokens``   response tokens, end of sequence included
    ``weights``          one per model, drafter first, made to sum to 1; ``None`` means equal
    ``temperature``      0 decodes greedily; above 0 the drafter samples (paper, appendix H)
    ``seed``             of the sampling; unused when greedy
    ``stop``             the run ends with the token that completes one of these strings
    ``after_confirm``    when fusion confirms the drafter's own token: ``redraft``, a new window begins behind it as in
                         the paper (what was drafted there is taken over, since greedy decoding would repeat it), or
                         ``continue`` checking the same window. The text is the same but for positions decided at
                         a window's edge, because windows then end elsewhere.
    ``commit``           a chosen string is committed ``whole``, or only its ``first_piece`` in the drafter's
                         tokens as the authors' code does
    ``lookup``           feed the drafter guesses of what follows (text seen before, drafts behind a replaced token), so
                         that a forward pass may give several tokens. The same tokens out of fewer passes (in half
                         precision a near tie may be rounded the other way, as with any change in how many rows a pass has)
    ``check_oov``, ``check_consensus``   ablations: switch either check of Algorithm 1 off
    """

    n: int | Literal["auto"] = 5
    ensemble: EnsembleName = "unite"
    sharpen: Sharpening = "heur"
    lam: float = 0.1
    top_k: int = 10
    max_new_tokens: int = 256
    weights: tuple[float, ...] | None = None
    temperature: float = 0.0
    seed: int = 0
    stop: tuple[str, ...] = ()
    after_confirm: Literal["redraft", "continue"] = "redraft"
    commit: Literal["whole", "first_piece"] = "whole"
    lookup: bool = True
    check_oov: bool = True
    check_consensus: bool = True

    def __post_init__(self) -> None:
        if self.n != "auto" and not 1 <= self.n <= 64:
            raise InputError(f"n, the tokens of a window, must be 1 to 64 or 'auto', not {self.n}.")
        if not 0.0 <= self.lam <= 1.0:
            raise InputError(f"lambda must lie between 0 and 1, not {self.lam}.")
        if not 1 <= self.top_k <= 1000:
            raise InputError(f"top-k must be 1 to 1000, not {self.top_k}.")
        if not 1 <= self.max_new_tokens <= 1_000_000:
            raise InputError(f"max-new-tokens must be at least 1, not {self.max_new_tokens}.")
        if self.temperature < 0.0:
            raise InputError(f"temperature must be 0 or more, not {self.temperature}.")
        if any(not s for s in self.stop):
            raise InputError("A stop string must not be empty.")
        if self.weights is not None and (min(self.weights, default=0.0) < 0.0 or sum(self.weights) <= 0.0):
            raise InputError("Weights must not be negative and must not all be 0.")
