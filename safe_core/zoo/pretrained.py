"""What transformers reads, without its chatter, and with every failure told in a sentence."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from safe_core.types import ModelError
from safe_core.zoo.catalogue import Source
from safe_core.zoo.telling import one_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


class Unreadable(ModelError):
    """Files that transformers cannot make sense of."""


class _NoKernel(Exception):
    """The architecture has no such attention kernel."""


_KERNEL_COMPLAINT: Final = re.compile("attention implementation|attn_implementation|flash.?attention", re.IGNORECASE)
"""In what transformers says then."""


def read_tokenizer(source: Source) -> PreTrainedTokenizerFast:
    """The fast tokenizer of ``source``. Raises Unreadable, and ModelError where it has none."""
    from transformers import AutoTokenizer

    try:
        with _quiet():
            tokenizer = AutoTokenizer.from_pretrained(source.path, **_reading_options(source))
    except Exception as error:  # whatever a reader of foreign files raises is said in a sentence
        raise Unreadable(_reading_failure(source, error, "tokenizer")) from error
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"{source.name} has no fast tokenizer, which is needed to know where each token begins; "
            "add its tokenizer.json to the folder, or choose another model."
        )
    return tokenizer


def read_network(source: Source, device: str, dtype: str, kernels: Sequence[str]) -> tuple[PreTrainedModel, str]:
    """The network in evaluation mode with the first of ``kernels`` its architecture has, and that kernel.

    ``device`` and ``dtype`` are chosen already. Raises Unreadable, and ModelError where it is incomplete, too large for the
    memory, or has none of the kernels.
    """
    for kernel in kernels:
        with contextlib.suppress(_NoKernel):
            return _read_network_with(source, device, dtype, kernel), kernel
    raise ModelError(f"{source.name} cannot run with the attention kernel {kernels[-1]!r}; choose another, or 'auto'.")


def _read_network_with(source: Source, device: str, dtype: str, kernel: str) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with _quiet():
            network, notes = AutoModelForCausalLM.from_pretrained(
                source.path,
                dtype=getattr(torch, dtype),
                attn_implementation=kernel,
                device_map="auto" if device == "shard" else {"": device},
                output_loading_info=True,
                **_reading_options(source),
            )
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise ModelError(_out_of_memory(source, device, dtype)) from error
    except Exception as error:  # whatever a reader of foreign files raises is said in a sentence
        text = str(error)
        if "not enough memory" in text or "can't allocate memory" in text or "out of memory" in text:
            raise ModelError(_out_of_memory(source, device, dtype)) from error
        if isinstance(error, (ValueError, ImportError)) and _KERNEL_COMPLAINT.search(text):
            raise _NoKernel(text) from error
        raise Unreadable(_reading_failure(source, error, "model")) from error
    refuse_holes(source.name, notes)
    network.eval().requires_grad_(False)
    return network


def refuse_holes(name: str, notes: Mapping[str, Any]) -> None:
    """Raise ModelError where transformers would run on with random numbers for weights it did not find."""
    lacking = sorted(notes["missing_keys"]) + sorted(str(key) for key in notes["mismatched_keys"])
    if lacking:
        raise ModelError(
            f"The weights of {name} are incomplete or of another architecture ({len(lacking)} tensors do not fit, "
            f"such as {lacking[0]}); get the whole model."
        )


def _reading_options(source: Source) -> dict[str, Any]:
    """For ``from_pretrained``: a model's own code is never run, and an unreachable hub is not waited for."""
    is_hub_id = not Path(source.path).is_absolute()
    return {"trust_remote_code": False, "local_files_only": not is_hub_id or not _hub_answers()}


def _hub_answers() -> bool:
    """Whether the hub can be reached. Asked first, because its client retries for most of a minute where it cannot."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=5.0)
    except Exception:  # names unresolved, proxies, certificates, timeouts: the client's kinds of errors vary by version
        return False
    return True


def _reading_failure(source: Source, error: Exception, what: str) -> str:
    if Path(source.path).is_absolute():
        return f"The {what} of {source.name} in {source.path} cannot be read ({one_line(error)}); check the folder."
    if not _hub_answers():
        return (
            f"{source.name} is not in the local hub cache and the hub cannot be reached from here; "
            "check the network connection, or give a folder or a .gguf file instead."
        )
    return (
        f"The {what} of {source.name} cannot be loaded from the hub ({one_line(error)}); "
        "check the spelling, and log in with 'hf auth login' if the model is private or gated."
    )


def _out_of_memory(source: Source, device: str, dtype: str) -> str:
    return (
        f"There is not enough memory on {device} to load {source.name} in {dtype}; unload other models, choose a smaller "
        "model or a shorter dtype, or spread it over all cards with the device 'shard'."
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' bars and advice off the terminal while it reads a model."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
