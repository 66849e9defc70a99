"""Benchmark questions in one shape, from the hub or from JSONL files at hand. The project ships none of them.

A question is ``{id, question, choices: [{label, text}] or None, answer, subject}``; a task's files are searched below
``data_path`` as ``FOLDER/test.jsonl``, ``NAME.jsonl`` or ``test.jsonl``, or ``data_path`` is the file itself.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from safe_core.types import InputError

Row = dict[str, Any]

BBH_SUBJECTS: Final = (
    "boolean_expressions",
    "causal_judgement",
    "date_understanding",
    "disambiguation_qa",
    "formal_fallacies",
    "logical_deduction_three_objects",
    "movie_recommendation",
    "navigate",
    "penguins_in_a_table",
    "reasoning_about_colored_objects",
    "ruin_names",
    "salient_translation_error_detection",
    "snarks",
    "temporal_sequences",
    "tracking_shuffled_objects_three_objects",
)
"""The 15 subjects of the paper."""


@dataclass(frozen=True)
class Source:
    """Where the questions of a benchmark come from: a folder name for local files, hub datasets, and how to read a hub row."""

    folder: str
    hub: str
    configurations: tuple[str | None, ...]  # None: every configuration the dataset has
    split: str
    read: Callable[[Row, str], Row]  # hub row, configuration -> question without its id


def _gsm8k(row: Row, _: str) -> Row:
    solution, _, answer = row["answer"].rpartition("####")
    return {"question": row["question"], "choices": None, "answer": answer.strip().replace(",", ""), "solution": solution}


def _math500(row: Row, _: str) -> Row:
    return {"id": row["unique_id"], "question": row["problem"], "choices": None} | {k: row[k] for k in ("answer", "subject")}


def _arc(row: Row, _: str) -> Row:
    """Some questions label their choices 1 to 4; all are lettered here."""
    labels, texts = row["choices"]["label"], row["choices"]["text"]
    choices = _lettered(texts)
    answer = choices[labels.index(row["answerKey"])]["label"]
    return {"id": row["id"], "question": row["question"], "choices": choices, "answer": answer, "subject": None}


def _bbh(row: Row, subject: str) -> Row:
    return {"question": row["input"], "choices": None, "answer": row["target"], "subject": subject}


def _mmlu_redux(row: Row, subject: str) -> Row:
    given = row.get("correct_answer")
    numbered = str(given).strip() if given is not None else ""
    corrected = None
    if row["error_type"] == "ok":
        corrected = "ABCD"[int(row["answer"])]
    elif row["error_type"] == "wrong_groundtruth":
        corrected = "ABCD"[int(numbered)] if numbered in tuple("0123") else numbered if numbered in tuple("ABCD") else None
    return {
        "question": row["question"],
        "choices": _lettered(row["choices"]),
        "answer": "ABCD"[int(row["answer"])],
        "corrected_answer": corrected,
        "error_type": row["error_type"],
        "subject": subject,
    }


SOURCES: Final[Mapping[str, Source]] = {
    "gsm8k": Source("gsm8k", "openai/gsm8k", ("main",), "test", _gsm8k),
    "math500": Source("math500", "HuggingFaceH4/MATH-500", ("default",), "test", _math500),
    "arc": Source("arc_challenge", "allenai/ai2_arc", ("ARC-Challenge",), "test", _arc),
    "bbh": Source("bbh", "lukaemon/bbh", BBH_SUBJECTS, "test", _bbh),
    "mmlu-redux": Source("mmlu_redux", "edinburgh-dawg/mmlu-redux", (None,), "test", _mmlu_redux),
}


def questions(benchmark: str, data_path: str | None = None) -> list[Row]:
    """All questions of a benchmark, subjects taken in turn, so that the first N are spread over all of them.

    MMLU-redux is asked by its corrected labels; questions its annotators found to have no single right answer are left out.
    Raises InputError for data that cannot be found or read, naming file and line.
    """
    rows = list(local(benchmark, Path(data_path)) if data_path else _from_hub(benchmark))
    if benchmark == "mmlu-redux":
        known = [row for row in rows if row.get("corrected_answer", row["answer"])]
        rows = [row | {"answer": row.get("corrected_answer", row["answer"])} for row in known]
    if not rows:
        raise InputError(f"There is no question in the data of {benchmark}.")
    return _in_turn(rows)


def fingerprint(rows: Iterable[Row]) -> str:
    """sha256 over what is asked and what is right, so that a resumed run is known to ask the same."""
    digest = hashlib.sha256()
    for row in rows:
        asked = [row[k] for k in ("id", "question", "choices", "answer")]
        digest.update(json.dumps(asked, ensure_ascii=False, sort_keys=True).encode())
    return digest.hexdigest()


def local(benchmark: str, path: Path) -> Iterator[Row]:
    """The questions in local JSONL. Raises InputError with file and line for what is no question."""
    seen: dict[str, int] = {}
    file = _file(benchmark, path)
    for at, row in jsonl(file):
        _check(row, f"{file}, line {at}")
        if row["id"] in seen:
            raise InputError(f"{file}, line {at}: the id '{row['id']}' stands on line {seen[row['id']]} already.")
        seen[row["id"]] = at
        yield row


def jsonl(file: Path) -> Iterator[tuple[int, Row]]:
    """Line numbers and objects of a JSONL file. Raises InputError with the line for what is none."""
    try:
        with file.open("rb") as lines:
            for at, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise InputError(f"{file}, line {at}: this is no JSON ({error}).") from None
                if not isinstance(row, dict):
                    raise InputError(f"{file}, line {at}: an object with 'question' and 'answer' is expected.")
                yield at, row
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}.") from None


def shots(data_path: str | None) -> dict[str, Row]:
    """BBH's three worked examples by subject: ``{description, shots: [{question, answer}]}``.

    Local data has them in ``cot_prompts.jsonl`` beside the questions; otherwise they are those of the evaluation harness.
    """
    if data_path:
        file = _file("bbh", Path(data_path)).with_name("cot_prompts.jsonl")
        return {row["subject"]: row for _, row in jsonl(file)}
    import yaml
    from lm_eval import tasks

    folder = Path(next(iter(tasks.__path__))) / "bbh" / "cot_fewshot"
    found = {}
    for subject in BBH_SUBJECTS:
        # The file names a function of its own for nothing we read: plain YAML is enough.
        given = yaml.load((folder / f"{subject}.yaml").read_text(), Loader=yaml.BaseLoader)
        examples = [{"question": s["input"], "answer": s["target"]} for s in given["fewshot_config"]["samples"]]
        found[subject] = {"subject": subject, "description": given["description"].strip(), "shots": examples[:3]}
    return found


def _file(benchmark: str, path: Path) -> Path:
    folder = SOURCES[benchmark].folder
    tried = (
        [path] if path.suffix == ".jsonl" else [path / folder / "test.jsonl", path / f"{benchmark}.jsonl", path / "test.jsonl"]
    )
    for file in tried:
        if file.is_file():
            return file
    raise InputError(f"There is no data of {benchmark} at {path}: none of {', '.join(map(str, tried))} is there.")


def _check(row: Row, where: str) -> None:
    for key in ("id", "question", "answer"):
        if not isinstance(row.get(key), str) or not row[key].strip():
            raise InputError(f"{where}: '{key}' must be a text that is not blank.")
    choices = row.setdefault("choices", None)
    row.setdefault("subject", None)
    if choices is None:
        return
    good = isinstance(choices, list) and all(
        isinstance(c, dict) and isinstance(c.get("label"), str) and isinstance(c.get("text"), str) for c in choices
    )
    if not good or len(choices) < 2:
        raise InputError(f"{where}: 'choices' must be a list of two or more {{label, text}}, or null.")
    if row["answer"] not in [c["label"] for c in choices]:
        raise InputError(f"{where}: the answer '{row['answer']}' is none of the choices.")


def _from_hub(benchmark: str) -> Iterator[Row]:
    import datasets

    source = SOURCES[benchmark]
    try:
        names = source.configurations
        if names == (None,):
            names = tuple(datasets.get_dataset_config_names(source.hub))
        for name in names:
            for at, row in enumerate(datasets.load_dataset(source.hub, name, split=source.split)):
                yield {"id": f"{benchmark}-{name}-{at:04}", "subject": None} | source.read(dict(row), str(name))
    except (OSError, RuntimeError, ValueError, ConnectionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"The dataset {source.hub} cannot be fetched ({first}). Give a folder with {source.folder}/test.jsonl as --data_path."
        ) from error


def _lettered(texts: Iterable[str]) -> list[Row]:
    return [{"label": "ABCDEFGHIJ"[at], "text": text} for at, text in enumerate(texts)]


def _in_turn(rows: list[Row]) -> list[Row]:
    by_subject: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        by_subject[row["subject"]].append(row)
    return [row for turn in zip_longest(*by_subject.values()) for row in turn if row is not None]
