"""Full-size models with random weights: what the engine costs on a card, without downloading anything.

The networks compute in earnest; only their logits are then replaced by a seeded rule, so that text comes out and the
verifiers agree at a chosen rate. Vocabularies are trained in process and filled up to the size of the real head. Without a
GPU the same families are built small.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from safe_core.model import Model, Session
from safe_core.types import InputError

SHAPES: Final[dict[str, dict[str, Any]]] = {
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
    },
    "llama-3.1-8b": {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
    },
}
SMALL: Final = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}

STORY: Final = (
    "The keeper of the light counted the ships that passed below the cliff each evening, and wrote their names in a long book. "
    "When fog came in from the sea, she rang the bell by hand and listened for an answer. Some nights a horn replied from "
    "far away; on other nights there was only the water. In spring the supply boat brought oil, flour and letters from the "
    "mainland, and the captain stayed for tea and told stories of harbours he had seen. Nobody believed all of them. "
) * 4


def build(name: str, seed: int, attention: str) -> Model:
    """One model of that shape, on the GPU in bfloat16 where there is one, else small on the CPU in float32.

    Raises InputError for a shape that is not known.
    """
    if name not in SHAPES:
        raise InputError(f"There is no shape {name}; known are {', '.join(SHAPES)}.")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape = SHAPES[name] if device.type == "cuda" else SHAPES[name] | SMALL
    options = dict(shape)
    config = AutoConfig.for_model(options.pop("model_type"), **options, bos_token_id=None, eos_token_id=None)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(seed)
    with torch.device(device):
        network = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention)
    return Model(name, network, _tokenizer(shape["vocab_size"], seed))


def _tokenizer(size: int, seed: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of the story; each seed learns another number of merges, and unused strings fill the vocabulary."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330 + 90 * seed, initial_alphabet=alphabet, show_progress=False)
    trained.train_from_iterator([STORY], trainer)
    vocab = trained.get_vocab()
    merges = _merges(trained)
    vocab |= {f"filler{i}": i for i in range(len(vocab), size)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def _merges(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [(left, right) for left, right in json.loads(tokenizer.to_str())["model"]["merges"]]


class Scripted(Session):
    """A session whose forward passes are real and whose logits follow the story, by byte offset.

    The drafter always follows it. A verifier prefers another token at a share ``disagrees`` of the offsets, half of the time
    strongly enough to win the fusion.
    """

    def __init__(self, model: Model, prompt_ids: Sequence[int], *, disagrees: float, seed: int) -> None:
        super().__init__(model, prompt_ids)
        self._disagrees = disagrees
        self._seed = seed

    def _feed(self, all_ids: list[int], keep: int) -> Tensor:
        logits = super()._feed(all_ids, keep)
        response = all_ids[len(self.prompt_ids) :]
        offset = sum(len(self.vocabulary.bytes_of(i)) for i in response[: len(response) - keep + 1])
        out = logits.float() - 20.0  # what the story does not say keeps its order, far below what it says
        for k in range(keep):
            own, other, strength = self._say(offset)
            out[k, own], out[k, other] = (4.0, 3.2) if strength is None else (0.0, strength)
            if k + 1 < keep:
                offset += len(self.vocabulary.bytes_of(response[len(response) - keep + 1 + k]))
        return out

    def _say(self, offset: int) -> tuple[int, int, float | None]:
        """The story's token at a byte offset, its rival, and the rival's logit where it is preferred."""
        u = int.from_bytes(hashlib.blake2b(f"{self._seed} {offset}".encode(), digest_size=4).digest()) / 2**32
        own, rival = self._token(offset % len(STORY)), self._token((offset + 777) % len(STORY))
        if u >= self._disagrees or own == rival:
            return own, rival if rival != own else (own + 1) % 256, None
        return own, rival, 4.0 if u < self._disagrees / 2 else 1.0

    @lru_cache(maxsize=1 << 14)  # noqa: B019 (a session lives as long as its cache is wanted)
    def _token(self, at: int) -> int:
        return self.vocabulary.encode((STORY + STORY)[at : at + 40].encode()).ids[0]
