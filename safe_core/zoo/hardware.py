"""Where and how a network runs: device, dtype and attention kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from safe_core.types import InputError

DTYPES: Final = ("float32", "bfloat16", "float16")
ATTENTIONS: Final = ("eager", "sdpa", "flash_attention_2")


def check(device: str, dtype: str, attention: str) -> None:
    """Raise InputError for what cannot be asked for on this machine, whichever the model."""
    _check_choice("dtype", dtype, DTYPES)
    _check_choice("attention kernel", attention, ATTENTIONS)
    _check_device(device)


def _check_choice(what: str, chosen: str, known: Sequence[str]) -> None:
    if chosen != "auto" and chosen not in known:
        raise InputError(f"There is no {what} {chosen!r}; choose 'auto', {', '.join(map(repr, known))}.")


def _check_device(device: str) -> None:
    if device in ("auto", "shard"):
        return
    present = _devices()
    try:
        known = _indexed(device) in present
    except RuntimeError:
        known = False
    if not known:
        raise InputError(f"There is no device {device!r} here; choose 'auto', 'shard', {', '.join(map(repr, present))}.")


def _devices() -> list[str]:
    """``cpu`` and every accelerator of this machine, such as ``cuda:0``."""
    import torch

    kind = torch.accelerator.current_accelerator(check_available=True)
    return ["cpu", *(f"{kind.type}:{index}" for index in range(torch.accelerator.device_count()))] if kind else ["cpu"]


def _indexed(device: str) -> str:
    """``cuda`` means ``cuda:0``. Raises RuntimeError for what torch does not take for a device."""
    import torch

    parsed = torch.device(device)
    return "cpu" if parsed.type == "cpu" else f"{parsed.type}:{parsed.index or 0}"


def choose_device(device: str, path: str, held: Sequence[tuple[str, str]]) -> str:
    """Where the model at ``path`` goes when ``device`` is asked for; ``held`` as in ``least_used``."""
    if device == "shard":
        return device
    if device != "auto":
        return _indexed(device)
    # Other accelerators run when asked for; only on CUDA and CPU is it known that caches roll back exactly.
    cards = [present for present in _devices() if present.startswith("cuda:")]
    return least_used(cards, held, path)


def least_used(cards: Sequence[str], held: Sequence[tuple[str, str]], path: str) -> str:
    """Where the model at ``path`` goes: to the card that holds it already, else to that with the fewest models, else to
    the CPU. ``held`` are (path, device) of what is loaded."""
    for held_path, device in held:
        if held_path == path and device in cards:
            return device
    devices = [device for _, device in held]
    return min(cards, key=devices.count, default="cpu")


def _capability(device: str) -> tuple[int, int] | None:
    """CUDA compute capability of ``device`` (the least of all cards when sharding), or ``None`` off CUDA."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.get_device_capability(device)
    if device == "shard" and torch.cuda.is_available():
        return min(torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count()))
    return None


def choose_dtype(dtype: str, device: str) -> str:
    """The name of the dtype on ``device``, a chosen one, when ``dtype`` is asked for."""
    import torch

    if dtype != "auto":
        return dtype
    capability = _capability(device)
    if capability is not None:
        return "bfloat16" if capability >= (8, 0) else "float16"
    if device in ("cpu", "shard"):
        abilities = torch.cpu.get_capabilities()
        if any(abilities.get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16")):  # the last is ARM's
            return "bfloat16"
    return "float32"


def choose_attention(attention: str, device: str, dtype: str) -> tuple[str, ...]:
    """The kernels to try, best first. Raises InputError where flash attention is asked for and cannot be."""
    if attention in ("eager", "sdpa"):
        return (attention,)
    hindrance = _flash_hindrance(device, dtype)
    if attention == "flash_attention_2":
        if hindrance is not None:
            raise InputError(f"The attention kernel 'flash_attention_2' {hindrance}; choose 'sdpa' or 'auto'.")
        return (attention,)
    return ("sdpa", "eager") if hindrance is not None else ("flash_attention_2", "sdpa", "eager")


def _flash_hindrance(device: str, dtype: str) -> str | None:
    from transformers.utils import is_flash_attn_2_available

    capability = _capability(device)
    if capability is None or capability < (8, 0):
        return "needs a CUDA card of compute capability 8.0 or more"
    if dtype not in ("float16", "bfloat16"):
        return f"computes in float16 and bfloat16 only, not in {dtype}"
    if not is_flash_attn_2_available():
        return "needs the package flash-attn, which is not installed"
    return None
