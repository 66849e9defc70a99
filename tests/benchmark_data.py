"""Little benchmark files of our own making, in the one shape the benchmarks read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safe_core.benchmarks.data import BBH_SUBJECTS

WORD_PROBLEMS = [
    ("Ann has 3 boxes with 4 pens each. How many pens?", "12", "3 boxes times 4 pens = 12 pens."),
    ("A tank holds 1,250 litres, a second one 984. Both?", "2234", "1,250 + 984 = 2,234 litres in the 2 tanks."),
    ("Half of 9?", "4.5", "9 / 2 = 4.5"),
    ("It was 5 degrees and fell by 8. Now?", "-3", "5 - 8 = -3 degrees"),
    ("How many legs have 7 cats?", "28", "7 * 4 = 28"),
]
MATHEMATICS = [
    ("Compute $\\frac12+\\frac13$.", "\\frac{5}{6}", "Algebra"),
    ("Solve $x^2=4$ for the set of solutions.", "\\{-2,2\\}", "Algebra"),
    ("Give $(0,2)$ in polar coordinates.", "\\left( 2, \\frac{\\pi}{2} \\right)", "Precalculus"),
]
CHOICES = [
    ("Which of these is a mammal?", ["trout", "whale", "gull", "newt"], "B"),
    ("What freezes at 0 degrees Celsius?", ["iron", "salt", "water"], "C"),
    ("Which planet is nearest to the sun?", ["Mercury", "Venus", "Earth", "Mars"], "A"),
    ("What do plants take in?", ["gold", "light", "sand", "glass"], "B"),
]


def _choices(texts: list[str]) -> list[dict[str, str]]:
    return [{"label": "ABCD"[at], "text": text} for at, text in enumerate(texts)]


def _row(id_: str, question: str, answer: str, **more: Any) -> dict[str, Any]:
    return {"id": id_, "question": question, "choices": None, "answer": answer, "subject": None} | more


ROWS: dict[str, list[dict[str, Any]]] = {
    "gsm8k": [_row(f"g/{i}", q, a, solution=s) for i, (q, a, s) in enumerate(WORD_PROBLEMS)],
    "math500": [_row(f"m-{i}", q, a, subject=s) for i, (q, a, s) in enumerate(MATHEMATICS)],
    "arc_challenge": [_row(f"a-{i}", q, a, choices=_choices(c)) for i, (q, c, a) in enumerate(CHOICES)],
    "mmlu_redux": [
        _row(f"r-{i}", q, a, choices=_choices(c), subject="ab"[i % 2], corrected_answer=(a, "A", None, a)[i])
        for i, (q, c, a) in enumerate(CHOICES)
    ],
    "bbh": [
        _row("b-0", "not ( True ) is", "False", subject="boolean_expressions"),
        _row("b-1", "True and True is", "True", subject="boolean_expressions"),
        _row("b-2", "Which is sarcastic?\nOptions:\n(A) Lovely rain.\n(B) It rains.", "(A)", subject="snarks"),
    ],
}


def write(folder: Path) -> Path:
    """All five benchmarks below ``folder``, and BBH's worked examples."""
    for name, rows in ROWS.items():
        (folder / name).mkdir(parents=True)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / name / "test.jsonl").write_text(text, encoding="utf-8")
    shots = [{"question": f"example {k}", "answer": f"Let's think step by step. So the answer is {k}."} for k in range(3)]
    examples = [{"subject": s, "description": f"About {s}.", "shots": shots} for s in BBH_SUBJECTS]
    (folder / "bbh" / "cot_prompts.jsonl").write_text("".join(json.dumps(e) + "\n" for e in examples), encoding="utf-8")
    return folder
