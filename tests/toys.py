"""Toy models that take milliseconds: longest-match vocabularies, seeded tables of probabilities, tiny random Llamas.

The engine accepts any object of this shape as a model session, and so does the oracle::

    class Session(Protocol):
        name: str
        vocabulary: Vocabulary
        prompt_ids: tuple[int, ...]
        context: int                 # most prompt and response tokens together
        passes: int                  # running totals: forward passes, ...
        fed: int                     # ... tokens fed to them, ...
        forward_ms: float            # ... and the time they took
        def rows(self, ids: Sequence[int], since: int) -> Rows: ...   # row k is P(. | prompt, ids[:since + k])

    class Vocabulary(Protocol):
        size: int
        eos_ids: frozenset[int]
        eos_id: int | None           # the lowest of them
        control_ids: frozenset[int]  # control tokens other than end of sequence
        def bytes_of(self, id: int) -> bytes: ...
        def token(self, id: int, start: int) -> Token: ...
        def id_of(self, data: bytes) -> int | None: ...
        def encode(self, data: bytes) -> Encoding: ...                # .tokens, .unaligned

The sessions here also offer ``raw_rows``, the same rows as a plain array before anyone has touched them, which is what
the oracle reads, so that it shares no code with the engine.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safe_core.types import Symbol, Token
from safe_core.vocabulary import Encoding

CORPUS = (
    "The keeper of the lighthouse counts ships at dusk, and every ship is written in the ledger. "
    "Incorrect entries are struck out; correct entries stay. Since the storm, the gallery glass is cracked, "
    "so the gale sings in it. Sofia's café serves crème brûlée — naïve, but good. 東京の灯台は白い。 "
    "Ships answer with lamps 🚢🔦, and the counting begins again: 12, 24, 36, 48. Nothing is lost in the ledger."
)
"""What the toy teachers speak and the toy vocabularies are cut from: words in common, accents, kanji, emoji."""


class ToyVocabulary:
    """A longest-match tokenizer over byte strings.

    ``entries[id]`` are the literal bytes of each id; a string listed twice has two ids, the lowest of them canonical.
    ``lower`` makes it normalise: it reads A-Z as a-z. Bytes it has no entry for are skipped. Both show as unaligned.
    """

    def __init__(
        self,
        entries: Sequence[bytes],
        *,
        eos_ids: Collection[int] = (),
        control_ids: Collection[int] = (),
        lower: bool = False,
    ) -> None:
        self.entries = tuple(entries)
        self.size = len(self.entries)
        self.eos_ids = frozenset(eos_ids)
        self.control_ids = frozenset(control_ids)
        self.lower = lower
        self._ids: dict[bytes, int] = {}
        for id, data in enumerate(self.entries):
            if id not in self.eos_ids and id not in self.control_ids:
                self._ids.setdefault(data, id)
        self.longest = max(len(data) for data in self._ids)

    @property
    def eos_id(self) -> int | None:
        """The lowest end-of-sequence id, which stands for the whole set."""
        return min(self.eos_ids, default=None)

    def bytes_of(self, id: int) -> bytes:
        """Literal bytes of any token."""
        return self.entries[id]

    def token(self, id: int, start: int) -> Token:
        """The token of an id at a byte offset; end of sequence has no bytes."""
        if id in self.eos_ids:
            return Token(id, b"", start, eos=True)
        return Token(id, self.entries[id], start, control=id in self.control_ids)

    def symbol(self, id: int) -> Symbol:
        """What an id stands for across models: its bytes, or end of sequence."""
        return (b"", True) if id in self.eos_ids else (self.entries[id], False)

    def id_of(self, data: bytes) -> int | None:
        """The lowest ordinary id holding exactly these bytes."""
        return self._ids.get(data)

    def ids_of(self, data: bytes) -> list[int]:
        """Every ordinary id holding exactly these bytes."""
        special = self.eos_ids | self.control_ids
        return [id for id, entry in enumerate(self.entries) if entry == data and id not in special]

    @cached_property
    def symbols(self) -> dict[bytes, list[int]]:
        """Every ordinary byte-string and all ids that hold it."""
        return {data: self.ids_of(data) for data in self._ids}

    def encode_again(self, before: Encoding, old: bytes, new: bytes) -> Encoding:
        """``encode(new)``; toys keep nothing of an earlier encoding."""
        return self.encode(new)

    def encode(self, data: bytes, start: int = 0) -> Encoding:
        """Longest match from left to right, at offsets counted from ``start``."""
        encoding = self._encode(data)
        tokens = tuple(Token(t.id, t.bytes, t.start + start) for t in encoding.tokens)
        return Encoding(tokens, tuple((a + start, b + start) for a, b in encoding.unaligned))

    def _encode(self, data: bytes) -> Encoding:
        text = data.lower() if self.lower else data
        tokens: list[Token] = []
        position = 0
        while position < len(text):
            length = self._longest_match(text, position)
            if length:
                piece = text[position : position + length]
                tokens.append(Token(self._ids[piece], piece, position))
            position += max(length, 1)
        returned = bytearray(data)
        covered = [False] * len(data)
        for token in tokens:
            returned[token.start : token.end] = token.bytes
            covered[token.start : token.end] = [True] * len(token.bytes)
        bad = [not covered[at] or returned[at] != data[at] for at in range(len(data))]
        return Encoding(tuple(tokens), _runs(bad))

    def _longest_match(self, text: bytes, position: int) -> int:
        for length in range(min(self.longest, len(text) - position), 0, -1):
            if text[position : position + length] in self._ids:
                return length
        return 0


def _runs(flags: Sequence[bool]) -> tuple[tuple[int, int], ...]:
    """Maximal ranges ``[start, end)`` of true flags."""
    runs: list[tuple[int, int]] = []
    for at, flag in enumerate(flags):
        if flag and runs and runs[-1][1] == at:
            runs[-1] = (runs[-1][0], at + 1)
        elif flag:
            runs.append((at, at + 1))
    return tuple(runs)


def toy_vocabulary(
    seed: int,
    pieces: int = 60,
    *,
    longest: int = 7,
    eos: int = 1,
    controls: int = 1,
    duplicates: int = 0,
    lower: bool = False,
    without: bytes = b"",
    corpus: str = CORPUS,
) -> ToyVocabulary:
    """All 256 single bytes but ``without``, ``pieces`` random substrings of the corpus, specials; ids in random order.

    Substrings are cut at bytes, so that some begin or end inside a character. ``duplicates`` pieces get a second id.
    """
    rng = np.random.default_rng([seed, 1])
    data = corpus.lower().encode() if lower else corpus.encode()
    chosen: dict[bytes, None] = {}
    while len(chosen) < pieces:
        length = int(rng.integers(2, longest + 1))
        start = int(rng.integers(0, len(data) - length))
        chosen[data[start : start + length]] = None
    ordinary = [bytes([value]) for value in range(256) if value not in without] + list(chosen)
    ordinary += list(chosen)[:duplicates]
    entries = [(piece, "") for piece in ordinary]
    entries += [(f"<|end{index}|>".encode(), "eos") for index in range(eos)]
    entries += [(f"<|control{index}|>".encode(), "control") for index in range(controls)]
    entries = [entries[index] for index in rng.permutation(len(entries))]
    return ToyVocabulary(
        [data for data, _ in entries],
        eos_ids=[id for id, (_, kind) in enumerate(entries) if kind == "eos"],
        control_ids=[id for id, (_, kind) in enumerate(entries) if kind == "control"],
        lower=lower,
    )


@dataclass(frozen=True)
class PlainRows:
    """Rows as they are, for where the engine's own class is not at hand."""

    logits: Any
    vocabulary: Any


def rows_of(logits: NDArray[np.float32], vocabulary: Any) -> Any:
    """The engine's ``Rows`` of float32 logits [K, V], or plain ones where the engine cannot be imported."""
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(logits, dtype=np.float32))
    try:
        from safe_core.model import Rows
    except ImportError:
        return PlainRows(tensor, vocabulary)
    return Rows.of(tensor, vocabulary)


class _Counted:
    """Name, vocabulary, prompt and running totals that every toy session has."""

    def __init__(self, name: str, vocabulary: Any, prompt_ids: Sequence[int] = (0,), context: int = 1_000_000) -> None:
        self.name = name
        self.vocabulary = vocabulary
        self.prompt_ids = tuple(prompt_ids)
        self.context = context
        self.rolls_back = True
        self.passes = 0
        self.fed = 0
        self.forward_ms = 0.0

    def rows(self, ids: Sequence[int], since: int) -> Any:
        """Row k is P(. | prompt, ids[:since + k]), k = 0 .. len(ids) - since."""
        if not 0 <= since <= len(ids):
            raise ValueError(f"since must lie between 0 and {len(ids)}, not {since}.")
        self.passes += 1
        self.fed += max(1, len(ids) - since)
        return rows_of(self.raw_rows(ids, since), self.vocabulary)

    def raw_rows(self, ids: Sequence[int], since: int) -> NDArray[np.float32]:
        """The same rows as an array [K, V], padded columns and single end-of-sequence ids included."""
        ids = [int(id) for id in ids]
        return np.stack([self._row(ids[:end]) for end in range(since, len(ids) + 1)])

    def _row(self, ids: list[int]) -> NDArray[np.float32]:
        raise NotImplementedError


def _uniform(*parts: object) -> float:
    """A number in [0, 1) that is a pure function of its arguments."""
    return _hash(*parts) / 2**64


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


class Teacher:
    """One text that toy models have in common: what comes next after any text, byte by byte.

    The next byte is drawn, by a hash, from those that follow the last two bytes in the corpus; ``None`` is the end.
    On average one position in ``end_every`` is an end, from byte 8 on; 0 never ends.
    """

    def __init__(self, seed: int, corpus: str = CORPUS, end_every: int = 60) -> None:
        self.seed = seed
        self.end_every = end_every
        data = corpus.encode()
        self._followers: dict[bytes, list[int]] = {}
        for at in range(2, len(data)):
            self._followers.setdefault(data[at - 2 : at], []).append(data[at])
        self._starts = [data[at + 1] for at in range(len(data) - 1) if data[at : at + 1] == b" "]

    def next(self, text: bytes) -> int | None:
        """The byte after ``text``, or None for the end."""
        context, position = text[-2:], len(text)
        if self.end_every and position >= 8 and _hash(self.seed, "end", context, position) % self.end_every == 0:
            return None
        choices = self._followers.get(context, self._starts)
        return choices[_hash(self.seed, context, position) % len(choices)]

    def continuation(self, text: bytes, length: int) -> tuple[bytes, bool]:
        """Up to ``length`` bytes after ``text``, and whether the text ends at once."""
        grown = bytearray()
        while len(grown) < length:
            byte = self.next(text + bytes(grown))
            if byte is None:
                return bytes(grown), not grown
            grown.append(byte)
        return bytes(grown), False


class ToySession(_Counted):
    """Logits that are a pure function of prompt and ids: noise of the last tokens, plus what teachers would say next.

    Tokens that begin the shared teacher's continuation gain up to ``peak`` x a strength that lies around ``agreement``;
    those that begin this model's own teacher's continuation gain what is left. So models with different vocabularies
    often agree in bytes, and sometimes do not. ``memory`` tokens decide the noise. ``pad`` columns of high logits stand
    behind the vocabulary, as padded heads have.
    """

    def __init__(
        self,
        name: str,
        vocabulary: ToyVocabulary,
        teacher: Teacher,
        *,
        seed: int,
        peak: float = 12.0,
        agreement: float = 0.7,
        noise: float = 0.8,
        memory: int = 3,
        pad: int = 0,
        prompt_ids: Sequence[int] = (0,),
        context: int = 1_000_000,
    ) -> None:
        super().__init__(name, vocabulary, prompt_ids, context)
        self.teacher = teacher
        self.own = Teacher(seed + 7919, end_every=teacher.end_every)
        self.seed = seed
        self.peak = peak
        self.agreement = agreement
        self.noise = noise
        self.memory = memory
        self.pad = pad

    def _row(self, ids: list[int]) -> NDArray[np.float32]:
        spelled = [self.vocabulary.bytes_of(id) for id in ids]
        text = b"".join(spelled)
        key = (self.seed, self.prompt_ids, spelled[-self.memory :], len(text))
        row: NDArray[np.float64] = np.random.default_rng(_hash(*key)).normal(0.0, self.noise, self.vocabulary.size + self.pad)
        row[self.vocabulary.size :] += 3 * self.peak
        shift = 2.0 * _uniform("strength", *key) - 1.0
        strength = self.agreement + (1.0 - self.agreement) * shift
        self._favour(row, self.teacher, text, self.peak * strength)
        self._favour(row, self.own, text, self.peak * (1.0 - strength))
        return row.astype(np.float32)

    def _favour(self, row: NDArray[np.float64], teacher: Teacher, text: bytes, gain: float) -> None:
        """Raise the tokens that begin the teacher's continuation, the longest most; or the end-of-sequence ids."""
        continuation, ended = teacher.continuation(text, self.vocabulary.longest)
        if ended:
            for id in self.vocabulary.eos_ids:
                row[id] += gain
            return
        lengths = [n for n in range(1, len(continuation) + 1) if self.vocabulary.id_of(continuation[:n]) is not None]
        for length in lengths:
            for id in self.vocabulary.ids_of(continuation[:length]):
                row[id] += gain * (0.6 + 0.4 * length / lengths[-1])


def toy_sessions(
    seed: int,
    count: int = 2,
    *,
    vocabularies: Sequence[ToyVocabulary] | None = None,
    end_every: int = 60,
    pieces: int = 60,
    pad: int = 0,
    **options: Any,
) -> list[ToySession]:
    """``count`` models over one teacher, each with a vocabulary of its own: one, two or no end-of-sequence ids.

    ``options`` go to every ToySession (peak, agreement, noise, memory, prompt_ids).
    """
    teacher = Teacher(seed, end_every=end_every)
    if vocabularies is None:
        vocabularies = [
            toy_vocabulary(seed * 31 + index, pieces + 20 * index, eos=1 + (seed + index) % 2, controls=index % 2 + 1)
            for index in range(count)
        ]
    return [
        ToySession(f"toy-{index}", vocabulary, teacher, seed=seed * 101 + index, pad=pad * index, **options)
        for index, vocabulary in enumerate(vocabularies)
    ]


Said = bytes | Symbol
"""How scripts name a token: its bytes, or EOS."""


class ScriptedSession(_Counted):
    """A model whose every distribution is written out.

    ``script`` maps the response's tokens, joined by ``|`` (``b"In|correct"``), to probabilities by bytes or EOS (shared
    evenly among an end-of-sequence set). What is not named shares the rest evenly. Prefixes without an entry take
    ``otherwise``.
    """

    def __init__(
        self,
        name: str,
        vocabulary: ToyVocabulary,
        script: Mapping[bytes, Mapping[Said, float]],
        otherwise: Mapping[Said, float] | None = None,
        *,
        pad: int = 0,
    ) -> None:
        super().__init__(name, vocabulary)
        self.script = dict(script)
        self.otherwise = dict(otherwise or {})
        self.pad = pad

    def _row(self, ids: list[int]) -> NDArray[np.float32]:
        said = self.script.get(b"|".join(self.vocabulary.bytes_of(id) for id in ids), self.otherwise)
        left = np.ones(self.vocabulary.size, dtype=bool)
        p = np.zeros(self.vocabulary.size)
        for what, mass in said.items():
            ids_of = sorted(self.vocabulary.eos_ids) if isinstance(what, tuple) else self.vocabulary.ids_of(what)
            if not ids_of:
                raise ValueError(f"{self.name} has no token {what!r}: leave it out of the script.")
            p[ids_of] = mass / len(ids_of)
            left[ids_of] = False
        rest = max(1.0 - math.fsum(said.values()), 1e-6)
        p[left] = rest / max(int(left.sum()), 1)
        row = np.concatenate([np.log(np.maximum(p, 1e-12)), np.full(self.pad, 50.0)])
        return row.astype(np.float32)


TEXTS_A = (
    "A parser reads tokens and builds trees. Trees are walked, rewritten and printed again.",
    "Incorrect programs are rejected because the checker cannot find a type for them.",
    "The gallbladder stores bile; the stomach stores food; the compiler stores symbols.",
    "Numbers such as 3, 14, 159 and 2653 appear in tables, and tables appear in books.",
)
TEXTS_B = (
    "Walking along the river we counted herons, ducks and one very patient angler.",
    "Because the path was wet, correct shoes mattered more than a correct map.",
    "Café tables stood in rows — naïve tourists sat there in the rain: 東京, Köln, Łódź.",
    "The river bends, the road follows; at 7 o'clock the bells ring 7 times.",
)


def tiny_llama(seed: int, vocab_size: int = 320, texts: Sequence[str] = TEXTS_A, *, sharpness: float = 25.0) -> tuple[Any, Any]:
    """A byte-level BPE trained on ``texts`` and a random two-layer Llama over it, float32, in evaluation mode.

    ``sharpness`` scales the head: at 1 every distribution of a random network is almost flat.
    Returns (network, PreTrainedTokenizerFast).
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        network.lm_head.weight.mul_(sharpness)
    return network, tokenizer


class FreshSession(_Counted):
    """A causal network asked from the beginning each time: no cache of any kind. Slow, and right by construction."""

    def __init__(self, name: str, network: Any, vocabulary: Any, prompt_ids: Sequence[int]) -> None:
        if not prompt_ids:
            raise ValueError("A prompt needs at least one id, or there is no first row.")
        super().__init__(name, vocabulary, prompt_ids)
        self.network = network

    def raw_rows(self, ids: Sequence[int], since: int) -> NDArray[np.float32]:
        """Logits [K, V] of one whole forward pass."""
        import torch

        with torch.inference_mode():
            fed = torch.tensor([[*self.prompt_ids, *(int(id) for id in ids)]])
            logits = self.network(input_ids=fed, use_cache=False).logits[0]
        kept: NDArray[np.float32] = logits[len(self.prompt_ids) - 1 + since :].float().numpy(force=True)
        return kept
