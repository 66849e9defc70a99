"""The cache folder (``$SAFE_CACHE``, else the user's cache) and the folders of converted models in it.

Whatever is made is made beside its place and renamed into it, so a folder in the cache is whole or absent; a lock file per
model lets a second process wait and reuse. A manifest of sizes and SHA-256 sums tells when a folder was altered later.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from safe_core.types import ModelError
from safe_core.zoo.telling import TICK_S, Progress

CONVERSION: Final = 1
"""Counts changes of what a converted folder holds; folders of another count are not reused."""

_MANIFEST: Final = "manifest.json"


def cache_folder() -> Path:
    """``$SAFE_CACHE``, else ``safe-lens`` in the user's cache folder. It need not exist."""
    chosen = os.environ.get("SAFE_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else user_cache_path("safe-lens", appauthor=False)


def folder_of(name: str, gguf_sha256: str) -> Path:
    """The place of a converted model. It is keyed by content and by the way of converting, so that neither a new file nor a
    new version meets an old copy."""
    plain = re.sub(r"[^\w.-]+", "-", name)[:80]
    return cache_folder() / "models" / f"{plain}-{gguf_sha256[:12]}-v{CONVERSION}"


def make_once(folder: Path, name: str, fill: Callable[[Path], None], room_bytes: int, report: Progress) -> None:
    """Leave ``folder`` whole: reuse it, or wait for the process that is making it, or make it with ``fill``.

    ``fill`` gets an empty folder to write the model into; beside that folder it may leave what it likes, which is thrown
    away. ``room_bytes`` is what all of it may take. Raises ModelError, and whatever ``fill`` and ``report`` raise.
    """
    if damage(folder) is None:
        return
    with disk_errors_told(name, folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f".{folder.name}.lock"), name, report):
            harm = damage(folder)
            if harm is None:  # another process made it meanwhile
                return
            broken = folder.exists()
            try:
                _make(folder, name, fill, room_bytes)
            except ModelError as error:
                if not broken:
                    raise
                raise ModelError(
                    f"The copy of {name} in {folder} is damaged ({harm}) and could not be made again: {error}"
                ) from error
    report(1.0, f"{name} is ready")


def _make(folder: Path, name: str, fill: Callable[[Path], None], room_bytes: int) -> None:
    """Make ``folder`` in a folder beside it, which never outlives this call by more than a killed process leaves."""
    for left in folder.parent.glob(f".{folder.name}.*.making"):
        shutil.rmtree(left, ignore_errors=True)
    free_bytes = shutil.disk_usage(folder.parent).free
    if free_bytes < room_bytes:
        raise ModelError(
            f"{name} needs {room_bytes / 1e6:.0f} MB of disk space in {folder.parent} and {free_bytes / 1e6:.0f} MB are "
            "free; free some, or set SAFE_CACHE to a folder on another disk."
        )
    workshop = _temporary(folder)
    workshop.mkdir()
    try:
        made = workshop / "model"
        made.mkdir()
        fill(made)
        _write_manifest(made)
        discard(folder)
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
                lock.acquire(timeout=TICK_S)
    try:
        yield
    finally:
        lock.release()


def _write_manifest(folder: Path) -> None:
    files = {path.name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)} for path in sorted(folder.iterdir())}
    manifest = folder / _MANIFEST
    manifest.write_text(json.dumps({"conversion": CONVERSION, "files": files}, indent=1), encoding="utf-8")
    for path in folder.iterdir():  # safetensors writes for its owner only, but a cache may be shared
        path.chmod(manifest.stat().st_mode)


def damage(folder: Path, *, every_byte: bool = False) -> str | None:
    """What is wrong with a converted folder, in words, or ``None``. Compares sizes, and contents if ``every_byte``."""
    try:
        files = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))["files"]
        for name, expected in files.items():
            path = folder / name
            if not path.is_file():
                return f"{name} is missing"
            if (size_bytes := path.stat().st_size) != expected["bytes"]:
                return f"{name} has {size_bytes} bytes instead of {expected['bytes']}"
            if every_byte and sha256_of(path) != expected["sha256"]:
                return f"{name} was altered"
    except FileNotFoundError:
        return f"{_MANIFEST} is missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{_MANIFEST} cannot be read"
    return None


def discard(folder: Path) -> None:
    """Remove ``folder`` if it is there. It is renamed first, so that nobody meets it half removed."""
    doomed = _temporary(folder)
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder, doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def _temporary(folder: Path) -> Path:
    """A name beside ``folder`` that nobody else uses, and that ``_make`` sweeps away if it is left."""
    return folder.with_name(f".{folder.name}.{os.getpid()}-{time.monotonic_ns()}.making")


@contextlib.contextmanager
def disk_errors_told(name: str, folder: Path) -> Iterator[None]:
    """Raise what the system says of ``folder`` as a ModelError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ModelError(disk_full(name)) from error
        raise ModelError(
            f"{name} could not be prepared in {folder} ({error.strerror or error}); "
            "check that you may read and write there, or set SAFE_CACHE to another folder."
        ) from error


def disk_full(name: str) -> str:
    """What to say when preparing ``name`` filled the disk."""
    return (
        f"The disk of {cache_folder()} is full, so {name} could not be prepared; "
        "free some space, or set SAFE_CACHE to a folder on another disk."
    )


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
