"""Local weights become a network in memory, once for everybody who loads them the same way."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from safe_core.zoo.catalogue import Source
from safe_core.zoo.hardware import check, choose_attention, choose_device, choose_dtype
from safe_core.zoo.names import discard_altered, resolve
from safe_core.zoo.pretrained import Unreadable, read_network, read_tokenizer
from safe_core.zoo.telling import Progress, silent

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A network in evaluation mode with its fast tokenizer, and where and how it runs."""

    name: str
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    device: str
    dtype: str
    attention: str
    licence: str | None


_loaded: Final[dict[tuple[str, str, str, str], Loaded]] = {}
_loading: Final = threading.RLock()
_tokenizers: Final[dict[str, PreTrainedTokenizerFast]] = {}
_reading: Final = threading.RLock()


def load(
    name: str, *, device: str = "auto", dtype: str = "auto", attention: str = "auto", progress: Progress | None = None
) -> Loaded:
    """The network and the tokenizer of ``name``, ready to run.

    ``device``     ``cpu``, ``cuda``, ``cuda:1`` ..., ``shard`` (spread over all cards, what does not fit on the CPU),
                   or ``auto``: the CUDA card with the fewest models on it, else the CPU
    ``dtype``      ``float32``, ``bfloat16``, ``float16``, or ``auto``: bfloat16 where the hardware has it, else float16
                   on CUDA and float32 elsewhere
    ``attention``  ``eager``, ``sdpa``, ``flash_attention_2``, or ``auto``: flash attention where its package, the card
                   and the dtype allow, else sdpa, else eager where the architecture has no other

    Loading what is loaded already, the same way, returns the same weights. Raises InputError for what cannot be asked
    for here, ModelError where the model cannot be had, read or held in memory.
    """
    check(device, dtype, attention)
    report = progress or silent
    return _with_second_try(name, report, lambda source: _load(source, device, dtype, attention, report))


def load_tokenizer(name: str, progress: Progress | None = None) -> PreTrainedTokenizerFast:
    """The tokenizer of ``name`` alone: no weights are read into memory, though a built-in model that is not in the cache
    is fetched whole. Raises InputError and ModelError as ``load`` does."""
    report = progress or silent
    return _with_second_try(name, report, lambda source: _tokenizer(source, report))


def unload_all() -> None:
    """Forget every network and tokenizer loaded here; memory is free once nobody else holds them."""
    with _loading, _reading:
        _loaded.clear()
        _tokenizers.clear()
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _with_second_try(name: str, report: Progress, read: Callable[[Source], T]) -> T:
    """What ``read`` makes of ``name``. A damaged copy of the right size is noticed here first: it is made again, once."""
    source = resolve(name, report)
    try:
        return read(source)
    except Unreadable:
        if not discard_altered(source, report):
            raise
        return read(resolve(name, report))


def _load(source: Source, device: str, dtype: str, attention: str, report: Progress) -> Loaded:
    tokenizer = _tokenizer(source, report)
    with _loading:
        device = choose_device(device, source.path, [key[:2] for key in _loaded])
        dtype = choose_dtype(dtype, device)
        kernels = choose_attention(attention, device, dtype)
        for kernel in kernels:
            found = _loaded.get((source.path, device, dtype, kernel))
            if found is not None:
                return found
        report(None, f"Loading {source.name}")
        network, kernel = read_network(source, device, dtype, kernels)
        loaded = Loaded(source.name, network, tokenizer, device, dtype, kernel, source.licence)
        _loaded[source.path, device, dtype, kernel] = loaded
        return loaded


def _tokenizer(source: Source, report: Progress) -> PreTrainedTokenizerFast:
    with _reading:
        if source.path not in _tokenizers:
            report(None, f"Loading the tokenizer of {source.name}")
            _tokenizers[source.path] = read_tokenizer(source)
        return _tokenizers[source.path]
