"""From files to results. A file that is broken or foreign is named and left out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from safe_core.benchmarks.report.results import File, Results, Run, titled
from safe_core.benchmarks.report.schema import Agreement, Question, Speed, Summary
from safe_core.benchmarks.report.words import plain
from safe_core.types import InputError

MOST_JSON_BYTES: Final = 16 << 20

MOST_LINES_BYTES: Final = 512 << 20
"""The largest file of either kind that is read; no benchmark writes larger ones."""

ROUNDED: Final = 1e-3
"""What rounding may put an accuracy outside its interval."""


def files_of(paths: Iterable[str | Path]) -> Iterator[File]:
    """Every ``*.json`` and ``results.jsonl`` below these folders, and the files among these paths.

    Raises InputError for a path that is not there; a file that cannot be read comes without bytes.
    """
    for given in map(Path, paths):
        if given.is_dir():
            inside = sorted(Path(folder) / name for folder, _, names in os.walk(given) for name in names if is_ours(name))
            for path in inside:
                yield File(f"{given.resolve().name}/{path.relative_to(given).as_posix()}", str(path.parent), read_bytes(path))
        elif given.exists():
            yield File(given.name, str(given.parent), read_bytes(given))
        else:
            raise InputError(f"There is no file or folder {str(given)!r}; name what a benchmark wrote.")


def is_ours(name: str) -> bool:
    """Whether a file of this name may be a benchmark's."""
    return name.endswith(".json") or name == "results.jsonl"


def read_bytes(path: Path) -> bytes:
    """What a file holds, cut behind the limit of its kind; nothing where it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read((MOST_LINES_BYTES if path.suffix == ".jsonl" else MOST_JSON_BYTES) + 1)
    except OSError:
        return b""


def results_of(files: Iterable[File]) -> Results:
    """What the files hold. Raises InputError where none can be used."""
    results = Results()
    lines: list[tuple[File, tuple[Question, ...]]] = []
    folders: list[str] = []
    for file in files:
        if PurePosixPath(file.name).name == "settings.json":  # of a run: says nothing that its summary does not
            continue
        try:
            if file.name.endswith(".jsonl"):
                lines.append((file, _questions(file.data)))
                continue
            held = _held(file.data)
        except _Unusable as problem:
            results.problems.append(f"{plain(file.name)} was left out: {problem}.")
            continue
        for one in held:
            if isinstance(one, Summary):
                results.runs.append(Run(file.name, one))
                folders.append(file.folder)
            elif isinstance(one, Speed):
                results.speeds.append(one)
            else:
                results.agreements.append(one)
    if not (results.runs or results.speeds or results.agreements):
        found = " ".join(results.problems) or "There is no summary.json, speed.json or tokenizers.json."
        raise InputError(f"Nothing here can be reported: {found} Name folders that the benchmarks wrote.")
    _join(results, folders, lines)
    results.runs = titled(results.runs)
    return results


class _Unusable(Exception):
    """Why a file was left out, as the end of a sentence."""


def _held(data: bytes) -> list[Summary | Speed | Agreement]:
    if not data:
        raise _Unusable("it is empty or cannot be read")
    if len(data) > MOST_JSON_BYTES:
        raise _Unusable(f"it is larger than {MOST_JSON_BYTES >> 20} MB")
    try:
        raw = msgspec.json.decode(data)
        kind = raw.get("kind") if isinstance(raw, dict) else None
        if kind == "accuracy":
            return [_checked(msgspec.convert(raw, Summary))]
        if kind == "tokenizers":
            return [msgspec.convert(raw, Agreement)]
        if kind == "speed":
            return list(_speeds(raw))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise _Unusable(plain(str(error).rstrip("."))) from error
    raise _Unusable("its 'kind' is none of accuracy, speed and tokenizers")


def _checked(summary: Summary) -> Summary:
    low, high = summary.interval
    if summary.correct > summary.questions:
        raise ValueError(f"{summary.correct} of {summary.questions} questions cannot be right")
    if not low - ROUNDED <= summary.accuracy <= high + ROUNDED:
        raise ValueError("the accuracy lies outside its interval")
    return summary


def _speeds(raw: dict[str, Any]) -> Iterator[Speed]:
    """A measurement, or several by name in one file (random weights at several rates of disagreement)."""
    parts = {"": raw} if "rows" in raw else {k: v for k, v in raw.items() if isinstance(v, dict) and "rows" in v}
    if not parts:
        raise ValueError("it holds no rows")
    for title, part in parts.items():
        yield msgspec.convert({**part, "title": title}, Speed)


def _questions(data: bytes) -> tuple[Question, ...]:
    if len(data) > MOST_LINES_BYTES:
        raise _Unusable(f"it is larger than {MOST_LINES_BYTES >> 20} MB")
    decoder = msgspec.json.Decoder(Question)
    found = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            if line.strip():
                found.append(decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _Unusable(f"line {number}: {plain(str(error).rstrip('.'))}") from error
    return tuple(found)


def _join(results: Results, folders: Sequence[str], lines: Sequence[tuple[File, tuple[Question, ...]]]) -> None:
    """Give every run the questions that lie beside its summary and count as it does."""
    for file, rows in lines:
        right = sum(bool(row.correct) for row in rows)
        beside = [i for i, folder in enumerate(folders) if folder == file.folder]
        fits = [i for i in beside if (results.runs[i].summary.questions, results.runs[i].summary.correct) == (len(rows), right)]
        if len(fits) == 1:
            results.runs[fits[0]] = replace(results.runs[fits[0]], rows=rows)
        elif not beside:
            results.problems.append(f"{plain(file.name)} was left out: there is no summary.json beside it.")
        elif not fits:
            results.problems.append(
                f"{plain(file.name)} was left out: its {len(rows)} questions, {right} right, are not those of the summary "
                "beside it."
            )
        else:
            results.problems.append(
                f"{plain(file.name)} was left out: it fits several summaries; keep each run in its own folder."
            )
