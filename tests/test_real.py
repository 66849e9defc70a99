"""The built-in pair: the paper's story in small, and the engine against the oracle on real weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safe_core import api, engine, trace
from safe_core import events as ev
from safe_core.model import Model
from safe_core.types import InputError, ModelError, Settings
from tests import oracle

pytestmark = pytest.mark.real

PROMPT = "What is the capital of Bulgaria?"


@pytest.fixture(scope="module")
def pair() -> list[Model]:
    return [api.load("smollm2-135m-instruct"), api.load("gemma-3-270m")]


@pytest.fixture(scope="module")
def exact() -> list[Model]:
    """In float32, where cached and uncached rows agree."""
    return [api.load("smollm2-135m-instruct", dtype="float32"), api.load("gemma-3-270m", dtype="float32")]


def bytes_of(events: list[ev.Event]) -> bytes:
    return b"".join(bytes.fromhex(t.hex) for e in events if isinstance(e, ev.Commit) for t in e.tokens)


def test_sofia_and_incorrect_are_read_as_the_paper_says(pair: list[Model]) -> None:
    drafter, verifier = (m.vocabulary for m in pair)
    assert [t.bytes for t in drafter.encode(b"Sofia").tokens] == [b"S", b"of", b"ia"]
    assert [t.bytes for t in verifier.encode(b"Sofia").tokens] == [b"Sofia"]
    assert [t.bytes for t in drafter.encode(b" Incorrect").tokens] == [b" Inc", b"orrect"]
    assert [t.bytes for t in verifier.encode(b" Incorrect").tokens] == [b" Incorrect"]


def test_safe_calls_the_inside_of_sofia_oov_like(pair: list[Model]) -> None:
    events = list(api.generate("safe", pair, "Write the word Sofia in quotes.", Settings(max_new_tokens=12)))
    assert bytes_of(events).startswith(b"Sofia")
    inside = len(b"S")
    checks = [c for e in events if isinstance(e, ev.Verify) for c in e.checks if c.start == inside]
    assert any(c.verdict == "oov" and c.oov_for == ["gemma-3-270m"] for c in checks)


def test_unite_asks_gemma_on_broken_prefixes_and_safe_never_does(pair: list[Model]) -> None:
    prompt = "Name three cities in Bulgaria."
    unite = list(api.generate("unite", pair, prompt, Settings(max_new_tokens=20, sharpen="none")))
    safe = list(api.generate("safe", pair, prompt, Settings(max_new_tokens=20)))
    assert trace.statistics(unite)["asked_oov_by_model"]["gemma-3-270m"] >= 1
    assert trace.statistics(unite)["derailed"] >= 1
    assert trace.statistics(safe)["asked_oov"] == 0
    assert trace.statistics(safe)["oov"] >= 1
    told = [b for e in unite if isinstance(e, ev.Verify) for c in e.checks for b in c.broken]
    assert told
    assert all(b.model == "gemma-3-270m" for b in told)


@pytest.mark.parametrize(
    ("swap", "ensemble", "sharpen"),
    [
        (False, "unite", "heur"),
        (True, "unite", "heur"),
        (False, "unite", "geom"),
        (True, "unite", "geom"),
        (False, "gac", "heur"),
    ],
)
def test_safe_is_the_cache_free_oracle_on_the_real_pair(exact: list[Model], swap: bool, ensemble: Any, sharpen: Any) -> None:
    models = exact[::-1] if swap else exact
    settings = Settings(n=3, max_new_tokens=8, ensemble=ensemble, sharpen=sharpen)
    produced = list(engine.run("safe", api.sessions(models, PROMPT), settings, PROMPT))
    first, *others = api.sessions(models, PROMPT, use_cache=False)
    oracle.compare(produced, oracle.safe(first, others, settings, PROMPT), tol=2e-4)


@pytest.mark.parametrize("method", ["safe", "unite"])
def test_cached_and_uncached_agree_token_for_token(exact: list[Model], method: str) -> None:
    settings = Settings(max_new_tokens=14)
    runs = [
        list(engine.run(method, api.sessions(exact, PROMPT, use_cache=cached), settings, PROMPT))  # type: ignore[arg-type]
        for cached in (True, False)
    ]
    assert bytes_of(runs[0]) == bytes_of(runs[1])


def test_the_drafter_alone_is_transformers_own_greedy_decoding(exact: list[Model]) -> None:
    import torch

    drafter = exact[0]
    events = list(api.generate("single", [drafter], PROMPT, Settings(max_new_tokens=16)))
    ids = torch.tensor([list(drafter.prompt_ids(PROMPT))])
    mask = torch.ones_like(ids)
    out = drafter.network.generate(ids, attention_mask=mask, max_new_tokens=16, do_sample=False)[0, ids.shape[1] :]
    assert [t.id for e in events if isinstance(e, ev.Commit) for t in e.tokens] == out.tolist()


def test_the_command_line_writes_text_and_trace(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    command = [sys.executable, "-m", "safe_core", "run", "--prompt", PROMPT, "--max-new-tokens", "12", "--trace", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    kept = trace.read(path)
    assert done.stdout.strip() == kept.data.decode().strip()
    assert "Sofia" in done.stdout
    assert kept.end is not None


def test_prompts_that_cannot_be_used_are_refused(pair: list[Model]) -> None:
    with pytest.raises(InputError, match="empty"):
        pair[0].session(" \n")
    with pytest.raises(InputError, match=r"smollm2-135m-instruct.*8192"):
        pair[0].session("word " * 9000)


def test_a_missing_device_is_one_sentence() -> None:
    with pytest.raises((ModelError, InputError), match="cuda:7"):
        api.load("smollm2-135m-instruct", device="cuda:7")
