"""What may be asked for: the methods a side can run, an order for both sides, and the limits of a page."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final, Literal

from safe_core.types import InputError, Method, Settings, default_sharpening


@dataclass(frozen=True, slots=True)
class Limits:
    """What one page may ask for, so that a public page stays up. Characters, tokens, models."""

    prompt_chars: int = 20_000
    tokens: int = 4_096
    verifiers: int = 4
    stop_strings: int = 16
    text_chars: int = 5_000


LIMITS: Final = Limits()

METHODS: Final[dict[str, tuple[Method, Literal["unite", "gac"]]]] = {
    "UniTE": ("unite", "unite"),
    "SAFE": ("safe", "unite"),
    "GaC": ("gac", "gac"),
    "GaC + SAFE": ("safe", "gac"),
    "drafter alone": ("single", "unite"),
    "verifier alone": ("single", "unite"),
}
"""What a side of the page can run, by the name a person picks: the method, and how it fuses."""

NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class Order:
    """All that decides a run of both sides. ``sides`` are picks of :data:`METHODS`, left first."""

    prompt: str
    sides: tuple[str, ...]
    drafter: str
    verifiers: tuple[str, ...]
    settings: Settings
    system: str = ""
    device: str = "auto"
    dtype: str = "auto"
    attention: str = "auto"

    def checked(self, limits: Limits = LIMITS) -> Order:
        """Itself. Raises InputError, saying what to change, where it asks for what cannot be run."""
        if not self.prompt.strip():
            raise InputError("The prompt is empty. Write a question, or pick an example.")
        for what, text in (("prompt", self.prompt), ("system prompt", self.system)):
            if len(text) > limits.prompt_chars:
                raise InputError(
                    f"The {what} has {len(text):,} characters; this page takes up to {limits.prompt_chars:,}. Shorten it."
                )
        if self.settings.max_new_tokens > limits.tokens:
            raise InputError(f"This page generates up to {limits.tokens:,} tokens a run. Lower 'max tokens'.")
        if len(self.settings.stop) > limits.stop_strings:
            raise InputError(f"This page takes up to {limits.stop_strings} stop strings. Remove some.")
        if len(self.verifiers) > limits.verifiers:
            raise InputError(f"This page runs up to {limits.verifiers} verifiers beside the drafter. Remove some.")
        if not self.drafter:
            raise InputError("No drafter is chosen. Pick the model that writes.")
        if any(side not in METHODS for side in self.sides) or not self.sides:
            raise InputError("No method is chosen. Pick one for the left side.")
        if any(side != "drafter alone" for side in self.sides) and not self.verifiers:
            raise InputError("No verifier is chosen. Pick at least one, or run the drafter alone.")
        return self

    def names(self, side: str) -> tuple[str, ...]:
        """The models a side needs, drafter first."""
        if side == "drafter alone":
            return (self.drafter,)
        return self.verifiers[:1] if side == "verifier alone" else (self.drafter, *self.verifiers)

    def settings_of(self, side: str) -> Settings:
        """A side's settings: what is chosen for sharpening is SAFE's alone."""
        method, ensemble = METHODS[side]
        settings = dataclasses.replace(self.settings, ensemble=ensemble)
        if method != "safe":
            settings = dataclasses.replace(settings, sharpen=default_sharpening(method))
        return dataclasses.replace(settings, weights=None) if method == "single" else settings
