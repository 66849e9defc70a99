"""SAFE, Stable And Fast LLM Ensembling, as a library: ``load`` models, ``generate``, iterate events, keep a ``Trace``.

>>> from safe_core import Settings, generate, load
>>> models = [load("smollm2-135m-instruct"), load("gemma-3-270m")]
>>> for event in generate("safe", models, "What is the capital of Bulgaria?", Settings(max_new_tokens=40)):
...     print(event)

Names that need torch are imported on first use, so that traces can be read and shown without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safe_core.trace import Trace, statistics
from safe_core.types import InputError, ModelError, SafeError, Settings, TraceError

if TYPE_CHECKING:
    from safe_core.api import generate, load, sessions
    from safe_core.model import Model, Session

__all__ = [
    "InputError",
    "Model",
    "ModelError",
    "SafeError",
    "Session",
    "Settings",
    "Trace",
    "TraceError",
    "generate",
    "load",
    "sessions",
    "statistics",
]


def __getattr__(name: str) -> Any:
    if name in ("generate", "load", "sessions"):
        from safe_core import api

        return getattr(api, name)
    if name in ("Model", "Session"):
        from safe_core import model

        return getattr(model, name)
    raise AttributeError(f"module 'safe_core' has no attribute {name!r}")
