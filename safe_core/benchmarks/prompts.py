"""The paper's prompts (its Figures 6 and 7, in substance), and the hooks that the task files name.

lm-evaluation-harness imports these functions by the ``!function`` entries of ``tasks/*.yaml``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from safe_core.benchmarks import answers, data

THINK = (
    "Reason step by step first. Then finish with a last line that reads: The answer is (X), X being the letter of your choice."
)
LETTER_ONLY = "Do not explain. Reply with one line that reads: The answer is (X), X being the letter of your choice."
BOXED = "Reason step by step, and put the final answer within \\boxed{}."


def mathematics(doc: dict[str, Any]) -> str:
    """The question, then the instruction to reason and to box the answer."""
    return f"{doc['question'].strip()}\n\n{BOXED}"


def multiple_choice(doc: dict[str, Any], instruction: str = THINK) -> str:
    """The question, its lettered options, then the instruction."""
    options = "\n".join(f"{c['label']}. {c['text']}" for c in doc["choices"])
    return f"{doc['question'].strip()}\n\n{options}\n\n{instruction}"


multiple_choice_directly = partial(multiple_choice, instruction=LETTER_ONLY)
"""The control without a chain of thought."""


def worked_examples(doc: dict[str, Any]) -> str:
    """BBH: what the subject is about, three worked examples, and the question (``doc['shots']`` holds the examples)."""
    return f"{doc['shots']}Q: {doc['question'].strip()}\nA: Let's think step by step."


def target(doc: dict[str, Any]) -> str:
    """The reference answer."""
    return str(doc["answer"])


def _graded(kind: str, doc: dict[str, Any], results: list[str]) -> dict[str, Any]:
    return {"accuracy": float(answers.grade(kind, results[0], doc["answer"])["correct"])}


grade_number = partial(_graded, "number")
grade_expression = partial(_graded, "expression")
grade_choice = partial(_graded, "choice")
grade_words = partial(_graded, "words")


def dataset(benchmark: str, data_path: str | None = None, **_: Any) -> dict[str, Any]:
    """The questions of a benchmark as the harness wants them: ``{"test": datasets.Dataset}``."""
    import datasets

    rows = data.questions(benchmark, data_path)
    if benchmark == "bbh":
        shots = {subject: _shown(given) for subject, given in data.shots(data_path).items()}
        rows = [row | {"shots": shots[row["subject"]]} for row in rows]
    keep = ("id", "question", "choices", "answer", "subject", "shots")
    return {"test": datasets.Dataset.from_list([{k: row[k] for k in keep if k in row} for row in rows])}


def _shown(given: dict[str, Any]) -> str:
    examples = "".join(f"Q: {s['question']}\nA: {s['answer']}\n\n" for s in given["shots"][:3])
    return f"{given['description'].strip()}\n\n{examples}"
