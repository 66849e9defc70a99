"""The page with toy models behind it, as a process of its own: ``python -m tests.browser.toy_app PORT FOLDER [MS]``.

Everything but the models is the real page and the real engine. ``MS`` slows every event down, so that a run lasts long enough
to be interrupted; ``FOLDER`` is where pages are kept.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app import layout
from app.jobs import Prepare, Progress
from app.keep import Keep
from app.orders import METHODS, Order
from app.session import Workshop
from safe_core import engine
from safe_core.events import Event
from tests.toys import toy_sessions


class Toys(Workshop):
    """Two toy models for every order."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self.pause_s = pause_s

    def order(self, order: Order, keys: Sequence[str]) -> Prepare:
        """Runs of toys that speak slowly and never end by themselves."""

        def prepare(report: Progress, cancelled: Callable[[], bool]) -> Mapping[str, Iterator[Event]]:
            report(0.5, "Preparing toys")
            return {key: self._run(side, order, cancelled) for key, side in zip(keys, order.sides, strict=True)}

        return prepare

    def _run(self, side: str, order: Order, cancelled: Callable[[], bool]) -> Iterator[Event]:
        method = METHODS[side][0]
        speakers: Any = toy_sessions(3, 1 if method == "single" else 2, end_every=0)
        options = {"system": order.system or None}
        for event in engine.run(method, speakers, order.settings_of(side), order.prompt, cancelled=cancelled, about=options):
            time.sleep(self.pause_s)
            yield event


def main() -> None:
    """Open the page and stay."""
    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    page = layout.Page(keep=Keep(folder))
    page.answers.workshop = Toys(float(sys.argv[3]) / 1e3 if len(sys.argv) > 3 else 0.0)
    demo = page.blocks()
    demo.queue(max_size=64, api_open=False)
    demo.launch(
        server_port=port,
        run_history=False,
        footer_links=[],
        ssr_mode=False,
        enable_monitoring=False,
        theme=layout.theme(),
        head=layout.head(),
        quiet=True,
    )


if __name__ == "__main__":
    main()
