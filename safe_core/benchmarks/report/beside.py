"""The sections in which what was measured stands beside what the paper reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from safe_core.benchmarks import published
from safe_core.benchmarks.report.board import Board, Section
from safe_core.benchmarks.report.figures import dots
from safe_core.benchmarks.report.numbers import entry, reported
from safe_core.benchmarks.report.results import Results, Run, setting_in_words, varied
from safe_core.benchmarks.report.schema import Agreement
from safe_core.benchmarks.report.tables import compared, measured_lines, published_lines, subjects_table
from safe_core.benchmarks.report.words import escaped, lacking, listed, note, plural, prose, task_title

SIMILAR_FROM: Final = 0.9
"""Tokenizers that cut at least this share of a word list alike count as similar; those of the paper's similar pair do."""
READ: Final = "Filled marks with their 95 % interval were measured here, open marks are the paper's."


def _summary(results: Results, board: Board) -> Section:
    questions = sum(run.summary.questions for run in results.runs)
    sets = len({tuple(run.summary.models) for run in results.runs})
    facts = [(len(results.runs), "run"), (questions, "answer"), (sets, "model set"), *results.others]
    tiles = ""
    for count, name in facts:
        tiles += "<div><b>{}</b><span>{}</span></div>".format(*map(escaped, plural(count, name).split(" ", 1)))
    said = _in_short(results)
    items = "".join(f"<li>{prose(line)}</li>" for line in said)
    short = f"<ul>{items}</ul>" if said else note("No task was run with and without SAFE on the same models.", "lacking")
    return Section("short", "In short", [f'<div class="tiles">{tiles}</div>', short])


def _in_short(results: Results) -> list[str]:
    """One sentence for every task and set of models that was run both with and without SAFE."""
    said = []
    for run in results.ordered():
        s = run.summary
        if s.method != "safe" or varied(s):
            continue
        for other in results.runs:
            o = other.summary
            same = (o.task, o.models, o.questions) == (s.task, s.models, s.questions)
            if same and o.method in ("unite", "gac") and s.kind == f"{o.kind}+SAFE":
                apart = s.interval[0] > o.interval[1] or o.interval[0] > s.interval[1]
                intervals = "do not overlap" if apart else "overlap"
                said.append(
                    f"{task_title(s.task)}, {s.called}: {s.kind} {100 * s.accuracy:.1f} %, "
                    f"{o.kind} {100 * o.accuracy:.1f} % ({100 * (s.accuracy - o.accuracy):+.1f} points of {s.questions:,} "
                    f"questions; the 95 % intervals {intervals})."
                )
    return said


def _accuracy(results: Results, board: Board) -> Section:
    others = sorted({r.summary.task for r in results.runs} - set(published.TASKS))
    tasks = [*published.MAIN_TASKS, *others]
    blocks = [
        note(
            "Share of questions answered rightly, per method and task. The paper's models are 7 to 8 billion parameters large: "
            "compare what a method adds to its models, not the levels."
        )
    ]
    for task in tasks:
        runs = results.of(task)
        if runs:
            paper = [reported(row, task) for row in published.MAIN if task in row.accuracy]
            blocks.append(
                board.figure(
                    dots([*map(entry, runs), *paper]),
                    task_title(task),
                    f"Accuracy on {task_title(task)}: further right is better. Filled marks with their 95 % interval (Wilson) "
                    "were measured here, open marks are the paper's; E/T, fused per 100 tokens, stands in brackets.",
                    runs,
                )
            )
    runs = [run for task in tasks for run in results.of(task)]
    groups = {"here": measured_lines(runs), "paper": published_lines(published.MAIN)}
    blocks += _lacking_tasks(published.MAIN_TASKS, results)
    blocks += ["<h3>All numbers</h3>", compared(groups, tasks)]
    blocks.append(note("Percent right, E/T in percent in brackets; below it the 95 % interval and the number of questions."))
    return Section("accuracy", "Accuracy", blocks + [subjects_table(results.of(task), task) for task in tasks])


def _beside(board: Board, runs: Sequence[Run], rows: Sequence[published.Row], tasks: Sequence[str], sentence: str) -> list[str]:
    """A figure per task with runs, and one table with the published rows."""
    blocks = []
    for task in tasks:
        part = [run for run in runs if run.summary.task == task]
        if part:
            paper = [reported(row, task) for row in rows if task in row.accuracy]
            drawn = dots([*map(entry, part), *paper])
            blocks.append(board.figure(drawn, task_title(task), sentence, part))
    return [*blocks, compared({"here": measured_lines(runs), "paper": published_lines(rows)}, tasks)]


def _lacking_tasks(tasks: Sequence[str], results: Results) -> list[str]:
    """A sentence on the tasks that nothing here was measured on."""
    none = [task_title(task) for task in tasks if not results.of(task)]
    return [lacking(f"a run of {listed(none)}; published numbers only")] if none else []


def _control(results: Results, board: Board) -> Section:
    runs = [run for task in published.CONTROL_TASKS for run in results.of(task)]
    sentence = f"Answers of one token: if SAFE's gain comes from stability, both methods must be level here. {READ}"
    blocks = [
        note("Without a chain of thought the answer is one token, and there is no long response to become unstable."),
        *_lacking_tasks(published.CONTROL_TASKS, results),
        *_beside(board, runs, published.CONTROL, published.CONTROL_TASKS, sentence),
    ]
    return Section("control", "Control without chain of thought", blocks)


def _similar(results: Results, board: Board) -> Section:
    runs = [run for task in published.MAIN_TASKS for run in results.of(task) if _is_similar(run, results.agreements)]
    tasks = sorted({"math500", *(run.summary.task for run in runs)}, key=list(published.TASKS).index)
    blocks = [note("Where tokenizers agree there are few OOV-like tokens, and UniTE alone has less to lose.")]
    if not runs:
        words = f"a run whose models' tokenizers cut {SIMILAR_FROM:.0%} of the words alike, together with a tokenizers.json"
        blocks.append(lacking(f"{words} that names them; published numbers only"))
    sentence = f"Models whose tokenizers cut at least {SIMILAR_FROM:.0%} of the words alike. {READ}"
    return Section("similar", "Similar tokenizers", [*blocks, *_beside(board, runs, published.SIMILAR, tasks, sentence)])


def _is_similar(run: Run, agreements: Sequence[Agreement]) -> bool:
    models = run.summary.models
    for held in agreements:
        shares = [held.between(models[0], other) for other in models[1:]]
        if shares and all(share is not None and share >= SIMILAR_FROM for share in shares):
            return True
    return False


def _ablations(results: Results, board: Board) -> Section:
    """SAFE with one thing changed at a time, each check alone among them; the same models with the paper's settings beside it."""
    safe = [run for run in results.runs if run.summary.method == "safe"]
    changed = {_about(run) for run in safe if varied(run.summary)}
    runs = sorted((r for r in safe if _about(r) in changed), key=lambda r: (len(varied(r.summary)), _variation(r)))
    blocks = [note("What each part of SAFE contributes: runs that change one setting, beside the settings of the paper.")]
    if not runs:
        blocks.append(lacking("a SAFE run with another n, lambda or sharpening, or with a check switched off"))
    tasks = [*published.ABLATION_TASKS, *sorted({r.summary.task for r in runs} - set(published.ABLATION_TASKS))]
    for task in tasks:
        part = [run for run in runs if run.summary.task == task]
        if part:
            paper = [reported(row, task) for row in published.ABLATIONS if task in row.accuracy]
            several = len({_about(run) for run in part}) > 1
            here = [entry(run, _variation(run) + (f" · {run.summary.called}" if several else "")) for run in part]
            sentence = f"Accuracy of SAFE on {task_title(task)} as one setting changes; E/T in brackets. {READ}"
            blocks.append(board.figure(dots([*here, *paper]), f"{task_title(task)}: one setting changed", sentence, part))
    here_lines = measured_lines(runs, lambda run: f"{run.summary.called}, {run.summary.kind}: {_variation(run)}")
    blocks.append(compared({"here": here_lines, "paper": published_lines(published.ABLATIONS)}, tasks))
    blocks.append(_checks_note(runs))
    return Section("ablations", "Ablations, and each check alone", blocks)


def _checks_note(runs: Sequence[Run]) -> str:
    wanted = {"check_oov": "no OOV-like check", "check_consensus": "no consensus check"}
    without = [words for key, words in wanted.items() if not any(varied(run.summary).get(key) is False for run in runs)]
    said = "The paper never measured each check alone."
    return note(said + (f" Not in these folders either: a run with {listed(without)}." if without else ""))


def _about(run: Run) -> tuple[str, tuple[str, ...], str]:
    s = run.summary
    return s.task, tuple(s.models), s.kind


def _variation(run: Run) -> str:
    changed = varied(run.summary)
    return ", ".join(setting_in_words(key, value) for key, value in changed.items()) or "as the paper has it (lambda 0.1, n 5)"


def _large(results: Results, board: Board) -> Section:
    runs = [r for task in published.MAIN_TASKS for r in results.of(task) if all("32b" in m.lower() for m in r.summary.models)]
    tasks = sorted({"mmlu-redux", "math500", *(r.summary.task for r in runs)}, key=list(published.TASKS).index)
    blocks = []
    if not runs:
        blocks.append(lacking("a run whose models all have 32B in their names; published numbers only"))
    sentence = f"Models of 32 billion parameters. {READ}"
    return Section("large", "32B models", [*blocks, *_beside(board, runs, published.LARGE, tasks, sentence)])


SECTIONS: Final = (_summary, _accuracy, _control, _similar, _ablations, _large)
