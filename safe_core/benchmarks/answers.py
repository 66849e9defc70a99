"""What a response answers, and whether that is the reference answer. Mathematics is compared by math-verify, not as text.

A response states its answer where the prompt asks for it: within ``\\boxed{}`` or behind ``The answer is``. Where it does
neither, the most likely place is read instead (the result of its last equation, its last number or letter), because the paper's
single models are scored the same way and a bare ``72`` is an answer. What holds no answer is wrong, never empty-equals-empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

BOXED: Final = "\\boxed"
STATED: Final = re.compile(r"answer\s*(?:is|=|:)\s*:?\s*", re.IGNORECASE)
NUMBER: Final = re.compile(
    r"(?<![\w.,])[-−+]?\s?[$€£]?\s?\d{1,3}(?:(?:,|\{,\}|[  \u2009\u202f])\d{3}(?!\d))+(?:\.\d+)?|[-−]?[$€£]?\d*\.?\d+"
)
"""``1,234,567``, ``118 000``, ``$2.50``, ``-3``; one number each."""
LETTER: Final = re.compile(
    r"\(([A-Ja-j])\)|^[\s*]*([A-J])(?=[.):]|[\s*]*$)|(?:option|choice)\s+\(?([A-J])\b", re.IGNORECASE | re.MULTILINE
)
"""``(B)`` anywhere; ``B.``, ``B)`` or a lone ``B`` at the beginning of a line; ``option B``. The words ``a``, ``I`` are none."""


def boxed(text: str) -> str | None:
    """The content of the last ``\\boxed{...}`` (or ``\\fbox``, or ``\\boxed 7``) that is closed, braces balanced."""
    for start in reversed([m.end() for m in re.finditer(r"\\(?:boxed|fbox)(?![a-zA-Z])", text)]):
        rest = text[start:].lstrip()
        if not rest.startswith("{"):
            word = re.match(r"[^\s$.,;]+", rest)
            if word:
                return word[0]
            continue
        depth = 0
        for at, character in enumerate(rest):
            escaped = at > 0 and rest[at - 1] == "\\"
            depth += (character == "{") - (character == "}") if not escaped else 0
            if depth == 0:
                return rest[1:at].strip()
    return None


def number(response: str) -> str | None:
    """The number that answers a word problem, as plain digits: ``1234567``, ``-3``, ``2.5``; ``None`` where there is none."""
    inside = boxed(response)
    if inside and re.search(r"\\[dt]?frac|\\sqrt|[\^/]", inside):
        return inside  # no plain number; math-verify reads it
    for part in (inside, _behind(response, "####"), _stated(response)):
        found = None if part is None else NUMBER.search(part)
        if found:
            return _plain(found[0])
    for line in reversed(response.splitlines()):
        if not NUMBER.search(line):
            continue
        results = [m for m in (NUMBER.match(part.strip(" $€£*_")) for part in line.split("=")[1:]) if m]
        return _plain(results[-1][0] if results else NUMBER.findall(line)[-1])
    return None


def expression(response: str) -> str | None:
    """The LaTeX expression that answers a mathematics problem."""
    inside = boxed(response)
    if inside is not None:
        return inside or None
    stated = _stated(response)
    if stated:
        return stated.splitlines()[0].strip().rstrip(".").strip("$* ") or None
    return number(response)


def choice(response: str) -> str | None:
    """The letter that answers a multiple-choice question, upper case."""
    for part in (_stated(response), boxed(response)):
        found = None if part is None else re.match(r"[\s*_$\"'({\[]*(?:\\text\{)?\(?([A-Ja-j])(?![A-Za-z])", part)
        if found:
            return found[1].upper()
    letters = LETTER.findall(response)
    return next(filter(None, letters[-1])).upper() if letters else None


def words(response: str) -> str | None:
    """The words that answer a BBH question: ``(A)``, ``valid``, ``True``, ``Monsters, Inc``."""
    stated = _stated(response)
    text = boxed(response) if stated is None else stated.splitlines()[0] if stated else None
    if not text:
        lines = [line for line in response.splitlines() if line.strip()]
        text = lines[-1] if lines else None
    if not text:
        return None
    option = re.match(r"[\s*_\"'$]*(\([A-Za-z]\))", text)
    if option:
        return option[1].upper()
    return text.strip().strip("*_\"'$`").rstrip(".").strip("*_\"'$` ") or None


@lru_cache(maxsize=4096)  # a response is graded when it is finished, and by the harness at the end
def equal_mathematics(parsed: str, answer: str) -> bool:
    """Whether two expressions are the same mathematics (math-verify), or the same text."""
    if _bare(parsed) == _bare(answer):
        return True
    from math_verify import parse, verify

    gold, found = (parse(f"\\boxed{{{text}}}") for text in (answer, parsed))
    return bool(gold) and bool(found) and bool(verify(gold, found))


def equal_words(parsed: str, answer: str) -> bool:
    """Whether two short answers are the same words; an option letter may stand with or without its brackets."""
    if re.fullmatch(r"\([A-Za-z]\)", answer):
        found = re.match(r"\(?([A-Za-z])(?:\)|$|[.:,\s])", parsed)
        return bool(found) and found[1].upper() == answer[1].upper() if found else False
    first = parsed.split()[0] if parsed.split() else ""
    alone = " " not in answer
    return _spoken(parsed) == _spoken(answer) or (alone and _spoken(first) == _spoken(answer))


Read = Callable[[str], str | None]
Same = Callable[[str, str], bool]

KINDS: Final[Mapping[str, tuple[Read, Same]]] = {
    "number": (number, equal_mathematics),
    "expression": (expression, equal_mathematics),
    "choice": (choice, lambda parsed, answer: parsed == answer.strip("()").upper()),
    "words": (words, equal_words),
}


def grade(kind: str, response: str, answer: str) -> dict[str, Any]:
    """``{"parsed": str | None, "correct": bool}`` of one response, by the kind of answer its task asks for."""
    read, same = KINDS[kind]
    parsed = read(response)
    return {"parsed": parsed, "correct": parsed is not None and same(parsed, answer)}


def _stated(text: str) -> str | None:
    """What stands behind the last ``the answer is``."""
    parts = [m.end() for m in STATED.finditer(text)]
    return text[parts[-1] :].strip() if parts else None


def _behind(text: str, mark: str) -> str | None:
    return text.rsplit(mark, 1)[1] if mark in text else None


def _plain(figure: str) -> str:
    digits = re.sub(r"[^\d.\-−]", "", figure).replace("−", "-")
    return digits if any(c.isdigit() for c in digits) else figure


def _bare(text: str) -> str:
    """Text without what typesetting leaves to taste: blanks, dollar signs, ``\\left``, thousands' commas in a lone number."""
    bare = re.sub(r"\\left|\\right|\\[,!;: ]|\$|\s", "", text).replace("dfrac", "frac").replace("tfrac", "frac").rstrip(".")
    return bare.replace(",", "") if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", bare) else bare


def _spoken(text: str) -> str:
    return re.sub(r"[\s.,;:!?*_\"'`()]+", " ", text).strip().casefold()
