"""Child processes whose output is kept in a log."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from safe_core.zoo.telling import TICK_S, one_line

_COMPLAINTS: Final = ("ERROR: ", "× ")
"""How pip, and the process that converts, begin the line that says what went wrong."""


def run(command: Sequence[str], log: Path, environment: Mapping[str, str], tick: Callable[[], None]) -> int:
    """Run a command to its end and return its exit status. ``tick`` is called as it runs; if it raises, the command dies."""
    with log.open("wb") as output:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment)
        try:
            while True:
                tick()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return child.wait(timeout=TICK_S)
        finally:
            child.kill()
            child.wait()


def last_error(log: str) -> str:
    """The last thing a child process complained of, on one line."""
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(_COMPLAINTS)] or lines or ["it said nothing"]
    return one_line(errors[-1].removeprefix("ERROR: ").removeprefix("× "))
