"""Vocabularies of every make, trained here: bytes come back, text stays text, and what is kept of an old encoding is right."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from safe_core.types import ModelError
from safe_core.vocabulary import Encoding, Vocabulary, common_prefix, fast_tokenizer, incomplete_tail
from tests.toys import CORPUS, TEXTS_A, TEXTS_B

quick = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)

TEXTS = [*TEXTS_A, *TEXTS_B, CORPUS]
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_end|>"]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CASES = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)


# -- tokenizers of every make ------------------------------------------------------------------------------------------------


def byte_level(normalizer: object = None, *, regex: str | None = None, digits: bool = False) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    split = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    if regex:
        split.append(pre_tokenizers.Split(Regex(regex), "isolated"))
    split.append(pre_tokenizers.ByteLevel(add_prefix_space=regex is None, use_regex=regex is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def sentencepiece(*, prefix: str, fallback: bool = True, pieces: int = 400) -> Tokenizer:
    """A BPE over text with ``▁`` for blanks; the dummy blank comes from the normalizer, as in Llama-2, or from Metaspace."""
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    marked = normalizers.Replace(" ", "▁")
    trained.normalizer = marked
    if prefix == "metaspace":
        trained.pre_tokenizer = pre_tokenizers.Metaspace()
        trained.normalizer = None  # type: ignore[assignment]
    else:
        trained.pre_tokenizer = pre_tokenizers.Split(Regex("▁?[^▁]+|▁"), "isolated")  # in training alone: words are not joined
    spelled = [f"<0x{byte:02X}>" for byte in range(256)] if fallback else []
    trainer = trainers.BpeTrainer(vocab_size=pieces + 256, special_tokens=SPECIAL[:3] + spelled, show_progress=False)
    trained.train_from_iterator(TEXTS, trainer)
    state = trained.model
    tokenizer = Tokenizer(_as_bpe(state, fallback))
    if prefix == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
    else:
        before = [normalizers.Prepend("▁")] if prefix == "prepend" else []
        tokenizer.normalizer = normalizers.Sequence([*before, marked])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(SPECIAL[:3])
    return tokenizer


def _as_bpe(model: models.BPE, fallback: bool) -> models.BPE:
    state = json.loads(model.__getstate__())
    merges = [tuple(merge) for merge in state["merges"]]
    return models.BPE(state["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=fallback)


def unigram(*, fallback: bool, metaspace: bool = True) -> Tokenizer:
    """A Unigram whose control pieces are pieces like all others, as in files converted from SentencePiece."""
    spoken = [word for text in TEXTS for word in text.split()]
    words = {"▁" + word for word in spoken} | {word[:length] for word in spoken for length in (2, 3)}
    letters = {character for text in TEXTS for character in text if character != " "} | {"▁"}
    rng = random.Random(0)
    scored = [(piece, -rng.uniform(4, 12)) for piece in [*sorted(words), *sorted(letters - words)]]
    spelled = [(f"<0x{byte:02X}>", -20.0) for byte in range(256)] if fallback else []
    tokenizer = Tokenizer(models.Unigram([(piece, 0.0) for piece in SPECIAL[:3]] + spelled + scored, 0, fallback))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(SPECIAL[:3])
    return tokenizer


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False))
    return tokenizer


def superwords() -> Tokenizer:
    """Merges across blanks, after some letters, and added tokens that hold blanks."""
    vocabulary = {c: i for i, c in enumerate(["<unk>", *(chr(c) for c in range(32, 127)), "▁"])}
    merges = [("▁", "t"), ("▁t", "o"), ("o", "▁to"), ("e", "▁"), ("a", "a"), ("l", "l")]
    for a, b in merges:
        vocabulary[a + b] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken("new york", normalized=True), AddedToken(" or", normalized=False)])
    return tokenizer


def looked_up_first() -> Tokenizer:
    """One piece for the whole text, looked up before any merge: both halves of a text may be tokens, and never merged."""
    vocabulary = {c: i for i, c in enumerate(["<unk>", *(chr(c) for c in range(97, 123)), "▁", "ab", "hello", "▁wait"])}
    model = models.BPE(vocabulary, [("a", "b")], unk_token="<unk>", ignore_merges=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Replace("▁", " ")
    return tokenizer


def padded_pieces() -> Tokenizer:
    """Pieces of fixed length, which depend on everything before them."""
    tokenizer = byte_level()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.FixedLength(5), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return tokenizer


def with_added(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_tokens([AddedToken("<tool>"), AddedToken("  "), AddedToken("walk ", rstrip=False)])
    tokenizer.add_special_tokens(["<|pad|>"])
    tokenizer.add_tokens(["<|fim▁hole|>", "parser"])
    return tokenizer


MAKES: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": byte_level,
    "byte-level, single digits": lambda: byte_level(digits=True),
    "byte-level, GPT-2 regex": lambda: byte_level(regex=GPT2),
    "byte-level, case regex": lambda: byte_level(regex=CASES),
    "byte-level, NFC": lambda: byte_level(normalizers.NFC()),
    "byte-level, NFKC lower": lambda: byte_level(normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])),
    "byte-level, added": lambda: with_added(byte_level()),
    "SentencePiece, Prepend": lambda: sentencepiece(prefix="prepend"),
    "SentencePiece, no prefix": lambda: sentencepiece(prefix=""),
    "SentencePiece, Metaspace": lambda: sentencepiece(prefix="metaspace"),
    "SentencePiece, no byte fallback": lambda: sentencepiece(prefix="prepend", fallback=False),
    "SentencePiece, added": lambda: with_added(sentencepiece(prefix="prepend")),
    "Unigram": lambda: unigram(fallback=False),
    "Unigram, byte fallback": lambda: unigram(fallback=True),
    "Unigram, one piece": lambda: unigram(fallback=True, metaspace=False),
    "WordPiece": wordpiece,
    "superwords": superwords,
    "looked up first": looked_up_first,
    "fixed length": padded_pieces,
}
FULL_ONLY = {"Unigram, one piece", "looked up first", "fixed length"}
"""Encoded whole each time, because what comes before decides."""


@cache
def tokenizer_of(make: str) -> Tokenizer:
    return MAKES[make]()  # once: training breaks ties as it likes


@cache
def made(make: str) -> Vocabulary:
    tokenizer = tokenizer_of(make)
    eos = tokenizer.token_to_id("</s>")
    return Vocabulary(tokenizer, name=make, eos_ids=[] if eos is None else [eos])


every_make = pytest.mark.parametrize("make", MAKES)

WORDS = ["The", "the", "Trees", "trees", "river", "tables", "12", "7", "2653", "a", "in", "I'm", "don't", "new", "york", "or"]
WORDS += ["to", "東京", "Köln", "café", "naïve", "cafe\u0301", "ﬁne", "Ⅷ", "ΣΟΦΟΣ", "🚢", "👩\u200d👩\u200d👧", "\u202eabc"]
WORDS += ["</s>", "<|im_end|>", "<unk>", "<s>", "<0x41>", "<tool>", "▁", "##", "##ing", "<|", "hello", "wait", "aaa", "aaaa"]
words = st.sampled_from(WORDS)
blanks = st.sampled_from([" ", " ", " ", "  ", "\n", "\r\n", "\n\n", "\t", "", "\u00a0", ", ", ". ", "\0"])
ordinary = st.lists(st.tuples(words, blanks), max_size=14).map(lambda pairs: "".join(a + b for a, b in pairs))
unicode = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
texts = st.one_of(ordinary, unicode, st.tuples(blanks, ordinary, unicode, ordinary).map("".join))
encoded = texts.map(str.encode)
raw = st.one_of(encoded, st.binary(max_size=24), st.tuples(encoded, st.binary(max_size=4)).map(b"".join))


def checked(vocabulary: Vocabulary, data: bytes) -> Encoding:
    """What holds of every encoding of ``data``."""
    encoding = vocabulary.encode(data)
    starts = [token.start for token in encoding.tokens]
    assert starts == sorted(starts)
    ranges = encoding.unaligned
    assert all(0 <= a < b <= len(data) for a, b in ranges)
    assert all(b < a for (_, b), (a, _) in pairwise(ranges))
    covered = [False] * len(data)
    for a, b in ranges:
        covered[a:b] = [True] * (b - a)
    for token in encoding.tokens:
        assert 0 <= token.id < vocabulary.size
        assert not token.eos
        assert not token.control
        if any(a <= token.start < b for a, b in ranges):
            assert any(a <= token.start and token.end <= b for a, b in ranges)
            continue
        assert token.bytes == vocabulary.bytes_of(token.id) == data[token.start : token.end]
        assert token.id not in vocabulary.control_ids | vocabulary.eos_ids
        assert not any(covered[token.start : token.end])
        covered[token.start : token.end] = [True] * len(token.bytes)
    assert all(covered)
    return encoding


# -- properties of every vocabulary ------------------------------------------------------------------------------------------


@every_make
def test_bytes_come_back_or_are_reported(make: str) -> None:
    vocabulary = made(make)

    @quick
    @given(data=raw)
    @example(b"")
    @example(b"\xff\xfe Trees \xe6\x9d")
    @example("e\u0301 ▁ \r\n\0</s>".encode())
    def check(data: bytes) -> None:
        checked(vocabulary, data)

    check()


@every_make
def test_offsets_count_from_the_start(make: str) -> None:
    vocabulary = made(make)

    @settings(quick, max_examples=10)
    @given(data=raw, start=st.integers(0, 1000))
    def check(data: bytes, start: int) -> None:
        here, there = vocabulary.encode(data), vocabulary.encode(data, start)
        assert here.ids == there.ids
        assert [(t.start + start, t.bytes) for t in here.tokens] == [(t.start, t.bytes) for t in there.tokens]
        assert [(a + start, b + start) for a, b in here.unaligned] == list(there.unaligned)

    check()


@every_make
def test_the_seam_has_no_blank_of_its_own(make: str) -> None:
    vocabulary = made(make)
    for text in (b"x", b"trees", b"The river", b"in", b",", b"\nq"):
        assert not any(t.bytes.startswith(b" ") for t in checked(vocabulary, text).tokens[:1])
    if make != "WordPiece":
        for text in (b" trees", b"  in", b" a", b"   "):
            encoding = checked(vocabulary, text)
            assert encoding.unaligned or encoding.tokens[0].bytes.startswith(b" ")
            if not make.startswith("Unigram"):  # whose normalizer joins blanks
                assert not encoding.unaligned


@every_make
def test_exact_tokenizers_give_everything_back(make: str) -> None:
    if make in ("byte-level, NFC", "byte-level, NFKC lower", "WordPiece", "looked up first"):
        return
    vocabulary = made(make)
    for text in TEXTS_A:
        assert checked(vocabulary, text.encode()).unaligned == ()
    if make.startswith("byte-level"):
        assert checked(vocabulary, bytes(range(256)) + "▁ </s> \U0010ffff".encode()).unaligned == ()


@every_make
def test_control_spellings_stay_text(make: str) -> None:
    vocabulary = made(make)
    for text in ("</s>", "a</s>", "the </s> trees", "<|im_end|>", "<unk><s>", "x <|pad|> y", "<|fim▁hole|>"):
        ids = set(checked(vocabulary, text.encode()).ids)
        exact = not vocabulary.encode(text.encode()).unaligned
        assert not exact or not ids & (vocabulary.control_ids | vocabulary.eos_ids)
        if make.startswith("byte-level") or (make.startswith("SentencePiece") and "no byte" not in make and "▁" not in text):
            assert exact


@every_make
def test_an_encoding_taken_further_is_the_encoding(make: str) -> None:
    vocabulary = made(make)
    assert bool(vocabulary._cuts) == (make not in FULL_ONLY)

    @quick
    @given(
        first=st.one_of(ordinary, texts).map(str.encode),
        changes=st.lists(st.tuples(st.integers(0, 60), st.one_of(raw, ordinary.map(str.encode))), min_size=1, max_size=6),
        filler=st.sampled_from([b"", b"The trees are walked in the rain, and ", b"aaa aaaa wait hello wait new york or to "]),
    )
    def check(first: bytes, changes: list[tuple[int, bytes]], filler: bytes) -> None:
        text = filler * 3 + first
        encoding = vocabulary.encode(text)
        for cut, more in changes:
            new = text[: len(text) - cut] + more if cut < len(text) else more
            again = vocabulary.encode_again(encoding, text, new)
            assert again == vocabulary.encode(new)
            text, encoding = new, again

    check()


def test_only_the_end_is_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = made("byte-level")
    text = " ".join(TEXTS_A * 20).encode()
    before = vocabulary.encode(text)
    asked: list[int] = []
    encode = Vocabulary.encode

    def watched(self: Vocabulary, data: bytes, start: int = 0) -> Encoding:
        asked.append(len(data))
        return encode(self, data, start)

    monkeypatch.setattr(Vocabulary, "encode", watched)
    again = vocabulary.encode_again(before, text, text + b" and more")
    assert max(asked) < 60
    assert again.tokens[: len(before.tokens) - 20] == before.tokens[:-20]


def test_a_tie_of_a_viterbi_search_depends_on_what_came_before() -> None:
    """Why Unigram without pieces is encoded whole: equal paths are told apart by the rounding of what stands before them."""
    pieces = [("<unk>", 0.0), ("▁", -3.3), ("b", -2.7), ("a", -1.1), ("aa", -1.7), ("x", -0.7)]
    tokenizer = Tokenizer(models.Unigram(pieces, 0, False))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Replace("▁", " ")
    vocabulary = Vocabulary(tokenizer, name="ties")
    ways = {tuple(vocabulary.encode(b"x" * n + b" aaa").ids[-2:]) for n in range(60)}
    assert len(ways) > 1
    text = b"x" * 7 + b" aaa" * 30
    encoding = vocabulary.encode(text)
    for end in range(len(text)):
        assert vocabulary.encode_again(encoding, text, text[:end]) == vocabulary.encode(text[:end])


# -- single facts ------------------------------------------------------------------------------------------------------------


def test_words_that_merge_across_blanks_are_no_boundary() -> None:
    vocabulary = made("superwords")
    assert ord("o") not in vocabulary._cuts  # "o▁to"
    assert ord("e") not in vocabulary._cuts  # "e▁"
    assert ord("w") not in vocabulary._cuts  # the added token "new york"
    assert ord("x") in vocabulary._cuts
    assert b"o to" in [t.bytes for t in vocabulary.encode(b"go to go").tokens]


def test_letters_are_folded_before_they_are_trusted() -> None:
    ids = {piece: i for i, piece in enumerate(["a", "b", "▁", "a▁", "a▁b", "<unk>"])}
    tokenizer = Tokenizer(models.BPE(ids, [("a", "▁"), ("a▁", "b")], unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Replace("▁", " ")
    assert not {ord("a"), ord("A")} & Vocabulary(tokenizer, name="folded")._cuts
    tokenizer = Tokenizer(models.BPE({"<unk>": 0}, [], unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_tokens([AddedToken("New York", normalized=True)])
    assert not {ord("w"), ord("W")} & Vocabulary(tokenizer, name="added")._cuts


def test_an_unknown_split_across_blanks_is_noticed() -> None:
    tokenizer = byte_level()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\w+ \w+"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.model.ignore_merges = True
    assert not Vocabulary(tokenizer, name="pairs of words")._cuts


def test_added_tokens_that_swallow_blanks_leave_no_boundary() -> None:
    tokenizer = byte_level()
    tokenizer.add_tokens([AddedToken("<tool>", lstrip=True)])
    assert not Vocabulary(tokenizer, name="lstrip")._cuts


def test_added_tokens_are_text_unless_they_control() -> None:
    vocabulary = made("byte-level, added")
    for text in (b"<tool>", b"parser"):
        id = vocabulary.id_of(text)
        assert id is not None
        assert vocabulary.encode(b"a" + text).ids[-1] == id
    pad = fast_tokenizer(tokenizer_of("byte-level, added"), "x").token_to_id("<|pad|>")
    assert pad in vocabulary.control_ids
    assert vocabulary.bytes_of(pad) == b"<|pad|>"
    assert vocabulary.token(pad, 4).control
    assert vocabulary.id_of(b"<|pad|>") is None
    hole = fast_tokenizer(tokenizer_of("byte-level, added"), "x").token_to_id("<|fim▁hole|>")
    assert hole in vocabulary.control_ids  # never marked special, and still no text
    assert vocabulary.bytes_of(hole).decode() == "<|fim▁hole|>"


def test_written_bytes_come_before_spelled_ones() -> None:
    tokenizer = Tokenizer(models.BPE({"<unk>": 0, "<0x41>": 1, "A": 2, "<0x42>": 3}, [], unk_token="<unk>", byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<unk>"])
    vocabulary = Vocabulary(tokenizer, name="twice")
    assert vocabulary.id_of(b"A") == 2
    assert vocabulary.id_of(b"B") == 3
    assert vocabulary.symbols[b"A"] == [1, 2]
    assert checked(vocabulary, b"AB").ids == [2, 3]
    assert checked(vocabulary, b"AC").unaligned == ((1, 2),)


def test_holes_among_ids_stand_for_nothing() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 7}, [("a", "b")]))
    tokenizer.add_tokens(["XX"])  # takes id 3
    tokenizer.add_special_tokens(["<end>"])  # takes id 4
    tokenizer.add_tokens(["YY"])  # takes id 5
    vocabulary = Vocabulary(tokenizer, name="holes", eos_ids=[4, 99])
    assert vocabulary.size == 8
    assert vocabulary.eos_ids == {4}
    assert {2, 6} <= vocabulary.control_ids
    assert vocabulary.bytes_of(2) == b""
    assert checked(vocabulary, b"abXXYYa").ids == [7, 3, 5, 0]
    assert vocabulary.id_of(b"YY") == 5


def test_two_strings_of_one_id_are_never_confused() -> None:
    tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 3}, [("a", "b")]))
    tokenizer.add_tokens(["VV", "WW"])  # the library numbers them from 3 on, over "ab"
    vocabulary = Vocabulary(tokenizer, name="overlapping")
    for text in (b"ab", b"VV", b"aabWWVVb"):
        checked(vocabulary, text)


@pytest.mark.parametrize("head", [200, 300, 504, 10_000])
def test_ids_past_the_head_are_not_used(head: int) -> None:
    tokenizer = byte_level()
    vocabulary = Vocabulary(tokenizer, name="cut", head_size=head)
    assert vocabulary.size == min(head, tokenizer.get_vocab_size())
    for text in TEXTS:
        assert bool(checked(vocabulary, text.encode()).unaligned) == (head <= 300)
    assert all(i < vocabulary.size for ids in vocabulary.symbols.values() for i in ids)


def test_ends_of_sequence_are_one_symbol() -> None:
    vocabulary = Vocabulary(byte_level(), name="ends", eos_ids=[2, 3, -1, 10_000])
    assert vocabulary.eos_ids == {2, 3}
    assert vocabulary.eos_id == 2
    for i in (2, 3):
        token = vocabulary.token(i, 9)
        assert (token.bytes, token.start, token.eos, token.control) == (b"", 9, True, False)
    assert not vocabulary.eos_ids & vocabulary.control_ids
    assert Vocabulary(byte_level(), name="endless").eos_id is None
    spelled = {i for ids in vocabulary.symbols.values() for i in ids}
    assert spelled == set(range(vocabulary.size)) - vocabulary.eos_ids - vocabulary.control_ids


def test_word_pieces_lose_their_marks() -> None:
    vocabulary = made("WordPiece")
    marked = [s for s in tokenizer_of("WordPiece").get_vocab() if s.startswith("##")]
    assert marked
    assert all(vocabulary.symbols.get(s[2:].encode()) for s in marked)
    encoding = checked(vocabulary, b"trees and trees")
    assert encoding.unaligned == ((5, 6), (9, 10))  # it has no blanks


def test_a_tokenizer_without_a_fast_form_is_refused() -> None:
    with pytest.raises(ModelError, match=r"The tokenizer of slow has no fast form \(tokenizer.json\)"):
        fast_tokenizer(object(), "slow")


# -- bytes -------------------------------------------------------------------------------------------------------------------


def unfinished(data: bytes) -> int:
    """By definition: the shortest tail of at most three bytes that is valid but for its end, and would be completed by more."""
    for back in (1, 2, 3):
        if back > len(data):
            return 0
        for more in COMPLETIONS:
            try:
                if len((data[-back:] + more).decode()) == 1:
                    return back
            except UnicodeDecodeError:
                continue
    return 0


COMPLETIONS = [bytes([first, *[0x80] * more]) for first in (0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF) for more in range(3)]


cut_short = st.builds(lambda text, cut: text.encode()[: -cut or None], unicode, st.integers(0, 3))


@settings(quick, max_examples=300)
@given(data=st.one_of(st.binary(max_size=6), cut_short))
@example(b"\xed\xa0")  # half a surrogate: no character begins so
@example(b"\xf4\x90")  # past U+10FFFF
@example(b"\xe0\x80")
@example(b"\xf0\x9f\x9a")
@example(b"\xc0")
@example(b"\xe6\x9d\xe6")
def test_an_unfinished_character_is_told_by_definition(data: bytes) -> None:
    assert incomplete_tail(data) == unfinished(data)


@settings(quick, max_examples=100)
@given(a=st.binary(max_size=40), b=st.binary(max_size=40), common=st.binary(max_size=40))
def test_a_common_prefix_is_the_longest(a: bytes, b: bytes, common: bytes) -> None:
    a, b = common + a, common + b
    length = common_prefix(a, b)
    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]
