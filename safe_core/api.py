"""The small Python API: load models, generate, iterate events. Everything else is built on these three functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from safe_core import engine, zoo
from safe_core.events import Event
from safe_core.model import Model, Session
from safe_core.types import InputError, Method, Settings

_models: dict[int, Model] = {}  # by identity of the shared weights, so that a vocabulary is built once
_lock = threading.Lock()


def load(
    name: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    attention: str = "auto",
    progress: Callable[[float | None, str], None] | None = None,
) -> Model:
    """A model by built-in name, folder, ``.gguf`` file or hub id; loading it twice shares its weights.

    ``device`` is ``auto``, ``cpu``, ``cuda:N`` or ``shard``; ``dtype`` ``auto``, ``bfloat16``, ``float16`` or ``float32``;
    ``attention`` ``auto``, ``sdpa``, ``eager`` or ``flash_attention_2``. Raises ModelError or InputError with a sentence.
    """
    loaded = zoo.load(name, device=device, dtype=dtype, attention=attention, progress=progress)
    with _lock:
        model = _models.get(id(loaded.network))
        if model is None or model.network is not loaded.network:
            model = _models[id(loaded.network)] = Model(loaded.name, loaded.network, loaded.tokenizer)
    return model


def sessions(
    models: Sequence[Model],
    prompt: str,
    *,
    system: str | None = None,
    prompts: Mapping[str, str] | None = None,
    use_cache: bool = True,
) -> list[Session]:
    """One session per model, drafter first. ``prompts`` overrides the prompt for models by name."""
    own = dict(prompts or {})
    unknown = set(own) - {model.name for model in models}
    if unknown:
        raise InputError(f"There is a prompt for {min(unknown)}, which is none of the models of this run.")
    return [m.session(own.get(m.name, prompt), system, use_cache=use_cache) for m in models]


def generate(
    method: Method,
    models: Sequence[Model],
    prompt: str,
    settings: Settings | None = None,
    *,
    system: str | None = None,
    prompts: Mapping[str, str] | None = None,
    use_cache: bool = True,
    cancelled: Callable[[], bool] = lambda: False,
    opening: Sequence[Event] = (),
) -> Iterator[Event]:
    """Run ``method`` with ``models`` (drafter first; one for ``single``) and yield the trace events as they happen.

    Raises InputError before the first event for a blank prompt, one longer than a context, or an impossible combination.
    """
    chosen = Settings() if settings is None else settings
    speakers = sessions(models, prompt, system=system, prompts=prompts, use_cache=use_cache)
    about: dict[str, Any] = {}
    if system:
        about["system"] = system
    if prompts:
        about["prompts"] = dict(prompts)
    yield from engine.run(method, speakers, chosen, prompt, cancelled=cancelled, about=about, opening=opening)
