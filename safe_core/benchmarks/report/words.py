"""Text for the page and its figures. Everything a file says is data: it passes through here and comes out escaped."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence

from safe_core.benchmarks import published


def plain(text: str) -> str:
    """Text in which nothing is hidden: signs for control characters, marks of direction and the like."""
    return "".join(c if c.isprintable() else " " if c in "\t\n\r" else f"[U+{ord(c):04X}]" for c in text)


def literal(text: str) -> str:
    """Text as Plotly shows it: its small markup language is for our own words only, and ``%{`` begins a template."""
    return html.escape(plain(text), quote=False).replace("%{", "%\u2060{").replace("$", "&#36;")


def wrapped(text: str, width: int = 24) -> str:
    """Text for a figure, broken into at most four lines of ``width`` characters."""
    parts = textwrap.wrap(plain(text), width, max_lines=4, placeholder=" …") or [""]
    return "<br>".join(map(literal, parts))


def task_title(task: str) -> str:
    """What a task is called; one that the paper lacks keeps its name."""
    return published.TASKS.get(task, task)


def escaped(text: str) -> str:
    """Text as the page's markup holds it."""
    return html.escape(plain(text))


def prose(text: str) -> str:
    """Text of our own around what files say; a percent sign stays with its number."""
    return escaped(text).replace(" %", "&nbsp;%")


def note(text: str, kind: str = "note") -> str:
    """A paragraph of the page."""
    return f'<p class="{kind}">{prose(text)}</p>'


def lacking(what: str) -> str:
    """A paragraph on what was not there to be read."""
    return note(f"Not in these folders: {what}.", "lacking")


def listed(words: Sequence[str]) -> str:
    """Alternatives as words."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else list(words))


def plural(count: int, name: str) -> str:
    """A number and what it counts."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"
