"""Sessions are pure functions of ids, whatever their cache holds; prompts keep text text; rows are distributions."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
import transformers as hf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers.cache_utils import DynamicLayer

from safe_core import engine
from safe_core import events as ev
from safe_core.model import BLOCK, CONTINUES, GrowingLayer, Model, Rows, Session, summed
from safe_core.types import InputError, ModelError, Settings
from safe_core.vocabulary import Vocabulary
from tests.toys import TEXTS_A, TEXTS_B, tiny_llama, toy_vocabulary

quick = settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
WINDOW = 16
"""Of the layers with sliding or chunked attention; every driven session grows past it."""


# -- tiny networks of every kind ---------------------------------------------------------------------------------------------

BASE: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
BASE |= {"num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, "max_position_embeddings": 512}
DELTA = {"linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
DELTA |= {"layer_types": ["linear_attention", "full_attention"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
MAMBA = {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
MIXED = {"mamba_n_groups": 1, "mamba_d_state": 8, "mamba_chunk_size": 8}
SLIDING = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"], "head_dim": 8}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [1.7] * 4, "factor": 4.0}

CROPPED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", BASE),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512, "bos_token_id": 0, "eos_token_id": 1}),
    "gemma3": ("Gemma3TextConfig", BASE | SLIDING),
    "mistral": ("MistralConfig", BASE | {"sliding_window": WINDOW, "head_dim": 8}),
    "llama4 (chunks)": ("Llama4TextConfig", BASE | {"attention_chunk_size": WINDOW, "num_local_experts": 2, "head_dim": 8}),
    "gemma4 (shared keys)": (
        "Gemma4TextConfig",
        BASE
        | {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2}
        | {"sliding_window": WINDOW, "head_dim": 8, "global_head_dim": 8, "hidden_size_per_layer_input": 8},
    ),
    "phi3 (longrope)": (
        "Phi3Config",
        BASE | {"original_max_position_embeddings": 24, "rope_parameters": LONG | {"original_max_position_embeddings": 24}},
    ),
}
"""Layers whose past is keys and values: rolled back at any depth."""

STATEFUL: dict[str, tuple[str, dict[str, Any]]] = {
    "lfm2": ("Lfm2Config", BASE | {"layer_types": ["conv", "full_attention"]}),
    "lfm2_moe": ("Lfm2MoeConfig", BASE | EXPERTS | {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1}),
    "mamba": ("MambaConfig", MAMBA),
    "falcon_mamba": ("FalconMambaConfig", MAMBA),
    "mamba2": ("Mamba2Config", MAMBA | {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 8}),
    "falcon_h1": ("FalconH1Config", BASE | MIXED | {"head_dim": 8, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8}),
    "jamba": ("JambaConfig", BASE | {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2, "mamba_d_state": 8}),
    "granitemoehybrid": (
        "GraniteMoeHybridConfig",
        BASE
        | MIXED
        | {"layer_types": ["mamba", "attention"], "mamba_n_heads": 8, "mamba_d_head": 8}
        | {"num_local_experts": 2, "num_experts_per_tok": 1, "shared_intermediate_size": 32},
    ),
    "nemotron_h": (
        "NemotronHConfig",
        BASE
        | {"layers_block_type": ["mamba", "attention"], "mamba_num_heads": 8, "mamba_head_dim": 8}
        | {"n_groups": 1, "ssm_state_size": 8, "chunk_size": 8},
    ),
    "olmo_hybrid": ("OlmoHybridConfig", BASE | DELTA | {"linear_num_key_heads": 4}),
    "qwen3_5_text": ("Qwen3_5TextConfig", BASE | DELTA | {"linear_num_key_heads": 2, "head_dim": 8}),
    "qwen3_next": (
        "Qwen3NextConfig",
        BASE | DELTA | EXPERTS | {"linear_num_key_heads": 2, "head_dim": 8, "shared_expert_intermediate_size": 16},
    ),
}
"""Layers with a state: continued by one token, computed anew for anything else."""

RECOMPUTED: dict[str, tuple[str, dict[str, Any]]] = {
    "recurrent_gemma": (
        "RecurrentGemmaConfig",
        {k: v for k, v in BASE.items() if k != "max_position_embeddings"}
        | {"num_hidden_layers": 3, "lru_width": 32, "attention_window_size": WINDOW},
    ),
    "bamba": (
        "BambaConfig",
        BASE | MIXED | {"num_hidden_layers": 4, "attn_layer_indices": [1, 3], "mamba_n_heads": 8, "mamba_d_head": 8},
    ),
    "rwkv": ("RwkvConfig", {"hidden_size": 32, "num_hidden_layers": 2, "bos_token_id": 0, "eos_token_id": 1}),
    "minimax": (
        "MiniMaxConfig",
        BASE | {"num_local_experts": 2, "block_size": 8, "head_dim": 8, "layer_types": ["linear_attention", "full_attention"]},
    ),
}
"""Caches that give wrong rows, or refuse ours: never used."""


@cache
def tokenizer(texts: Sequence[str] = TEXTS_A, size: int = 300) -> Any:
    return tiny_llama(0, size, texts)[1]


@cache
def model(kind: str) -> Model:
    """A random network of this kind over 300 tokens, float32, its head scaled so that rows are no flat noise."""
    name, options = (CROPPED | STATEFUL | RECOMPUTED)[kind]
    size = len(tokenizer())
    if "hidden_size_per_layer_input" in options:
        options = options | {"vocab_size_per_layer_input": size}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        config = getattr(hf, name)(vocab_size=size, **options)
        network = hf.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        network.get_output_embeddings().weight.mul_(20.0)
    return Model(kind, network, tokenizer())


def same(cached: Rows, uncached: Rows) -> None:
    torch.testing.assert_close(cached.logits, uncached.logits, rtol=0.0, atol=1e-4)
    assert cached.argmax == uncached.argmax


steps = st.lists(st.tuples(st.sampled_from(["append", "replace", "cut", "ask"]), st.integers(0, 99)), min_size=4, max_size=10)


def drive(session: Session, plan: Sequence[tuple[str, int]]) -> None:
    """Grow, replace and shrink a response as the engine does, and compare every row with a session that keeps nothing."""
    fresh = Session(session.model, session.prompt_ids, use_cache=False)
    size, ids = session.vocabulary.size, list[int]()
    for kind, number in plan:
        rng = random.Random(number)
        if kind in ("cut", "replace"):
            ids = ids[: rng.randint(0, len(ids))]
        if kind in ("append", "replace"):
            ids += [rng.randrange(size) for _ in range(rng.choice([1, 1, 5, WINDOW]))]
        since = len(ids) - rng.choice([0, 0, min(len(ids), 4), len(ids)])
        rows = session.rows(ids, since)
        assert len(rows) == len(ids) - since + 1
        same(rows, fresh.rows(ids, since))


@pytest.mark.parametrize("kind", [*CROPPED, *STATEFUL, *RECOMPUTED])
def test_a_cache_never_changes_a_row(kind: str) -> None:
    @quick
    @given(plan=steps)
    def check(plan: list[tuple[str, int]]) -> None:
        drive(Session(model(kind), range(10, 22)), plan)

    check()


@pytest.mark.parametrize("kind", [*CROPPED, *STATEFUL])
def test_one_token_at_a_time_and_back(kind: str) -> None:
    """Past the sliding window by single tokens, then cut deeper than the window, down to an empty response."""
    session = Session(model(kind), range(10, 18))
    fresh = Session(model(kind), range(10, 18), use_cache=False)
    ids = [random.Random(5).randrange(session.vocabulary.size) for _ in range(2 * WINDOW + 3)]
    for length in [*range(2 * WINDOW), 3, 4, 2 * WINDOW + 3, 0, 1]:
        same(session.rows(ids[:length], length), fresh.rows(ids[:length], length))


def test_kinds_of_caches() -> None:
    assert all(model(kind).rolls_back and model(kind).continues for kind in CROPPED)
    assert all(model(kind).continues and not model(kind).rolls_back for kind in STATEFUL)
    assert not any(model(kind).continues for kind in RECOMPUTED)
    assert {model(kind).network.config.model_type for kind in STATEFUL} == CONTINUES


@pytest.mark.parametrize("kind", STATEFUL)
def test_a_state_takes_one_token_at_a_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tokens behind a state are silently wrong in many of these networks: that is never asked of them."""
    fed: list[tuple[int, bool]] = []
    used: set[int] = set()
    forward = Model.forward

    def watched(self: Model, ids: Sequence[int], cache: Any, keep: int) -> Any:
        fed.append((len(ids), id(cache) in used))
        used.add(id(cache))
        return forward(self, ids, cache, keep)

    monkeypatch.setattr(Model, "forward", watched)
    session = Session(model(kind), range(10, 18))
    kept = [session]  # caches stay alive, so that their ids stay theirs
    ids = list(range(30, 60))
    for length, since in [(0, 0), (1, 1), (2, 2), (7, 7), (8, 8), (8, 3), (9, 9), (4, 4), (5, 5)]:
        kept.append(session._cache)  # type: ignore[arg-type]
        session.rows(ids[:length], since)
    continued = [count for count, had_state in fed if had_state]
    assert continued
    assert set(continued) == {1}
    assert all(count >= 8 for count, had_state in fed if not had_state)


def test_appending_costs_one_pass_and_the_new_tokens_alone() -> None:
    session = Session(model("gemma3"), range(10, 22))
    session.rows([], 0)
    assert (session.passes, session.fed) == (1, 12)
    ids: list[int] = []
    for count in (1, 3, 1, 20, 1):
        ids += range(40, 40 + count)
        before = session.fed
        session.rows(ids, len(ids))
        assert session.fed - before == count
    assert session.passes == 6
    assert session.forward_ms > 0.0
    before = session.fed
    session.rows([*ids[:10], 77, 78], 11)  # two of the old end replaced
    assert session.fed - before == 2


def test_a_failed_pass_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(model("llama"), range(10, 22))
    ids = list(range(30, 40))
    expected = session.rows(ids, 0)
    forward = Model.forward

    def fails(self: Model, *args: Any) -> Any:
        forward(self, *args)
        raise ModelError("The device is gone.")

    with monkeypatch.context() as patched:
        patched.setattr(Model, "forward", fails)
        with pytest.raises(ModelError, match="gone"):
            session.rows([*ids, 50, 51], 10)
    same(session.rows(ids, 0), expected)


def test_a_context_that_overflows_is_told() -> None:
    network, tokens = tiny_llama(0)
    network.config.max_position_embeddings = 20
    short = Model("short", network, tokens)
    session = Session(short, range(10, 22))
    session.rows([5] * 8, 8)
    with pytest.raises(ModelError, match=r"short reached the end of its context of 20 tokens at response token 9\."):
        session.rows([5] * 9, 9)
    with pytest.raises(InputError, match=r"whose context is 20\. Shorten"):
        short.session("word " * 40)


def test_a_context_that_overflows_ends_the_trace() -> None:
    network, tokens = tiny_llama(0, sharpness=1.0)
    network.config.max_position_embeddings = 24
    *before, end = engine.run("single", [Session(Model("short", network, tokens), range(10, 22))], Settings(max_new_tokens=50))
    assert isinstance(end, ev.End)
    assert end.reason in ("error", "eos")
    if end.reason == "error":
        assert end.error is not None
        assert re.search(r"short .* response token 13", end.error)
        assert sum(isinstance(event, ev.Commit) for event in before) == 13


# -- layers ------------------------------------------------------------------------------------------------------------------


@settings(quick, max_examples=20)
@given(
    plan=st.lists(st.integers(-40, 40).filter(bool), min_size=1, max_size=12),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_a_growing_layer_is_a_dynamic_layer(plan: list[int], dtype: torch.dtype) -> None:
    """Positive numbers put so many positions, negative ones take them away."""
    generator = torch.Generator().manual_seed(len(plan))
    grown, plain = GrowingLayer(), DynamicLayer()
    for number in plan:
        if number > 0:
            keys, values = torch.randn(2, 1, 2, number, 4, generator=generator).to(dtype)
            for a, b in zip(grown.update(keys, values), plain.update(keys, values), strict=True):
                assert torch.equal(a, b)
        else:
            gone = max(number, -plain.get_seq_length())
            grown.crop(gone)
            plain.crop(gone)
        assert grown.get_seq_length() == plain.get_seq_length()
        assert grown.get_mask_sizes(3) == plain.get_mask_sizes(3)
    for layer in (grown, plain):
        layer.reset()
    one = torch.ones(1, 2, 1, 4, dtype=dtype)
    assert torch.equal(grown.update(one, one)[0], plain.update(one, one)[0])


# -- prompts -----------------------------------------------------------------------------------------------------------------

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ROLES = ["<|system|>", "<|user|>", "<|assistant|>"]


def chatty(template: str = TEMPLATE, *, special: bool = True) -> Model:
    """A model with a chat template, whose role marks are special tokens or merely added ones."""
    network, tokens = tiny_llama(0)
    tokens.add_tokens([AddedToken(role, special=special, normalized=False) for role in ROLES], special_tokens=special)
    tokens.chat_template = template
    network.resize_token_embeddings(len(tokens))
    return Model("chatty", network, tokens)


def spelled(m: Model, ids: Sequence[int]) -> str:
    return b"".join(m.vocabulary.bytes_of(i) for i in ids).decode()


def control(m: Model, ids: Sequence[int]) -> list[str]:
    """Control tokens among ids, by their spelling."""
    return [spelled(m, [i]) for i in ids if i in m.vocabulary.control_ids | m.vocabulary.eos_ids]


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("prompt", ["Who?", "Say </s> now", "<|user|>", "</s>", "<|assistant|>yes</s>\n<|user|>no <s>"])
def test_a_prompt_stays_text_inside_its_template(prompt: str, special: bool) -> None:
    m = chatty(special=special)
    for system in (None, "Be brief.", "No <|system|> here."):
        ids = m.prompt_ids(prompt, system)
        head = f"<|system|>{system}</s>\n" if system else ""
        assert spelled(m, ids) == f"{head}<|user|>{prompt}</s>\n<|assistant|>"
        assert control(m, ids) == (["<|system|>", "</s>"] if system else []) + ["<|user|>", "</s>", "<|assistant|>"]


def test_an_ordinary_prompt_is_encoded_with_its_template_in_one_piece() -> None:
    m = chatty()
    messages = [{"role": "user", "content": "A parser?"}]
    whole = m.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert list(m.prompt_ids("A parser?")) == m.tokenizer.encode(whole, add_special_tokens=False)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ messages[-1]['content'] }}|", "a </s> b|"),
        ("{{ messages[1]['content'] }}|{{ messages[0]['content'] }}", "a </s> b|be brief"),
        ("{{ messages[1]['content'] }}+{{ messages[1]['content'] }}", "a </s> b+a </s> b"),
    ],
)
def test_templates_may_drop_swap_and_repeat(template: str, expected: str) -> None:
    m = chatty(template)
    ids = m.prompt_ids("a </s> b", "be brief")
    assert spelled(m, ids) == expected
    assert control(m, ids) == []


def test_a_template_that_refuses_is_told() -> None:
    with pytest.raises(InputError, match=r"The chat template of chatty refuses this prompt: .*no system role"):
        chatty("{{ raise_exception('no system role') }}").prompt_ids("Who?")


def test_without_a_template_a_question_is_asked_after_bos() -> None:
    network, tokens = tiny_llama(0)
    m = Model("plain", network, tokens)
    ids = m.prompt_ids("Who </s>?", "Be brief.")
    assert ids[0] == tokens.bos_token_id
    assert spelled(m, ids[1:]) == "Be brief.\n\nQuestion: Who </s>?\nAnswer:"
    assert control(m, ids[1:]) == []
    assert spelled(m, m.prompt_ids("Who?")[1:]) == "Question: Who?\nAnswer:"
    tokens.bos_token = None
    assert spelled(m, m.prompt_ids("Who?")) == "Question: Who?\nAnswer:"


def test_a_plain_prompt_begins_as_its_tokenizer_begins_texts() -> None:
    """The dummy blank of SentencePiece belongs in front of a prompt, though not in front of a response."""
    pieces = ["<s>", "</s>", *sorted({*"Question:Who?\nAnswer.▁"}), "▁Q"]
    backend = Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, [("▁", "Q")], unk_token="<s>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    tokens = hf.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    m = Model("spm", tiny_llama(0)[0], tokens)
    assert spelled(m, m.prompt_ids("Who?")) == "<s> Question: Who?\nAnswer:"
    assert m.prompt_ids("Who?")[1] == pieces.index("▁Q")
    assert spelled(m, m.vocabulary.encode(b"Who").ids) == "Who"


@pytest.mark.parametrize("blank", ["", "  ", "\n\t"])
def test_a_blank_prompt_is_refused(blank: str) -> None:
    with pytest.raises(InputError, match="The prompt is empty"):
        model("llama").session(blank)


def test_end_of_sequence_comes_from_everywhere() -> None:
    network, tokens = tiny_llama(0)
    network.config.eos_token_id = [1, 7]
    network.generation_config.eos_token_id = 9
    assert Model("m", network, tokens).vocabulary.eos_ids == {1, 7, 9}


# -- rows --------------------------------------------------------------------------------------------------------------------


def rows_and_reference(seed: int, eos: int = 3, pad: int = 7) -> tuple[Rows, torch.Tensor, Any]:
    """Rows of random logits with a padded head, and the softmax they should have, end-of-sequence ids still apart."""
    vocabulary = toy_vocabulary(seed, eos=eos, duplicates=5)
    logits = 3.0 * torch.randn(4, vocabulary.size + pad, generator=torch.Generator().manual_seed(seed))
    logits[:, vocabulary.size :] += 50.0
    return Rows.of(logits, vocabulary), torch.softmax(logits[:, : vocabulary.size].double(), dim=-1), vocabulary


@settings(quick, max_examples=10)
@given(seed=st.integers(0, 99), eos=st.integers(0, 4))
def test_rows_are_the_softmax_with_one_end_of_sequence(seed: int, eos: int) -> None:
    rows, reference, vocabulary = rows_and_reference(seed, eos)
    assert len(rows) == 4
    assert rows.logits.shape[-1] == vocabulary.size
    for k in range(4):
        mass = math.fsum(float(reference[k, i]) for i in vocabulary.eos_ids)
        assert rows.eos_p(k) == pytest.approx(mass, rel=1e-5)
        assert all(rows.p(k, i) == rows.eos_p(k) for i in vocabulary.eos_ids)
        p = rows.probabilities(k)
        assert float(p.sum()) == pytest.approx(1.0, abs=1e-5)
        for i in set(range(vocabulary.size)) - vocabulary.eos_ids:
            assert rows.p(k, i) == pytest.approx(float(reference[k, i]), rel=1e-4)
            assert float(p[i]) == pytest.approx(float(reference[k, i]), rel=1e-4)
        for data, ids in list(vocabulary.symbols.items())[:40]:
            assert rows.symbol_p(k, (data, False)) == pytest.approx(math.fsum(float(reference[k, i]) for i in ids), rel=1e-4)
        assert rows.symbol_p(k, (b"no such token", False)) == 0.0
        assert rows.symbol_p(k, (b"", True)) == rows.eos_p(k)
        best = int(p.argmax())
        assert rows.best_id(k) == best
        assert rows.argmax[k] == (vocabulary.token(best, 0).bytes, best in vocabulary.eos_ids)


def test_the_end_is_the_argmax_when_its_set_is() -> None:
    """Two end-of-sequence ids that are each second best are together the first choice."""
    vocabulary = toy_vocabulary(0, eos=2)
    logits = torch.full((1, vocabulary.size), -20.0)
    logits[0, vocabulary.id_of(b"a")] = 1.0
    logits[0, sorted(vocabulary.eos_ids)] = 0.9
    rows = Rows.of(logits, vocabulary)
    assert rows.argmax == [(b"", True)]
    assert rows.best_id(0) == vocabulary.eos_id
    assert rows.eos_p(0) == pytest.approx(2 * math.exp(0.9) / (2 * math.exp(0.9) + math.e), rel=1e-5)
    assert torch.isneginf(rows.logits[0, max(vocabulary.eos_ids)])


def test_raw_rows_are_left_as_they_were() -> None:
    vocabulary = toy_vocabulary(0, eos=2)
    logits = torch.randn(2, vocabulary.size)
    before = logits.clone()
    Rows.of(logits, vocabulary).at_temperature(0.5)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5, 50 * BLOCK])
def test_sums_and_firsts_of_rows_of_any_size_and_precision(size: int, dtype: torch.dtype) -> None:
    """Whole values make many ties, in one block and over several: the first of them is the choice."""
    logits = (3.0 * torch.randn(5, size, generator=torch.Generator().manual_seed(size))).round().to(dtype)
    _, sums, firsts = summed(logits)
    exact = logits.double()
    assert firsts == [row.index(max(row)) for row in exact.tolist()]
    torch.testing.assert_close(torch.tensor(sums, dtype=torch.float64), exact.logsumexp(dim=-1), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        (torch.bfloat16, torch.bfloat16),
        (torch.float16, torch.float16),
        (torch.float32, torch.float32),
        (torch.float64, torch.float32),
    ],
)
def test_rows_keep_the_models_own_precision(dtype: torch.dtype, kept: torch.dtype) -> None:
    """But for double, of which nothing is gained."""
    vocabulary = toy_vocabulary(0)
    logits = torch.randn(2, vocabulary.size).to(dtype)
    rows = Rows.of(logits, vocabulary)
    assert rows.logits.dtype == kept
    assert rows.probabilities(0).dtype == torch.float32
    reference = torch.softmax(logits.double(), dim=-1)
    torch.testing.assert_close(rows.probabilities(1).double(), reference[1], rtol=1e-5, atol=1e-9)
    assert rows.p(1, 5) == pytest.approx(float(reference[1, 5]), rel=1e-6)


def test_sampling_follows_the_distribution() -> None:
    rows, _, vocabulary = rows_and_reference(4)
    count = 4000
    drawn = [rows.sample(1, (i + 0.5) / count) for i in range(count)]
    p = rows.probabilities(1)
    for i in range(vocabulary.size):
        assert abs(drawn.count(i) / count - float(p[i])) <= 1.5 / count
    assert drawn == sorted(drawn)
    assert all(float(p[rows.sample(1, u)]) > 0.0 for u in (0.0, 1.0 - 2**-53))


@pytest.mark.parametrize("temperature", [0.25, 0.7, 3.0])
def test_temperature_divides_logits(temperature: float) -> None:
    rows, _, _ = rows_and_reference(2)
    cooled = rows.at_temperature(temperature)
    torch.testing.assert_close(cooled.probabilities(0), torch.softmax(rows.logits[0] / temperature, dim=-1))
    assert cooled.argmax == rows.argmax
    assert rows.at_temperature(1.0).eos_p(2) == pytest.approx(rows.eos_p(2))


@pytest.mark.parametrize(("value", "bad"), [(math.nan, 2), (math.inf, 2), (-math.inf, None)])
def test_rows_without_a_distribution_are_found(value: float, bad: int | None) -> None:
    vocabulary = toy_vocabulary(0)
    logits = torch.zeros(3, vocabulary.size)
    logits[2, 5] = value
    assert Rows.of(logits, vocabulary).unusable == bad
    logits[1] = -math.inf
    assert Rows.of(logits, vocabulary).unusable == 1


# -- the engine over sessions ------------------------------------------------------------------------------------------------


@cache
def pair() -> tuple[Model, Model]:
    """Two tiny Llamas with byte-level BPEs trained on different texts."""
    first, second = tiny_llama(1, 320, TEXTS_A, sharpness=12.0), tiny_llama(2, 300, TEXTS_B, sharpness=12.0)
    return Model("a", *first), Model("b", *second)


def decided(events: Sequence[ev.Event]) -> list[Any]:
    """All decisions of a run, without times and counts."""
    out: list[Any] = []
    for event in events:
        if isinstance(event, ev.Commit):
            out.append([(t.id, t.source) for t in event.tokens])
        elif isinstance(event, ev.Draft):
            out.append([t.id for t in event.tokens])
        elif isinstance(event, ev.Retokenize):
            out.append([[(t.id, t.argmax_hex) for t in reading.tokens] for reading in event.readings])
        elif isinstance(event, ev.Verify):
            out.append([(c.verdict, c.oov_for, c.edge) for c in event.checks])
        elif isinstance(event, ev.Ensemble):
            out.append((event.chosen_hex, event.chosen_eos, event.replaced))
        elif isinstance(event, ev.End):
            out.append((event.reason, event.text))
    return out


@pytest.mark.parametrize("method", ["safe", "unite", "gac"])
@pytest.mark.parametrize("after", ["redraft", "continue"])
def test_runs_with_and_without_caches_decide_alike(method: Any, after: Any) -> None:
    for models_of_run in (pair(), pair()[::-1]):
        runs = []
        for use_cache in (True, False):
            sessions = [m.session("Why do the trees count herons?", use_cache=use_cache) for m in models_of_run]
            chosen = Settings(max_new_tokens=40, after_confirm=after, ensemble="gac" if after == "continue" else "unite")
            runs.append(decided(list(engine.run(method, sessions, chosen, "p"))))
        assert runs[0] == runs[1]
        assert sum(isinstance(part, tuple) for part in runs[0]) > 1  # fused at least once


@pytest.mark.parametrize("kind", ["gemma3", "lfm2", "mamba2"])
def test_runs_with_other_layers_decide_alike(kind: str) -> None:
    runs = []
    for use_cache in (True, False):
        drafter = pair()[1].session("Why?", use_cache=use_cache)
        sessions = [drafter, Session(model(kind), range(10, 22), use_cache=use_cache)]
        runs.append(decided(list(engine.run("safe", sessions, Settings(max_new_tokens=30), "p"))))
    assert runs[0] == runs[1]


def test_a_vocabulary_is_cut_to_the_head() -> None:
    network, tokens = tiny_llama(0)
    network.resize_token_embeddings(len(tokens) + 13)
    m = Model("padded", network, tokens)
    assert m.vocabulary.size == len(tokens)
    assert Session(m, [3, 4]).rows([5, 6], 0).logits.shape == (3, len(tokens))
    assert isinstance(m.vocabulary, Vocabulary)
