"""The folder an accuracy run writes: ``settings.json``, ``results.jsonl`` (one row per question) and ``summary.json``.

Rows are appended as questions finish, so that whatever ends a run, finished questions stay, and the same command goes on
behind them. A folder belongs to one setting: what decides an answer may not differ between its rows.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safe_core.types import InputError

Row = dict[str, Any]


class Record:
    """The rows of one run, on disk and by question id. Raises InputError where the folder cannot be used."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.rows: dict[str, Row] = {}
        self._file = folder / "results.jsonl"
        with _told(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._claim(json.loads(json.dumps(settings)))
            if self._file.exists():
                self._take_up()

    def add(self, row: Row) -> None:
        """Keep a finished question. Once this returns, the row survives whatever happens to the process."""
        with _told(self.folder), self._file.open("ab") as out:
            out.write(_line(row))
            out.flush()
            os.fsync(out.fileno())
        self.rows[row["id"]] = row

    def sort(self, order: Sequence[str]) -> None:
        """Put the rows on disk into the order of the questions, whatever order they finished in."""
        at = {id_: place for place, id_ in enumerate(order)}
        rows = sorted(self.rows.values(), key=lambda row: at.get(row["id"], len(at)))
        self.rows = {row["id"]: row for row in rows}
        self._replace(self._file, b"".join(map(_line, rows)))

    def forget_failures(self) -> None:
        """Drop the questions that failed, to ask them once more."""
        self.rows = {id_: row for id_, row in self.rows.items() if not row["error"]}
        self._replace(self._file, b"".join(map(_line, self.rows.values())))

    def save(self, name: str, content: Mapping[str, Any]) -> None:
        """Write one of the folder's JSON files, whole or not at all."""
        self._replace(self.folder / name, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())

    def write(self, name: str, content: bytes) -> None:
        """Write a file into the folder, such as a trace."""
        with _told(self.folder):
            (self.folder / name).parent.mkdir(exist_ok=True)
        self._replace(self.folder / name, content)

    def _claim(self, settings: Row) -> None:
        file = self.folder / "settings.json"
        if not file.exists():
            if self._file.exists():
                raise InputError(f"{self.folder} holds results.jsonl without settings.json. Give another --output_path.")
            self.save("settings.json", settings)
            return
        try:
            found = json.loads(file.read_bytes())
        except ValueError:
            raise InputError(f"{file} is damaged. Give another --output_path, or delete the folder.") from None
        differ = _differences(found, settings)
        if differ:
            raise InputError(
                f"{self.folder} holds a run with other settings: {'; '.join(differ)}. "
                "Give another --output_path, or the same settings."
            )

    def _take_up(self) -> None:
        """Read the rows of an earlier start; a last line that was cut when it ended is dropped."""
        data = self._file.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        for at, line in enumerate(whole.splitlines(), 1):
            try:
                row = json.loads(line)
                self.rows[row["id"]] = row
            except (ValueError, KeyError, TypeError):
                raise InputError(f"{self._file}, line {at}: this is no row of a run. Mend or delete the file.") from None
        if whole != data:
            self._replace(self._file, whole)

    def _replace(self, file: Path, content: bytes) -> None:
        with _told(self.folder):
            fresh = file.with_name(file.name + ".new")
            fresh.write_bytes(content)
            os.replace(fresh, file)


class _told:
    """Says in a sentence what the disk refused; finished rows are safe."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, OSError):
            raise InputError(
                f"{self._folder} cannot be written: {error.strerror}. "
                "Finished questions are kept; the same command goes on behind them."
            ) from error


def total(rows: Iterable[Row]) -> dict[str, Any]:
    """The statistics of all rows as of one run: counts and times added up, shares computed from the sums."""
    sums: Counter[str] = Counter()
    nested: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for key, value in (row["statistics"] or {}).items():
            if isinstance(value, dict):
                nested[key].update(value)
            else:
                sums[key] += value
    tokens, ms = sums["tokens"], nested["ms"]
    whole = ms["total"]
    ratios = {
        "ensemble_rate": _ratio(sums["ensembles"], tokens),
        "replaced_rate": _ratio(sums["replaced"], tokens),
        "engine_share": _ratio(whole - ms["forward"], whole),
        "tokens_per_second": round(_ratio(tokens * 1e3, whole), 2),
    }
    return dict(sums) | {key: dict(values) for key, values in nested.items()} | ratios


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _line(row: Row) -> bytes:
    return (json.dumps(row, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")


def _differences(found: Row, wanted: Row, under: str = "") -> list[str]:
    differ = []
    for key in sorted(found.keys() | wanted.keys()):
        old, new = found.get(key), wanted.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            differ += _differences(old, new, f"{under}{key}.")
        elif old != new:
            differ.append(f"{under}{key} is {json.dumps(old)} there and {json.dumps(new)} here")
    return differ
