"""The page itself, put together from its sections, its figures, a style sheet and the code that draws."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Final

from safe_core.benchmarks.report import beside, beyond
from safe_core.benchmarks.report.board import Board
from safe_core.benchmarks.report.results import Results
from safe_core.benchmarks.report.words import escaped

_POLICY: Final = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""The page may use what is in it and nothing else: no request leaves the reader's machine."""


def page_of(results: Results) -> str:
    """The whole page as text. What the files say stands in it escaped, or as JSON in which no tag can be closed."""
    from plotly.offline import get_plotlyjs

    board = Board()
    sections = [build(results, board) for build in (*beside.SECTIONS, *beyond.SECTIONS)]
    contents = "".join(f'<a href="#{section.id}">{escaped(section.title)}</a>' for section in sections)
    body = "\n".join(
        f'<section id="{s.id}" aria-labelledby="{s.id}-title"><h2 id="{s.id}-title">{escaped(s.title)}</h2>'
        f"{''.join(s.blocks)}</section>"
        for s in sections
    )
    return _part("page.html").format(
        policy=_POLICY,
        style=_part("page.css"),
        contents=contents,
        sections=body,
        figures=json.dumps(board.figures, ensure_ascii=True).replace("<", "\\u003c"),
        library=get_plotlyjs(),
        draw=_part("page.js"),
    )


def _part(name: str) -> str:
    return files("safe_core.benchmarks.report").joinpath(name).read_text(encoding="utf-8")
