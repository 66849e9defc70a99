"""The recorded runs that come with the page: pairs of traces with a title, what to look for, and where."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import msgspec

from safe_core import trace
from safe_core.trace import Trace
from safe_core.types import TraceError

TRACES: Final = Path(__file__).resolve().parent.parent / "assets" / "traces"


class Place(msgspec.Struct, frozen=True):
    """A token of a run, counted from 0, and its window."""

    run: str
    window: int
    token: int

    def link(self, trace: str) -> str:
        """The address's part that opens a trace here."""
        return f"#{urlencode({'trace': trace, 'run': self.run, 'window': self.window, 'token': self.token})}"


class Recorded(msgspec.Struct, frozen=True):
    """One side of a pair."""

    title: str
    file: str


class Pair(msgspec.Struct, frozen=True):
    """A recorded pair. ``name`` is what links call it."""

    name: str
    title: str
    look_for: str
    left: Recorded
    right: Recorded
    where: Place

    @property
    def link(self) -> str:
        """The address's part that opens this pair at its place."""
        return self.where.link(self.name)

    def files(self, folder: Path = TRACES) -> list[Path]:
        """The trace files, left first."""
        return [folder / self.left.file, folder / self.right.file]


def pairs(folder: Path = TRACES) -> list[Pair]:
    """All pairs in the order they are offered; none where there is no list. Raises TraceError for a list that is not ours."""
    try:
        return msgspec.json.decode((folder / "gallery.json").read_bytes(), type=list[Pair])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as problem:
        raise TraceError(f"The list of recorded traces in {folder} cannot be used: {problem}.") from problem


@lru_cache(maxsize=16)
def read(path: Path) -> Trace:
    """A recorded trace, read once."""
    return trace.read(path)
