"""Agreement and OOV-like rates against counts made another way: by hand on toys, by the tokenizers' own offsets on real ones."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from safe_core.benchmarks import tokenizers as bench
from safe_core.types import InputError, ModelError
from safe_core.vocabulary import Vocabulary

# Three byte-level BPEs over a few letters: single bytes alone; with "ab" and " a"; with "bc".
MERGES: dict[str, list[tuple[str, str]]] = {"bytes": [], "ab": [("a", "b"), ("Ġ", "a")], "bc": [("b", "c")]}


def toy(name: str) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {s: i for i, s in enumerate([*alphabet, *(a + b for a, b in MERGES[name])])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=MERGES[name]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.fixture(scope="module")
def toys() -> dict[str, Vocabulary]:
    return {name: Vocabulary(toy(name), name=name) for name in MERGES}


def saved(folder: Path, name: str) -> str:
    """The folder of a toy tokenizer, nothing but its ``tokenizer.json`` in it."""
    place = folder / name
    place.mkdir()
    toy(name).save(str(place / "tokenizer.json"))
    return str(place)


def run(*arguments: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return bench.run(parser.parse_args(list(arguments)))


def test_agreement_counted_by_hand(toys: dict[str, Vocabulary]) -> None:
    """``a``, ``ca``: alike everywhere. ``ab``: only "ab" joins. ``bc``: only "bc" joins. ``abc``: ab|c, a|bc, a|b|c."""
    matrix = bench.agreement(toys, ["a", "ca", "ab", "bc", "abc"])
    by_bytes_and_ab, by_bytes_and_bc, by_both = 3 / 5, 3 / 5, 2 / 5
    assert matrix == [[1.0, by_bytes_and_ab, by_bytes_and_bc], [by_bytes_and_ab, 1.0, by_both], [by_bytes_and_bc, by_both, 1.0]]


def test_a_blank_in_front_changes_the_pieces(toys: dict[str, Vocabulary]) -> None:
    result = bench.compare(toys, ["a", "c"], "abc")
    assert result["agreement"][0][1] == 1.0
    assert result["agreement_with_blank"][0][1] == 0.5, "' a' is one token of one of them"
    assert (result["words"], result["text_bytes"], result["names"]) == (2, 3, ["bytes", "ab", "bc"])


def test_oov_like_counted_by_hand(toys: dict[str, Vocabulary]) -> None:
    """In ``abcab``: a|b|c|a|b ends inside at 1 2 3 4; ab|c|ab at 2 3; a|bc|a|b at 1 3 4."""
    matrix = bench.oov_like(toys, b"abcab")
    assert matrix == [[0.0, 0.5, 0.25], [0.0, 0.0, 0.5], [0.0, round(2 / 3, 6), 0.0]]


def test_a_normalising_tokenizer_is_unaligned_and_not_oov_like(toys: dict[str, Vocabulary]) -> None:
    lower = toy("bytes")
    lower.normalizer = normalizers.Lowercase()
    both = {"bytes": toys["bytes"], "lower": Vocabulary(lower, name="lower")}
    assert bench.agreement(both, ["A", "a"]) == [[1.0, 0.5], [0.5, 1.0]]
    assert bench.oov_like(both, b"aAa") == [[0.0, 0.0], [0.0, 0.0]]


def test_the_whole_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "words.txt").write_bytes("\ufeffab\r\n\r\nbc\r\nab\r\n".encode())
    (tmp_path / "text.txt").write_text("abcab")
    names = [saved(tmp_path, "ab"), saved(tmp_path, "bc")]
    result = run(*names, "--words", str(tmp_path / "words.txt"), "--text", str(tmp_path / "text.txt"))
    assert result["kind"] == "tokenizers"
    assert result["names"] == ["ab", "bc"]
    assert result["words"] == 2, "each word once, empty lines and the mark of order dropped"
    assert result["agreement"] == [[1.0, 0.0], [0.0, 1.0]]
    assert result["oov_like"] == [[0.0, 0.5], [round(2 / 3, 6), 0.0]]
    assert json.loads(json.dumps(result)) == result
    printed = capsys.readouterr().out
    assert "cut alike, 2 words" in printed
    assert "66.67%" in printed


def test_defaults_are_a_list_and_a_text_of_our_own(tmp_path: Path) -> None:
    assert 300 <= len(bench.WORDS) == len(set(bench.WORDS))
    assert set(bench.TEXTS) == {"English", "German", "French", "code", "Chinese"}
    result = run(saved(tmp_path, "ab"), saved(tmp_path, "bytes"))
    assert result["words"] == len(bench.WORDS)
    assert result["text_bytes"] > 1500


@pytest.mark.parametrize(
    ("option", "content", "expected"),
    [
        ("--words", None, "cannot be read"),
        ("--words", b"\n \n", "is empty; write one word a line"),
        ("--words", b"caf\xe9\n", r"is not UTF-8 text \(byte 3\)"),
        ("--text", None, "cannot be read"),
        ("--text", b" \n", "is empty"),
        ("--text", b"\xff", r"is not UTF-8 text \(byte 0\)"),
    ],
)
def test_bad_files_are_told_in_a_sentence(tmp_path: Path, option: str, content: bytes | None, expected: str) -> None:
    file = tmp_path / "given.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=expected):
        run(saved(tmp_path, "ab"), saved(tmp_path, "bc"), option, str(file))


def test_bad_names_are_told_in_a_sentence(tmp_path: Path) -> None:
    good = saved(tmp_path, "ab")
    with pytest.raises(InputError, match="There is no model 'smolm'"):
        run(good, "smolm")
    with pytest.raises(InputError, match="name two or more"):
        run(good, good)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        run(good, str(tmp_path / "broken"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="holds no model"):
        run(good, str(tmp_path / "empty"))


def test_names_are_short_and_apart(tmp_path: Path) -> None:
    for place in ("x/models", "y/models", "y/z/models"):
        (tmp_path / place).mkdir(parents=True)
    paths = [str(tmp_path / place) for place in ("x/models", "y/models")]
    assert bench.shortened([*paths, "org/model"]) == ["x", "y", "org/model"]
    assert bench.shortened([str(tmp_path / "x"), str(tmp_path / "y" / "z")]) == ["x", "z"]
    assert bench.shortened([str(tmp_path / "x" / "models"), str(tmp_path / "y")]) == ["models", "y"]


# -- real tokenizers ------------------------------------------------------------------------------------------------------------


def ends_by_offsets(tokenizer: Tokenizer, text: str) -> set[int]:
    """Token ends as characters, from the library's own offsets; ASCII text, so that they are byte offsets as well."""
    return {end for _, end in tokenizer.encode(text, add_special_tokens=False).offsets} - {0, len(text)}


@pytest.mark.real
@pytest.mark.parametrize(
    ("one", "other"), [("smollm2-135m-instruct", "gemma-3-270m"), ("llama3", "qwen3"), ("gpt4o", "deepseek_v3")]
)
def test_real_tokenizers_against_their_own_offsets(one: str, other: str) -> None:
    from tests.test_vocabulary_real import tokenizer, vocabulary

    text = bench.TEXTS["English"].replace("—", "-") + bench.TEXTS["code"]
    assert text.isascii()
    by_offsets = [ends_by_offsets(tokenizer(name), text) for name in (one, other)]
    expected = [len(a - b) / len(a) for a, b in (by_offsets, by_offsets[::-1])]
    both = {name: vocabulary(name) for name in (one, other)}
    matrix = bench.oov_like(both, text.encode())
    assert [matrix[0][1], matrix[1][0]] == pytest.approx(expected, abs=1e-6)

    words = list(bench.WORDS)
    for front, measured in (("", bench.agreement(both, words)), (" ", bench.agreement(both, [f" {w}" for w in words]))):
        cut = [[sorted(ends_by_offsets(tokenizer(name), front + word)) for word in words] for name in (one, other)]
        alike = sum(a == b for a, b in zip(*cut, strict=True)) / len(words)
        assert measured[0][1] == pytest.approx(alike, abs=1e-6)


@pytest.mark.real
def test_similar_tokenizers_are_similar() -> None:
    """The families of the paper's similar pair (Qwen2 and Llama 3.1) agree; a built-in pair is less alike."""
    from tests.test_vocabulary_real import vocabulary

    names = ("llama3", "qwen3", "gemma3", "llama2")
    matrix = bench.agreement({name: vocabulary(name) for name in names}, bench.WORDS)
    assert matrix[0][1] > 0.9
    assert matrix[2][3] < 0.7
    assert matrix == [list(column) for column in zip(*matrix, strict=True)], "agreement is mutual"


@pytest.mark.real
def test_built_in_models_by_name_and_without_weights() -> None:
    result = run("smollm2-135m-instruct", "gemma-3-270m")
    assert result["names"] == ["smollm2-135m-instruct", "gemma-3-270m"]
    assert 0.5 < result["agreement"][0][1] < result["agreement_with_blank"][0][1] < 1.0
    assert result["oov_like"][0][1] > result["oov_like"][1][0], "the small vocabulary cuts finer"
