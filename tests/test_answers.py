"""Reading answers out of responses and comparing them: the traps other scorers fell into, and gold solutions as published."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from safe_core.benchmarks import answers
from tests.benchmark_data import ROWS


@pytest.mark.parametrize(
    ("response", "parsed"),
    [
        ("The total is 1,234,567.", "1234567"),
        ("so we get\n#### 1,234", "1234"),
        ("$400 000 - $282 000 = $118 000.", "118000"),
        ("Hence \\boxed{1{,}250}.", "1250"),
        ("\\boxed{12} and then, no: \\boxed{13}", "13"),
        ("\\boxed{\\$2.50}", "2.50"),
        ("The answer is -3 degrees.", "-3"),
        ("The answer is $72.", "72"),
        ("The answer is: **18** dollars a day", "18"),
        ("4 + 5 = 9 points in the 40 minutes", "9"),
        ("She has 7 left", "7"),
        ("x = 3\ny = 4", "4"),
        ("\\boxed{\\frac{3}{4}}", "\\frac{3}{4}"),
        ("no number here", None),
        ("", None),
        ("\\boxed{}", None),
    ],
)
def test_a_number_is_read_where_it_is_stated(response: str, parsed: str | None) -> None:
    assert answers.number(response) == parsed


def test_a_fraction_in_a_box_is_not_its_numerator() -> None:
    assert answers.grade("number", "\\boxed{\\frac{3}{4}}", "0.75")["correct"]
    assert not answers.grade("number", "\\boxed{\\frac{3}{4}}", "3")["correct"]


@pytest.mark.parametrize(
    ("response", "parsed"),
    [
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("so \\boxed{ \\left\\{ 1, \\{2\\} \\right\\} }.", "\\left\\{ 1, \\{2\\} \\right\\}"),
        ("\\boxed{a} never closed \\boxed{b", "a"),
        ("\\fbox{3}", "3"),
        ("\\boxed 7", "7"),
        ("The answer is $x^2$.", "x^2"),
        ("", None),
        ("\\boxed{}", None),
    ],
)
def test_an_expression_is_read_out_of_its_box(response: str, parsed: str | None) -> None:
    assert answers.expression(response) == parsed


@pytest.mark.parametrize(
    ("parsed", "answer", "same"),
    [
        ("0.5", "\\frac{1}{2}", True),
        ("\\dfrac{14}{3}", "\\frac{14}{3}", True),
        ("x=5", "5", True),
        ("(2,\\frac{\\pi}{2})", "\\left( 2, \\frac{\\pi}{2} \\right)", True),
        ("\\{2,-2\\}", "\\{-2,2\\}", True),
        ("10,080", "10080", True),
        ("\\text{Evelyn}", "\\text{Evelyn}", True),
        ("1", "10", False),
        ("567", "1234567", False),
        ("\\frac{1}{3}", "0.33", False),
        ("\\notlatex{", "7", False),
    ],
)
def test_expressions_are_compared_as_mathematics(parsed: str, answer: str, same: bool) -> None:
    assert answers.equal_mathematics(parsed, answer) is same


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("The answer is (B).", "B"),
        ("the answer is b", "B"),
        ("The answer is: \\boxed{D}", "D"),
        ("The answer is **(C)**", "C"),
        ("First (A) seems right. The answer is (C).", "C"),
        ("The answer is (A). No, the answer is (D).", "D"),
        ("A. The trout lives in water", "A"),
        ("I think a whale it is.\nB", "B"),
        ("The best choice is option C because", "C"),
        ("The answer is (X)", None),
        ("I am a model and A good one", None),
        ("", None),
    ],
)
def test_a_choice_is_a_letter_that_is_an_option(response: str, letter: str | None) -> None:
    assert answers.choice(response) == letter


@pytest.mark.parametrize(
    ("response", "answer", "correct"),
    [
        ("Let's think. So the answer is (A).", "(A)", True),
        ("So the answer is A.", "(A)", True),
        ("So the answer is (B).", "(A)", False),
        ("so the answer is Invalid.", "invalid", True),
        ("so the answer is valid.", "invalid", False),
        ("So the answer is **True**.", "True", True),
        ("So the answer is Monsters, Inc.", "Monsters, Inc", True),
        ("So the answer is Yes, because he did.", "Yes", True),
        ("So the answer is Yesterday.", "Yes", False),
        ("False", "False", True),
        ("", "False", False),
        ("So the answer is", "No", False),
    ],
)
def test_words_are_compared_without_their_trimmings(response: str, answer: str, correct: bool) -> None:
    assert answers.grade("words", response, answer)["correct"] is correct


@pytest.mark.parametrize("kind", list(answers.KINDS))
@pytest.mark.parametrize("blank", ["", " ", "\n\n", "\\boxed{}", "The answer is"])
def test_no_answer_is_never_right(kind: str, blank: str) -> None:
    for answer in ("", "3", "(A)", "A", "Yes"):
        assert not answers.grade(kind, blank, answer)["correct"]


def test_solutions_are_read_as_their_reference_answers() -> None:
    for row in ROWS["gsm8k"]:
        assert answers.grade("number", row["solution"], row["answer"])["correct"], row
        assert answers.grade("number", f"{row['solution']}\n#### {row['answer']}", row["answer"])["correct"], row
    for row in ROWS["math500"]:
        assert answers.grade("expression", f"Clearly \\boxed{{{row['answer']}}}.", row["answer"])["correct"], row


@pytest.mark.skipif("SAFE_LENS_DATA" not in os.environ, reason="SAFE_LENS_DATA names no folder with the published benchmarks")
@pytest.mark.parametrize(("folder", "kind", "count"), [("gsm8k", "number", 1319), ("math500", "expression", 500)])
def test_every_published_gold_solution_is_read_as_its_answer(folder: str, kind: str, count: int) -> None:
    lines = (Path(os.environ["SAFE_LENS_DATA"]) / folder / "test.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    published = {"number": "{solution}\n#### {answer}", "expression": "{solution}"}[kind]
    wrong = [r["id"] for r in rows if not answers.grade(kind, published.format(**r), r["answer"])["correct"]]
    assert len(rows) == count
    assert not wrong
