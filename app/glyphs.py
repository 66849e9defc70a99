"""Bytes as text a person can read back: nothing invisible, nothing of zero width, no replacement character as content."""

from __future__ import annotations

import unicodedata
from typing import Final

_NAMED: Final = {
    " ": "␣",
    "\n": "↵",
    "\t": "⇥",
    "\r": "␍",
    "\u00a0": "[NBSP]",
    "\u200b": "[ZWSP]",
    "\u200c": "[ZWNJ]",
    "\u200d": "[ZWJ]",
    "\u2060": "[WJ]",
    "\ufeff": "[BOM]",
    "\u00ad": "[SHY]",
}
_HIDDEN: Final = {"Cc", "Cf", "Zs", "Zl", "Zp", "Cn", "Co"}


def visible(data: bytes, eos: bool = False) -> str:
    """``data`` with a sign for every blank and hidden character, and ``⟨F0 9F⟩`` for bytes that are no whole character."""
    if eos:
        return "⏹ end"
    out: list[str] = []
    at = 0
    while at < len(data):
        char, length = _character(data, at)
        if char is None:
            end = at + 1
            while end < len(data) and _character(data, end)[0] is None:
                end += 1
            out.append(f"⟨{data[at:end].hex(' ').upper()}⟩")
            at = end
            continue
        out.append(_sign(char))
        at += length
    return "".join(out)


def _character(data: bytes, at: int) -> tuple[str | None, int]:
    for length in range(1, 5):
        try:
            return data[at : at + length].decode(), length
        except UnicodeDecodeError:
            continue
    return None, 1


def _sign(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    return f"[U+{ord(char):04X}]" if unicodedata.category(char) in _HIDDEN else char
