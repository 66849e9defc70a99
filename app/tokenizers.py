"""Tokenizers side by side: where their boundaries agree in a text, and on which words of a list. No weights are needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from app.glyphs import visible

if TYPE_CHECKING:
    from safe_core.vocabulary import Encoding, Vocabulary

WORDS: Final = (
    *("water", "teacher", "window", "yesterday", "incorrect", "gallbladder", "photosynthesis", "Sofia", "Reykjavik"),
    *("kilometre", "unhappiness", "bookshelf", "strawberry", "thunderstorm", "microscope", "algorithm", "tokenizer"),
    *("democracy", "volcano", "breakfast", "Wednesday", "rhythm", "queue", "naïve", "Zürich", "2026", "3.1415"),
    *("don't", "user@example.org", "returnValue"),
)
"""Ordinary words to begin with, some of which tokenizers often cut differently."""

WORDS_AT_MOST: Final = 400


def bench(text: str, readings: Mapping[str, Encoding]) -> dict[str, Any]:
    """What the bench draws: every reading of ``text`` on a ruler of bytes, and the boundaries that all of them share."""
    data = text.encode()
    ends = {name: {t.end for t in reading.tokens} for name, reading in readings.items()}
    common = set.intersection(*ends.values()) if ends and data else set()
    everywhere = set.union(*ends.values()) if ends else set()
    rows = [
        {
            "name": name,
            "words": f"{len(reading.tokens)} tokens",
            "tokens": [_cell(t, [other for other in ends if other != name and t.end not in ends[other]]) for t in reading.tokens],
        }
        for name, reading in readings.items()
    ]
    inner = len(everywhere - {len(data)})
    shared = len(common - {len(data)})
    said = f"{shared} of {inner} inner boundaries are shared by all; " if len(ends) > 1 else ""
    return {"length": len(data), "rows": rows if data else [], "common": sorted(common), "summary": f"{said}{len(data)} bytes."}


def _cell(token: Any, lacking: Sequence[str]) -> dict[str, Any]:
    label = visible(token.bytes, token.eos)
    words = f"{label}: id {token.id}, bytes {token.start} to {token.end}"
    if lacking:
        words += f"; no boundary behind it in {', '.join(lacking)}"
    return {"label": label, "start": token.start, "end": token.end, "alone": bool(lacking), "words": words}


def agreement(words: Sequence[str], vocabularies: Mapping[str, Vocabulary]) -> pd.DataFrame:
    """A row per word with every tokenizer's pieces, those first that are cut differently; above it the share cut alike.

    Words are read as they stand in running text, with a blank before them.
    """
    rows = []
    for word in dict.fromkeys(line.strip() for line in words if line.strip()):
        pieces = {n: [t.bytes for t in v.encode(f" {word}".encode()).tokens] for n, v in vocabularies.items()}
        alike = len({tuple(p) for p in pieces.values()}) <= 1
        cells = {n: " | ".join(visible(piece) for piece in p) for n, p in pieces.items()}
        rows.append({"word": word, "cut alike": alike, **cells})
        if len(rows) == WORDS_AT_MOST:
            break
    rows.sort(key=lambda row: bool(row["cut alike"]))
    share = sum(bool(row["cut alike"]) for row in rows) / len(rows) if rows else 0.0
    total = {"word": f"all {len(rows)} words", "cut alike": f"{share:.0%}", **dict.fromkeys(vocabularies, "")}
    return pd.DataFrame([total, *[{**row, "cut alike": "yes" if row["cut alike"] else "no"} for row in rows]])
