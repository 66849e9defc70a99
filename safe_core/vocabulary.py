"""Token ids <-> raw bytes: the only place that knows how vocabularies spell bytes (``Ġ``, ``▁``, ``<0xNN>``, ``##``).

Everything else in the engine compares bytes. A vocabulary encodes *the continuation of a text*: no dummy-prefix blank, no
BOS, no stripped leading blank, and text that merely looks like a control token stays text.

Not handled: tokenizers without a fast (``tokenizers`` library) form; they are refused with a sentence.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from safe_core.types import EOS, ModelError, Symbol, Token

CONTROL_SPELLING = re.compile(r"<[|｜].*[|｜]>")
LOOK_AHEAD = 16
"""Bytes of unchanged text kept behind a fixed boundary; pre-tokenizers look at most a few characters ahead."""
LOCAL = {
    *("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer", "Nmt", "Precompiled", "Replace", "ByteLevel"),
    *("Metaspace", "Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "BertPreTokenizer", "CharDelimiterSplit"),
}
"""Normalizers and pre-tokenizers that treat a place in a text by a few characters around it."""
BEFORE_A_BLANK = [
    *("a", "The", "x1b", ". Then", "'s", "don't", "e\u0301tre b", "   ok", "\n\nq", "東京k", "1,000m", "_a", "fooBar", "<a"),
    *("HTTPServer", "🙂b", ".b", "1 a", "ſk", "\u00a0z", "\tI", "- A", "(x"),
]
FROM_A_BLANK_ON = [" a", " The", " don't x", " aé", " x1", " A.B", " e\u0301", " a\n", " a  b", " i東", " s", " I'M", " b b "]
"""Probes for pre-tokenizers: texts that end in a letter, and texts that begin with a blank and a letter."""
BYTE_SPELLING = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_level_alphabet() -> dict[str, int]:
    """The printable characters byte-level BPE writes bytes with: printable Latin-1 as itself, the rest from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(b): b for b in printable}
    others = (b for b in range(256) if b not in set(printable))
    return alphabet | {chr(0x100 + i): b for i, b in enumerate(others)}


BYTE_LEVEL = _byte_level_alphabet()


@dataclass(frozen=True)
class Encoding:
    """One model's tokens of some bytes, in order.

    ``unaligned`` are byte ranges ``[start, end)`` whose tokens do not give the bytes back (the tokenizer normalises them, or
    has no token for them); tokens inside such a range start at its start or wherever the tokenizer could tell.
    """

    tokens: tuple[Token, ...]
    unaligned: tuple[tuple[int, int], ...] = ()

    @cached_property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]


class Vocabulary:
    """One model's vocabulary as bytes.

    ``size``         ids that count, ``0..size-1``; longer logit rows are cut to it
    ``eos_ids``      ids that mean end of sequence, one symbol together
    ``control_ids``  control tokens that are not end of sequence, and ids without any text: never candidates
    """

    def __init__(self, tokenizer: Tokenizer, *, name: str, eos_ids: Iterable[int] = (), head_size: int | None = None) -> None:
        """``tokenizer`` is only read. ``head_size`` is the length of the model's logit rows, where known."""
        self.name = name
        spelling = _Spelling.of(tokenizer)
        strings = tokenizer.get_vocab(with_added_tokens=True)
        size = max(strings.values()) + 1
        self.size = size if head_size is None else min(size, head_size)
        added = tokenizer.get_added_tokens_decoder()
        base = tokenizer.get_vocab(with_added_tokens=False)
        self.eos_ids = frozenset(i for i in eos_ids if 0 <= i < self.size)
        control = {i for i, a in added.items() if a.special or CONTROL_SPELLING.fullmatch(a.content)}
        by_id: list[bytes] = [b""] * self.size
        self._unlisted: list[bytes] = []  # what merges may still lead to: past the head, or a second string of an id
        for string, i in strings.items():
            literal = i in control or (i in added and string not in base)
            data = string.encode() if literal else spelling.bytes_of(string)
            if i < self.size and not by_id[i]:
                by_id[i] = data
            else:
                self._unlisted.append(data)
        self._bytes = by_id
        self._never = control | self.eos_ids
        self.control_ids = frozenset(i for i in range(self.size) if i in control or not by_id[i]) - self.eos_ids
        self._by_bytes = self._index(strings)
        self._single = [self._by_bytes.get(bytes([b])) for b in range(256)]
        unspoken = {added[i].content for i in self._never if i in added}
        self._seam = _seam_tokenizer(tokenizer, {i: a for i, a in added.items() if i not in self._never}, unspoken)
        self._remap = self._seam_ids(strings)

    def bytes_of(self, id: int) -> bytes:
        """Raw bytes of a token; the literal spelling of a control token; ``b""`` for an id without text."""
        return self._bytes[id]

    def id_of(self, data: bytes) -> int | None:
        """The id that holds exactly these bytes and is no control token; ``None`` where there is none."""
        return self._by_bytes.get(data)

    def token(self, id: int, start: int) -> Token:
        """Token ``id`` placed at byte offset ``start``; end of sequence is turned into its role."""
        if id in self.eos_ids:
            return Token(id, b"", start, eos=True)
        return Token(id, self._bytes[id], start, control=id in self.control_ids)

    def symbol(self, id: int) -> Symbol:
        """What token ``id`` stands for when models are compared: its bytes, or end of sequence."""
        return EOS if id in self.eos_ids else (self._bytes[id], False)

    @property
    def eos_id(self) -> int | None:
        """The id that stands for the whole end-of-sequence set: the lowest."""
        return min(self.eos_ids, default=None)

    @cached_property
    def symbols(self) -> dict[bytes, list[int]]:
        """Every byte-string of the vocabulary and all ids that spell it; control tokens and EOS left out."""
        out: dict[bytes, list[int]] = {}
        skip = self.control_ids | self.eos_ids
        for i, data in enumerate(self._bytes):
            if i not in skip:
                out.setdefault(data, []).append(i)
        return out

    def encode(self, data: bytes, start: int = 0) -> Encoding:
        """This model's own tokens of ``data``, the continuation of a text, at offsets counted from ``start``.

        Bytes that are not UTF-8 become single-byte tokens where the vocabulary has them, else unaligned ranges.
        """
        tokens: list[Token] = []
        unaligned: list[tuple[int, int]] = []
        for piece, text in _utf8_pieces(data):
            offset = tokens[-1].end if tokens else start
            if unaligned and unaligned[-1][1] > offset:
                offset = unaligned[-1][1]
            if text is None:
                self._encode_stray(piece, offset, tokens, unaligned)
            else:
                self._encode_text(text, piece, offset, tokens, unaligned)
        return Encoding(tuple(tokens), _joined(unaligned))

    def encode_again(self, before: Encoding, old: bytes, new: bytes) -> Encoding:
        """``encode(new)``, given ``before = encode(old)``: the tokens up to a boundary that cannot move are kept.

        Such a boundary lies between an ASCII letter and a blank that a letter follows, where no string of this vocabulary
        holds that letter and a blank side by side. Why both sides are then encoded independently of each other:

        * Normal forms, case folding and character maps act on a few characters at once, and none joins across such a place.
        * A pre-tokenizer either cuts there, whatever surrounds it, so that each side is pieces of its own; or it leaves one
          piece (SentencePiece and Gemma), and then the model must be a plain BPE: each merge makes a string of the
          vocabulary, so none crosses, and those on either side happen in the order of their ranks alone. A Viterbi search
          (Unigram) has a node there too, but ties between paths fall by rounding, which depends on what came before; and
          a model that looks whole pieces up first, or marks words at their ends, must see whole pieces.
        * Both sides hold ``LOOK_AHEAD`` bytes of unchanged text more than any of these look at.

        What is asked of the tokenizer's parts is checked once (``_cuts``), with the kinds of parts and on probes. Without
        such a place, or for any other tokenizer, the whole text is encoded.
        """
        for at in _blanks_before(new, common_prefix(old, new) - LOOK_AHEAD) if self._cuts else ():
            inside = bisect_left(before.unaligned, at, key=_start_of) - 1
            if new[at - 1] in self._cuts and not (inside >= 0 and before.unaligned[inside][1] > at):
                kept = bisect_left(before.tokens, at, key=lambda token: token.start)
                rest = self.encode(new[at:], at)
                return Encoding(before.tokens[:kept] + rest.tokens, _joined([*before.unaligned[: inside + 1], *rest.unaligned]))
        return self.encode(new)

    # -- inside ------------------------------------------------------------------------------------------------------------

    @cached_property
    def _cuts(self) -> frozenset[int]:
        """ASCII letters behind which a blank can be a fixed boundary; empty for tokenizers that have none."""
        added = list(self._seam.get_added_tokens_decoder().values())
        if any(a.lstrip or a.rstrip or a.single_word for a in added) or not _parts_at_blanks(self._seam):
            return frozenset()
        normal = self._seam.normalizer
        folded = [normal.normalize_str(a.content).replace("▁", " ").encode() for a in added if a.normalized and normal]
        strings = [*self._bytes, *self._unlisted, *folded]
        inside = {data[i - 1] for data in strings for i in _find_all(data, b" ") if i}
        letters = {chr(b): normal.normalize_str(chr(b)) if normal else chr(b) for b in range(128) if chr(b).isalpha()}
        return frozenset(ord(a) for a, b in letters.items() if inside.isdisjoint([ord(a), *b.encode()]))

    def _index(self, strings: dict[str, int]) -> dict[bytes, int]:
        """bytes -> canonical id: the lowest, but a written token before a ``<0xNN>`` spelling of the same byte."""
        skip = self.control_ids | self.eos_ids
        spelled = {i for s, i in strings.items() if BYTE_SPELLING.fullmatch(s)}
        out: dict[bytes, int] = {}
        for i in sorted(range(self.size), key=lambda i: (i in spelled, i)):
            if i not in skip:
                out.setdefault(self._bytes[i], i)
        return out

    def _seam_ids(self, strings: dict[str, int]) -> dict[int, int]:
        """Ids the seam tokenizer gave to added tokens -> the model's own ids (it numbers them after its own vocabulary)."""
        return {i: strings[a.content] for i, a in self._seam.get_added_tokens_decoder().items() if i != strings[a.content]}

    def _encode_stray(self, data: bytes, start: int, tokens: list[Token], unaligned: list[tuple[int, int]]) -> None:
        for i, byte in enumerate(data):
            id = self._single[byte]
            if id is None:
                unaligned.append((start + i, start + i + 1))
            else:
                tokens.append(Token(id, bytes([byte]), start + i))

    def _encode_text(self, text: str, data: bytes, start: int, tokens: list[Token], unaligned: list[tuple[int, int]]) -> None:
        """Tokens of valid text. The common case is exact; otherwise offsets tell which part was normalised."""
        remap, by_id = self._remap, self._bytes
        encoding = self._seam.encode_batch_fast([text], add_special_tokens=False)[0]
        ids = [remap.get(i, i) for i in encoding.ids] if remap else encoding.ids
        if max(ids, default=0) < self.size and self._spell(ids) == data:
            for i in ids:
                tokens.append(Token(i, by_id[i], start))
                start += len(by_id[i])
            return
        self._align(text, data, start, tokens, unaligned)

    def _spell(self, ids: Sequence[int]) -> bytes | None:
        """The text of these ids; none where a control token, or the one for unknown text, is among them."""
        return b"".join([self._bytes[i] for i in ids]) if self._never.isdisjoint(ids) else None

    def _align(self, text: str, data: bytes, start: int, tokens: list[Token], unaligned: list[tuple[int, int]]) -> None:
        """Place the tokens of text that comes back altered: group those that share characters, keep the groups that are exact."""
        encoding = self._seam.encode(text, add_special_tokens=False)
        at = [0]  # byte offset of every character
        for character in text:
            at.append(at[-1] + len(character.encode()))
        done = 0
        for first, last, ids in _groups(encoding.ids, encoding.offsets, len(text)):
            ids = [i for i in (self._remap.get(i, i) for i in ids) if i < self.size]
            spelled = [self._bytes[i] for i in ids]
            if at[first] > done:  # characters that no token stands for
                unaligned.append((start + done, start + at[first]))
            exact = self._spell(ids) == data[at[first] : at[last]]
            if not exact:
                unaligned.append((start + at[first], start + at[last]))
            offset = start + at[first]
            for i, piece in zip(ids, spelled, strict=True):
                tokens.append(Token(i, piece if exact else data[at[first] : at[last]], offset))
                offset += len(piece) if exact else 0
            done = at[last]
        if done < len(data):
            unaligned.append((start + done, start + len(data)))


@dataclass(frozen=True, slots=True)
class _Spelling:
    """How a vocabulary writes bytes as strings."""

    byte_level: bool
    blank: str | None
    byte_fallback: bool
    continuation: str | None

    @staticmethod
    def of(tokenizer: Tokenizer) -> _Spelling:
        parts = [*_parts(tokenizer.decoder), *_parts(tokenizer.pre_tokenizer), *_parts(tokenizer.normalizer)]
        kinds = {part["type"] for part in parts}
        fallback = "ByteFallback" in kinds or bool(getattr(tokenizer.model, "byte_fallback", False))
        blank = next((p["replacement"] for p in parts if p["type"] == "Metaspace"), None)
        if blank is None and any(p["type"] == "Replace" and "▁" in (p["content"], p["pattern"].get("String")) for p in parts):
            blank = "▁"
        prefix = next((p["prefix"] for p in parts if p["type"] == "WordPiece"), None)
        return _Spelling("ByteLevel" in kinds, blank, fallback, prefix)

    def bytes_of(self, string: str) -> bytes:
        if self.byte_level:
            try:
                return bytes([BYTE_LEVEL[character] for character in string])
            except KeyError:  # an added token, written literally
                return string.encode()
        if self.byte_fallback and (spelled := BYTE_SPELLING.fullmatch(string)):
            return bytes([int(spelled[1], 16)])
        if self.continuation:
            string = string.removeprefix(self.continuation)
        return (string.replace(self.blank, " ") if self.blank else string).encode()


def _parts(component: Any) -> Iterator[dict[str, Any]]:
    """The JSON of a tokenizer's normalizer, pre-tokenizer or decoder, sequences unrolled."""
    if component is None:
        return
    state = json.loads(component.__getstate__())
    nested = ("normalizers", "pretokenizers", "decoders")
    stack = [state]
    while stack:
        part = stack.pop(0)
        inner = next((part[key] for key in nested if key in part), None)
        if inner is None:
            yield part
        else:
            stack = [*inner, *stack]


def _seam_tokenizer(tokenizer: Tokenizer, added: dict[int, AddedToken], unspoken: set[str]) -> Tokenizer:
    """The same tokenizer for text that continues other text: sharing its model, without BOS, dummy prefix, or control tokens.

    ``unspoken`` are the spellings of control tokens.
    """
    seam = Tokenizer(_seam_model(tokenizer.model, unspoken))
    normal = [_normalizer(p) for p in _parts(tokenizer.normalizer) if p["type"] not in ("Prepend", "Strip")]
    before = [_pre_tokenizer(p) for p in _parts(tokenizer.pre_tokenizer)]
    if normal:
        seam.normalizer = normalizers.Sequence(normal)
    if before:
        seam.pre_tokenizer = pre_tokenizers.Sequence(before)
    if tokenizer.decoder is None and not before:
        seam.decoder = decoders.Fuse()
    seam.add_tokens([added[i] for i in sorted(added)])
    return seam


def _seam_model(model: Any, unspoken: set[str]) -> Any:
    """The model itself; a Unigram, which would find control tokens in a text, with these pieces spelled as no text is."""
    if not isinstance(model, models.Unigram):
        return model
    state = json.loads(model.__getstate__())
    pieces = [(f"\U0010fffe{i}" if piece in unspoken else piece, score) for i, (piece, score) in enumerate(state["vocab"])]
    return models.Unigram(pieces, state["unk_id"], state["byte_fallback"])


def _parts_at_blanks(seam: Tokenizer) -> bool:
    """Whether what stands before a blank between letters, and what follows from it on, are encoded without each other.

    Given that no string of the vocabulary reaches across.
    """
    model = seam.model
    parts = [*_parts(seam.normalizer), *_parts(seam.pre_tokenizer)]
    if getattr(model, "dropout", None) or any(part["type"] not in LOCAL for part in parts):
        return False
    is_bpe = isinstance(model, models.BPE)
    merges_alone = is_bpe and not (model.ignore_merges or model.continuing_subword_prefix or model.end_of_word_suffix)
    for before, after in product(BEFORE_A_BLANK, FROM_A_BLANK_ON):
        left, right, whole = _pieces(seam, before), _pieces(seam, after), _pieces(seam, before + after)
        joined = [*left[:-1], "".join([*left[-1:], *right[:1]]), *right[1:]]
        if whole != left + right and not (merges_alone and whole == joined):
            return False
    return True


def _pieces(seam: Tokenizer, text: str) -> list[str]:
    """What the tokenizer hands to its model, piece by piece."""
    text = seam.normalizer.normalize_str(text) if seam.normalizer else text
    return [piece for piece, _ in seam.pre_tokenizer.pre_tokenize_str(text)] if seam.pre_tokenizer else [text]


def _normalizer(part: dict[str, Any]) -> Any:
    return _restored(normalizers.Normalizer, normalizers.Sequence, "normalizers", part)


def _pre_tokenizer(part: dict[str, Any]) -> Any:
    if part["type"] == "Metaspace":
        part = part | {"prepend_scheme": "never"}
    if part["type"] == "ByteLevel":
        part = part | {"add_prefix_space": False}
    return _restored(pre_tokenizers.PreTokenizer, pre_tokenizers.Sequence, "pretokenizers", part)


def _restored(kind: Any, sequence: Any, key: str, part: dict[str, Any]) -> Any:
    """A tokenizer component from its JSON: the library restores state only into an object, and a sequence takes any."""
    component = sequence([])
    component.__setstate__(json.dumps({"type": "Sequence", key: [part]}).encode())
    return component


def _utf8_pieces(data: bytes) -> Iterator[tuple[bytes, str | None]]:
    """``data`` cut into maximal runs of valid UTF-8 (with their text) and stray bytes (with ``None``)."""
    while data:
        try:
            yield data, data.decode()
            return
        except UnicodeDecodeError as error:
            if error.start:
                yield data[: error.start], data[: error.start].decode()
            yield data[error.start : error.end], None
            data = data[error.end :]


def _groups(ids: list[int], offsets: list[tuple[int, int]], length: int) -> Iterator[tuple[int, int, list[int]]]:
    """Tokens grouped by the characters they stand for: ``(first, last, ids)`` with ``first`` rising, groups disjoint."""
    group: list[int] = []
    first = last = 0
    for id, (a, b) in zip(ids, offsets, strict=True):
        if group and a >= last:
            yield first, last, group
            group = []
        if not group:
            first, last = max(a, last), max(a, last)
        group.append(id)
        last = min(max(last, b), length)
    if group:
        yield first, last, group


def _joined(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Touching and empty ranges made one."""
    out: list[tuple[int, int]] = []
    for a, b in sorted(r for r in ranges if r[1] > r[0]):
        if out and a <= out[-1][1]:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        else:
            out.append((a, b))
    return tuple(out)


def _start_of(span: tuple[int, int]) -> int:
    return span[0]


def _blanks_before(data: bytes, end: int) -> Iterator[int]:
    """Offsets of single blanks between ASCII letters, nearest to ``end`` first."""
    while end > 0 and (end := data.rfind(b" ", 0, end)) > 0:
        if data[end - 1 : end].isalpha() and data[end + 1 : end + 2].isalpha():
            yield end


def _find_all(data: bytes, part: bytes) -> Iterator[int]:
    at = data.find(part)
    while at >= 0:
        yield at
        at = data.find(part, at + 1)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix; few comparisons of slices, because the ends differ or nothing does."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def incomplete_tail(data: bytes) -> int:
    """Bytes at the end that begin a UTF-8 character without finishing it (0 to 3)."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            try:
                data[-back:].decode()
            except UnicodeDecodeError as error:
                return back if error.reason == "unexpected end of data" else 0
            return 0
        if byte < 0x80:
            return 0
    return 0


def fast_tokenizer(tokenizer: Any, name: str) -> Tokenizer:
    """The ``tokenizers`` object inside a transformers tokenizer. Raises ModelError where there is none."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, Tokenizer):
        raise ModelError(f"The tokenizer of {name} has no fast form (tokenizer.json), which byte-exact reading needs.")
    return backend
