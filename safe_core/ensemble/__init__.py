"""Ensemble methods: how rows of next-token logits are fused at one position."""

from __future__ import annotations

from collections.abc import Sequence

from safe_core.ensemble.base import Ensemble
from safe_core.ensemble.gac import GaC
from safe_core.ensemble.unite import UniTE
from safe_core.types import EnsembleName, Settings
from safe_core.vocabulary import Vocabulary

METHODS: dict[EnsembleName, type[UniTE] | type[GaC]] = {"unite": UniTE, "gac": GaC}


def make_ensemble(name: EnsembleName, vocabularies: Sequence[Vocabulary], settings: Settings) -> Ensemble:
    """The method of that name for these models, drafter first. What it derives from the vocabularies it derives once."""
    return METHODS[name](vocabularies, settings)
