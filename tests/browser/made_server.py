"""The real page over made runs: ``python -m tests.browser.made_server SECONDS TOKENS [options of app.py]``.

Everything but the models is what ``app.py`` starts; in their place made events come, one window every ``SECONDS``.
"""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from app import layout
from app.jobs import Prepare, Progress
from app.orders import METHODS, Order
from app.session import Workshop
from safe_core.events import Draft, Event
from safe_core.trace import Statistics
from tests.browser.made_traces import long_run

ROOT = Path(__file__).resolve().parent.parent.parent


def played(events: Sequence[Event], seconds: float, cancelled: Callable[[], bool]) -> Iterator[Event]:
    """Events at the pace of a run, which ends where it is stopped."""
    statistics = Statistics()
    for event in events:
        if isinstance(event, Draft):
            if cancelled():
                yield statistics.close("cancelled", "", 0.0, None, {})
                return
            time.sleep(seconds)
        statistics.add(event)
        yield event


class MadeWorkshop(Workshop):
    """Answers every order with made runs of two models."""

    def order(self, order: Order, keys: Sequence[str]) -> Prepare:
        """One made run per side."""

        def prepare(report: Progress, cancelled: Callable[[], bool]) -> Mapping[str, Iterator[Event]]:
            sides = zip(keys, order.sides, strict=True)
            return {
                key: played(long_run(TOKENS, METHODS[side][0], 2, seed), SECONDS, cancelled)
                for seed, (key, side) in enumerate(sides)
            }

        return prepare


if __name__ == "__main__":
    SECONDS, TOKENS = float(sys.argv[1]), int(sys.argv[2])
    layout.Workshop = MadeWorkshop  # type: ignore[misc]
    sys.argv = ["app.py", *sys.argv[3:]]
    runpy.run_path(str(ROOT / "app.py"), run_name="__main__")
