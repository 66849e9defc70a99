"""How long steps are reported and errors put on one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Progress = Callable[[float | None, str], None]
"""Told how far a long step is, 0 to 1 or ``None`` where that is unknown, and what is being done. It may raise to cancel."""

TICK_S: Final = 0.2
"""How often a step that waits reports."""


def silent(fraction: float | None, message: str) -> None:
    """Progress for those who did not ask."""


def one_line(error: object) -> str:
    """What an error says, in at most 300 characters and without its full stop, to stand in a sentence."""
    text = " ".join(str(error).split()) or type(error).__name__
    return (text if len(text) <= 300 else text[:297] + "...").rstrip(".")
