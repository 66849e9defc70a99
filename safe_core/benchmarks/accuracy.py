"""Accuracy on the paper's benchmarks, through lm-evaluation-harness. The flags are those of the paper's own code."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from safe_core.__main__ import weights, window
from safe_core.benchmarks import answers, data
from safe_core.benchmarks.answerer import Answerer, Row, Setup
from safe_core.benchmarks.record import Record, total
from safe_core.benchmarks.report.numbers import wilson
from safe_core.types import InputError, Method, Settings, default_sharpening

TASKS: Final = ("gsm8k", "math500", "arc", "bbh", "mmlu-redux", "arc-nocot", "mmlu-redux-nocot")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    def add(name: str, **options: Any) -> None:
        """A flag in the spelling of the paper's code, and with hyphens."""
        spellings = dict.fromkeys([f"--{name}", f"--{name.replace('_', '-')}"])
        parser.add_argument(*spellings, dest=name, **options)

    add("model_path1", required=True, metavar="MODEL", help="the drafter: built-in name, folder, .gguf file or hub id")
    for further in ("model_path2", "model_path3", "model_path4"):
        add(further, metavar="MODEL", help="a verifier")
    add("data_name", required=True, metavar="TASK", help=", ".join(TASKS))
    add("data_path", metavar="DIR", help="local JSONL instead of the hub's data")
    add("output_path", required=True, metavar="DIR", help="rows and summary; an interrupted run goes on from there")
    add("ensemble", type=_truth, default=True, metavar="True|False", help="False: the first model alone")
    add("method", choices=["safe", "always"], default="safe", help="selective, or at every token")
    add("ensemble_type", choices=["unite", "gac"], default="unite")
    add("sharpen_type", choices=["heur", "geom", "none"], help="default: heur under SAFE, none in the baselines")
    add("gamma", type=window, default=5, help="tokens of a window, or 'auto'")
    add("threshold", type=float, default=0.1, help="lambda of heur")
    add("top_k", type=int, default=10)
    add("weights", type=weights, metavar="W,W,...", help="drafter first")
    add("max_new_tokens", type=int, default=2048)
    add("temperature", type=float, default=0.0)
    add("seed", type=int, default=0)
    add("after_confirm", choices=["redraft", "continue"], default="redraft")
    add("no_lookup", action="store_true", help="one drafted token a pass")
    add("no_oov_check", action="store_true", help="ablation")
    add("no_consensus_check", action="store_true", help="ablation")
    add("system", metavar="TEXT", help="system prompt of every model")
    add("limit", type=int, metavar="N", help="only the first N questions, spread over the subjects")
    add("save_traces", action="store_true", help="keep the trace of every question, for the page")
    add("retry_failed", action="store_true", help="ask questions again that failed before")
    add("workers", type=int, default=0, metavar="K", help="K ensembles at once, on Ray")
    add("ray_address", metavar="ADDRESS", help="an existing Ray cluster, 'auto' for the one of this machine")
    for name in ("device", "dtype", "attention"):
        add(name, default="auto")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Ask every question that has no row yet, and write the summary. Raises InputError and ModelError with a sentence."""
    if options.data_name not in TASKS:
        raise InputError(f"There is no task '{options.data_name}'. There are: {', '.join(TASKS)}.")
    if options.limit is not None and options.limit < 1:
        raise InputError(f"--limit must be at least 1, not {options.limit}.")
    setup = _setup(options)
    try:
        from safe_core.benchmarks import harness
    except ImportError as error:
        raise InputError(f"This needs the evaluation packages ({error.name}): pip install 'safe-lens[eval]'.") from None
    task = harness.load(options.data_name, options.data_path, options.limit)
    record = Record(Path(options.output_path), _settings(options, setup, task.version, task.harness_task.eval_docs))
    if options.retry_failed:
        record.forget_failures()
    return _ask(options, setup, task, record)


def _ask(options: argparse.Namespace, setup: Setup, task: Any, record: Record) -> dict[str, Any]:
    from tqdm import tqdm

    from safe_core.benchmarks import harness

    docs = task.docs
    order = [doc["id"] for doc in docs]
    missing = sum(id_ not in record.rows for id_ in order)
    answerer = _answerer(options, setup) if missing else None
    if answerer is not None:
        answerer.load()  # is no part of the run's time
    bar = tqdm(total=len(order), initial=len(order) - missing, unit="question", desc=setup.label, file=sys.stderr)
    begun = time.perf_counter()
    fresh: list[float] = []
    came: list[float] = []

    def finished(row: Row, doc: Row) -> None:
        events = row.pop("events")
        graded = answers.grade(task.answer_kind, row["response"], doc["answer"])
        kept = {"trace": _keep_trace(record, len(record.rows), row["id"], events) if events else None}
        record.add({"id": row["id"], "subject": doc["subject"], "answer": doc["answer"], **graded, **row, **kept})
        fresh.append(row["seconds"])
        came.append(time.perf_counter())
        bar.set_postfix_str(f"accuracy {_accuracy(record.rows.values()):.1%}", refresh=False)
        bar.update()

    try:
        task.run(harness.SafeLM(answerer or (lambda asked: iter(())), record.rows, finished), setup.settings.max_new_tokens)
    finally:
        bar.close()
        if answerer is not None:
            answerer.close()
        seconds = time.perf_counter() - begun
        record.sort(order)
        summary = _summary(options, setup, [record.rows[i] for i in order if i in record.rows], len(order))
        if fresh:
            summary["seconds"] = round(seconds, 3)
            summary["harness_share"] = harness_share(fresh, came, max(options.workers, 1), seconds)
        record.save("summary.json", summary)
    _say(summary)
    return summary


def harness_share(answering: Sequence[float], came: Sequence[float], workers: int, seconds: float) -> float:
    """The part of the workers' time that is neither answering nor waiting for the last answers.

    ``answering`` are the seconds of every answer, ``came`` the times at which answers came. At the end there are fewer questions
    than workers, and each of the last answers is that of another worker, which then has nothing left to do: no overhead.
    """
    workers = min(workers, len(came))
    without = sum(came[-1] - at for at in came[-workers:])
    return round(max(0.0, 1 - (sum(answering) + without) / workers / seconds), 4)


def _answerer(options: argparse.Namespace, setup: Setup) -> Any:
    if options.workers < 0:
        raise InputError(f"--workers must be 0 or more, not {options.workers}.")
    if options.workers == 0 and options.ray_address is None:
        return Answerer(setup, traces=options.save_traces)
    from safe_core.benchmarks.cluster import Workers

    return Workers(setup, max(options.workers, 1), address=options.ray_address, traces=options.save_traces)


def _setup(options: argparse.Namespace) -> Setup:
    paths = [getattr(options, f"model_path{number}") for number in range(1, 5)]
    models = tuple(path for path in paths if path)
    method: Method = "safe" if options.method == "safe" else options.ensemble_type
    if not options.ensemble:
        models, method = models[:1], "single"
    elif len(models) < 2:
        raise InputError("An ensemble needs a second model: give --model_path2, or --ensemble False for one model alone.")
    settings = Settings(
        n=options.gamma,
        ensemble=options.ensemble_type,
        sharpen=options.sharpen_type or default_sharpening(method),
        lam=options.threshold,
        top_k=options.top_k,
        max_new_tokens=options.max_new_tokens,
        weights=options.weights,
        temperature=options.temperature,
        seed=options.seed,
        after_confirm=options.after_confirm,
        lookup=not options.no_lookup,
        check_oov=not options.no_oov_check,
        check_consensus=not options.no_consensus_check,
    )
    return Setup(models, method, settings, options.system, options.device, options.dtype, options.attention)


def _settings(options: argparse.Namespace, setup: Setup, task_version: float, docs: Iterable[Row]) -> dict[str, Any]:
    """What decides an answer: a folder's rows must agree in all of it. How many are asked, and where, is free."""
    return {
        "task": options.data_name,
        "task_version": task_version,
        "data_sha256": data.fingerprint(docs),
        **{key: value for key, value in asdict(setup).items() if key != "device"},
    }


def _summary(options: argparse.Namespace, setup: Setup, rows: Sequence[Row], asked: int) -> dict[str, Any]:
    by_subject: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["subject"]:
            by_subject[row["subject"]].append(row)
    return {
        "kind": "accuracy",
        "task": options.data_name,
        "method": setup.method,
        "label": setup.label,
        "models": list(setup.models),
        "settings": asdict(setup.settings),
        **{key: value for key, value in asdict(setup).items() if key in ("system", "device", "dtype", "attention")},
        "complete": len(rows) == asked,
        **_score(rows),
        "failed": sum(row["error"] is not None for row in rows),
        "subjects": {name: _score(part) for name, part in sorted(by_subject.items())},
        "statistics": total(rows),
        "versions": versions(),
    }


def _score(rows: Sequence[Row]) -> dict[str, Any]:
    """``{questions, correct, accuracy, interval}``; the interval is Wilson's, at 95 %. A failed question counts as wrong."""
    correct = sum(row["correct"] for row in rows)
    return {"questions": len(rows), "correct": correct, "accuracy": _accuracy(rows), "interval": _interval(correct, len(rows))}


def _interval(correct: int, questions: int) -> list[float]:
    return [round(end, 4) for end in wilson(correct, questions)] if questions else [0.0, 1.0]


def _accuracy(rows: Iterable[Row]) -> float:
    marks = [row["correct"] for row in rows]
    return sum(marks) / len(marks) if marks else 0.0


def versions() -> dict[str, str]:
    """Of everything that may change a result."""
    found = {"python": platform.python_version()}
    for package in ("safe-lens", "torch", "transformers", "tokenizers", "lm-eval", "math-verify", "ray"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _keep_trace(record: Record, number: int, id_: str, events: bytes) -> str:
    name = f"traces/{number:05}-{''.join(c if c.isalnum() or c in '-_' else '_' for c in id_)}.jsonl"
    record.write(name, events)
    return name


def _say(summary: dict[str, Any]) -> None:
    low, high = summary["interval"]
    statistics = summary["statistics"]
    print(
        f"{summary['label']} on {summary['task']}: {summary['accuracy']:.2%} of {summary['questions']} "
        f"(95 % interval {low:.1%} to {high:.1%}), {summary['failed']} failed, E/T {statistics['ensemble_rate']:.2%}, "
        f"asked on an OOV-like prefix {statistics.get('asked_oov', 0)} times, {statistics['tokens_per_second']} tokens/s, "
        f"harness {summary.get('harness_share', 0):.1%} of the time"
    )


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError("True or False")
    return text.lower() == "true"
