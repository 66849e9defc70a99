"""Speed and memory of the engine, as ratios measured in one process on one machine.

Every run is kept from ending early: end of sequence is made impossible for all models alike, so that each method commits
the same number of tokens. The yardstick is the drafter's own ``generate`` of transformers on the same prompt.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from safe_core import engine
from safe_core import events as ev
from safe_core.model import Model, Session
from safe_core.trace import PHASES, Statistics
from safe_core.types import Method, Settings

PROMPTS: Final = (
    "Name three cities in Bulgaria.",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
    "Explain step by step how to add 27 and 58.",
)
"""The first is the README's first example."""

VARIANTS: Final[dict[str, tuple[Method, Settings]]] = {
    "single": ("single", Settings()),
    "safe": ("safe", Settings()),
    "safe-n3": ("safe", Settings(n=3)),
    "safe-n8": ("safe", Settings(n=8)),
    "safe-no-lookup": ("safe", Settings(lookup=False)),
    "safe-continue": ("safe", Settings(after_confirm="continue")),
    "safe-auto": ("safe", Settings(n="auto")),
    "safe-continue-auto": ("safe", Settings(n="auto", after_confirm="continue")),
    "safe-gac": ("safe", Settings(ensemble="gac")),
    "unite": ("unite", Settings(sharpen="none")),
    "gac": ("gac", Settings(ensemble="gac", sharpen="none")),
}
DEFAULT_VARIANTS: Final = ("single", "safe-n3", "safe", "safe-n8", "safe-auto", "safe-continue-auto", "safe-gac", "unite", "gac")
"""``safe`` is n = 5."""


class Endless(Session):
    """A session in which end of sequence has no probability."""

    def __init__(self, model: Model, prompt_ids: Sequence[int]) -> None:
        super().__init__(model, prompt_ids)
        self._ends = torch.tensor(sorted(model.vocabulary.eos_ids), device=model.device)

    def _feed(self, all_ids: list[int], keep: int) -> Tensor:
        return super()._feed(all_ids, keep).index_fill(1, self._ends, -torch.inf)


Open = Callable[[Sequence[Model], str], list[Session]]
"""Opens a session per model on a prompt."""


def endless(models: Sequence[Model], prompt: str) -> list[Session]:
    return [Endless(m, m.prompt_ids(prompt)) for m in models]


def measure(
    models: Sequence[Model],
    prompts: Sequence[str],
    lengths: Sequence[int],
    variants: Sequence[str],
    open_sessions: Open = endless,
) -> dict[str, Any]:
    """Print and return, for every variant, rates over the drafter's own and the engine's share at each length."""
    generate(models[0], prompts[0], [8])  # first calls allocate and choose kernels
    table: list[dict[str, Any]] = []
    for prompt in prompts:
        own = generate(models[0], prompt, lengths)
        _say(f"prompt: {prompt}")
        _say(f"  {models[0].name} alone, transformers generate: " + _listed({n: f"{n / s:.1f} tokens/s" for n, s in own.items()}))
        for name in variants:
            for row in run(models, prompt, lengths, name, open_sessions):
                row["rate_over_own"] = own[row["tokens"]] / row["seconds"]
                table.append({"prompt": prompt, **row})
                _say(_line(row))
    means = {name: _mean([r["rate_over_own"] for r in table if r["variant"] == name]) for name in variants}
    _say("mean rate over the drafter's own: " + _listed({name: f"{mean:.2f}" for name, mean in means.items()}))
    about = {"models": [m.name for m in models], "dtype": str(models[0].network.dtype), "device": str(models[0].device)}
    return {"kind": "speed", **about, "rows": table, "mean": means}


def generate(model: Model, prompt: str, lengths: Sequence[int]) -> dict[int, float]:
    """Seconds after which transformers' greedy ``generate`` has made each of ``lengths`` tokens, in one go."""
    ids = torch.tensor([list(model.prompt_ids(prompt))], device=model.device)
    most, passed = max(lengths), dict[int, float]()

    def watch(given: Tensor, scores: Any, **_: Any) -> Tensor:
        made = given.shape[1] - ids.shape[1]
        if made in lengths:
            if model.device.type == "cuda":
                torch.cuda.synchronize(model.device)
            passed[made] = time.perf_counter() - begun
        return torch.zeros(given.shape[0], dtype=torch.bool, device=given.device)  # goes on, whatever it made

    begun = time.perf_counter()
    model.network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=most,
        min_new_tokens=most,
        do_sample=False,
        stopping_criteria=[watch],
    )
    return passed


def run(models: Sequence[Model], prompt: str, lengths: Sequence[int], name: str, open_sessions: Open) -> Iterator[dict[str, Any]]:
    """One run to the greatest length; what it had cost when it passed each of ``lengths``."""
    method, settings = VARIANTS[name]
    used = models[:1] if method == "single" else models
    sessions = open_sessions(used, prompt)
    settings = replace(settings, max_new_tokens=max(lengths))
    statistics, begun, due = Statistics(), time.perf_counter(), list(lengths)
    text = b""
    for event in engine.run(method, sessions, settings, prompt):
        statistics.add(event)
        if isinstance(event, ev.Commit):
            text += b"".join(bytes.fromhex(t.hex) for t in event.tokens)
        seconds = time.perf_counter() - begun
        while due and (statistics.tokens >= due[0] or isinstance(event, ev.End)):
            length = due.pop(0)
            numbers = statistics.numbers(seconds * 1e3, {})
            yield {
                "variant": name,
                "tokens": length,
                "seconds": seconds * length / max(statistics.tokens, 1),
                "engine_share": numbers["engine_share"],
                "ensemble_rate": numbers["ensemble_rate"],
                "discarded": numbers["discarded"],
                "ms": numbers["ms"],
                "fed_over_least": {
                    s.name: s.fed / (len(s.prompt_ids) + own)
                    for s, own in zip(sessions, _own(sessions, text, statistics.tokens), strict=True)
                },
            }


def _own(sessions: Sequence[Session], text: bytes, tokens: int) -> list[int]:
    """The fewest tokens of the response each model must be fed: as many as it is written in, but for the last."""
    return [max(tokens - 1, 1)] + [max(len(s.vocabulary.encode(text).tokens) - 1, 1) for s in sessions[1:]]


def memory(models: Sequence[Model], prompt: str, length: int) -> dict[str, Any]:
    """Peak resident memory above the weights while UniTE and SAFE run side by side, in MB."""
    weights = sum(p.numel() * p.element_size() for m in models for p in m.network.parameters())
    runs = [engine.run(method, endless(models, prompt), Settings(max_new_tokens=length), prompt) for method in ("unite", "safe")]
    kept: list[list[ev.Event]] = [[], []]  # the page keeps both traces
    while runs:
        for events, generator in zip(kept, list(runs), strict=False):
            event = next(generator, None)
            if event is None:
                runs.remove(generator)
            else:
                events.append(event)
    scale = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    result = {"tokens": length, "peak_mb": peak / 1e6, "weights_mb": weights / 1e6, "above_mb": (peak - weights) / 1e6}
    _say(_listed({name: f"{value:.0f}" for name, value in result.items()}))
    return result


def on_random_weights(shapes: Sequence[str], lengths: Sequence[int], rates: Sequence[float]) -> dict[str, Any]:
    """Speed of full-size random models where there is a GPU, of small ones elsewhere, at chosen rates of disagreement."""
    from transformers.utils import is_flash_attn_2_available

    from safe_core.benchmarks.random_weights import Scripted, build

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    _say(f"full-size models on {card}" if card else "no GPU here: small models of the same families, on the CPU")
    rows: list[dict[str, Any]] = []
    for attention in ["sdpa", "flash_attention_2"] if card and is_flash_attn_2_available() else ["sdpa"]:
        models = [build(name, seed, attention) for seed, name in enumerate(shapes)]
        for rate in rates:
            _say(f"attention {attention}, verifiers disagree at {rate:.0%} of the positions")

            def scripted(used: Sequence[Model], prompt: str, rate: float = rate) -> list[Session]:
                return [
                    Scripted(m, m.prompt_ids(prompt), disagrees=rate if seed else 0.0, seed=seed) for seed, m in enumerate(used)
                ]

            variants = ("safe", "safe-continue", "safe-gac", "unite", "gac")
            measured = measure(models, PROMPTS[:1], lengths, variants, scripted)
            rows += [{**row, "attention": attention, "disagree": rate} for row in measured["rows"]]
    return {
        "kind": "speed",
        "random_weights": True,
        "measured_on": card or "cpu, small configurations",
        "models": list(shapes),
        "rows": rows,
    }


def _line(row: dict[str, Any]) -> str:
    fed = _listed({name: f"{value:.2f}" for name, value in row["fed_over_least"].items()})
    whole = max(row["ms"]["total"], 1e-9)
    phases = _listed({phase: f"{row['ms'][phase] / whole:.0%}" for phase in (*PHASES, "other")})
    return (
        f"  {row['variant']:<20} {row['tokens']:>5} tokens  {row['rate_over_own']:.2f} of own rate  "
        f"engine share {row['engine_share']:.1%}  E/T {row['ensemble_rate']:.1%}  discarded {row['discarded']}  "
        f"phases: {phases}  fed over least: {fed}"
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _listed(values: dict[Any, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _say(line: str) -> None:
    print(line, flush=True)
