"""What transformers gets wrong in the tokenizer of a GGUF file, put right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from safe_core.types import ModelError

_GPT2_SPLIT: Final = frozenset(("gpt-2", "phi-2", "roberta-bpe", "mpt", "olmo", "jais", "trillion", "exaone4"))
"""Names under which GGUF files mean GPT-2's way of splitting text, which is what transformers gives them."""

_DIGIT_SPLIT: Final = frozenset(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"))
"""Names under which GGUF files mean the same after every digit was set apart."""

_USER_DEFINED: Final = 4
_UNUSED: Final = 5
"""Kinds of tokens in ``tokenizer.ggml.token_type``."""


def mended(spec: dict[str, Any], architecture: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """A ``tokenizer.json`` as transformers 5.24 makes it from a GGUF file, with what it gets wrong put right.

    ``facts`` are the file's ``tokenizer.ggml.*`` entries (``tokenizer_type``, ``pre_tokenizer_type``, ``tokens``,
    ``token_type``, ``scores``, ``merges``). Raises ModelError where the file asks for a way of splitting text
    that nothing here knows: guessing would give tokens the model was never trained on.
    """
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    kind, split = facts.get("tokenizer_type"), facts.get("pre_tokenizer_type")
    if kind == "gpt2" and split in _DIGIT_SPLIT:
        # transformers ignores this name and splits like GPT-2, which keeps the blank before a number with the digit
        # where the model learnt to see the blanks alone.
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        digits = {"type": "Digits", "individual_digits": True}
        spec["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [digits, byte_level]}
    elif kind == "gpt2" and split not in _GPT2_SPLIT and split not in GGUF_PRE_TOKENIZER_SPLITS:
        raise ModelError(f"its tokenizer splits text in the way {split!r}, which is not known here.")
    if kind == "gpt2" and split == "qwen2" and architecture.startswith("qwen"):
        spec["normalizer"] = {"type": "NFC"}  # part of Qwen's tokenizer, and nowhere in the file
    if kind == "llama" and architecture.startswith("gemma") and "merges" not in facts:
        _mend_gemma(spec, facts)
    _drop_unused(spec, facts)
    return spec


def _mend_gemma(spec: dict[str, Any], facts: Mapping[str, Any]) -> None:
    """Put the merges into the published order, and mark the two image tokens as the control tokens they are.

    A GGUF file of a Gemma model lists no merges. transformers finds them all, but ranks those that make a run of
    blanks, tabs or newlines in a wrong order, so that 32 blanks become 16 + 16 where the published tokenizer reads 31 + 1.
    Published is: by the score of the merged token, runs scoring 0 (the file says -1000), longer halves first.
    The mask and the unused tokens stay control tokens, as the file says: published flags differ, but no text is meant
    by them and no reading of text depends on the flag.
    """
    vocabulary, kinds, scores = spec["model"]["vocab"], facts["token_type"], facts["scores"]

    def rank(merge: Sequence[str]) -> tuple[float, int, int]:
        merged = vocabulary[merge[0] + merge[1]]
        return (0.0 if kinds[merged] == _USER_DEFINED else scores[merged], len(merge[0]), len(merge[1]))

    # Ties keep the order of the vocabulary, in which transformers lists them.
    spec["model"]["merges"].sort(key=rank, reverse=True)
    for token in spec["added_tokens"]:
        token["special"] |= token["content"] in ("<start_of_image>", "<end_of_image>")


def _drop_unused(spec: dict[str, Any], facts: Mapping[str, Any]) -> None:
    """Take out the names a file makes up to fill a padded output layer (``[PAD151936]``): no text holds them."""
    kinds = facts.get("token_type") or ()
    vocabulary = spec["model"]["vocab"]
    if isinstance(vocabulary, dict) and _UNUSED in kinds:
        spec["model"]["vocab"] = {token: index for token, index in vocabulary.items() if kinds[index] != _UNUSED}
