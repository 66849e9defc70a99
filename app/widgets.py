"""Small parts of the page that show data as plain text: the status line, the tokenizer bench and the tour."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import gradio as gr

PAGE: Final = Path(__file__).resolve().parent.parent / "assets" / "page"


class _Panel(gr.HTML):  # type: ignore[misc]  # gradio is not typed
    """A component whose ``value`` is an object and whose script in ``assets/page/`` draws it."""

    script = ""

    def __init__(self, value: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(
            value=value or {},
            html_template="<div></div>",
            css_template="",
            js_on_load=(PAGE / self.script).read_text("utf-8"),
            apply_default_css=False,
            **kwargs,
        )

    def preprocess(self, payload: dict[str, Any] | None) -> dict[str, Any]:
        """The object as it is."""
        return payload or {}

    def postprocess(self, value: dict[str, Any] | None) -> dict[str, Any]:
        """The object as it is."""
        return value or {}

    def api_info(self) -> dict[str, Any]:
        """An object."""
        return {"type": "object", "additionalProperties": True}

    def example_payload(self) -> dict[str, Any]:
        """Nothing to show."""
        return {}

    def example_value(self) -> dict[str, Any]:
        """Nothing to show."""
        return {}


class StatusLine(_Panel):
    """Where things stand: ``{kind, text, fraction}`` of a status. Errors are read aloud at once, the rest politely."""

    script = "status.js"


class Bench(_Panel):
    """Tokenizers on one byte ruler: ``{length, rows: [{name, words, tokens}], common, summary}``."""

    script = "bench.js"


class Tour(_Panel):
    """The button that begins the tour, and its card: ``{offered, stops, opened, serial}``. ``opened`` is the pair the server
    just put into the lens. It asks for ``begin``, ``open`` (with a ``trace``) and ``leave``."""

    script = "tour.js"


# The toolkit writes an interface file beside every component class it meets; type checkers would read that instead of this.
Path(__file__).with_suffix(".pyi").unlink(missing_ok=True)
