"""Tables of the report as markup: every cell and heading escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from safe_core.benchmarks import published
from safe_core.benchmarks.report.figures import variant_looks
from safe_core.benchmarks.report.numbers import Entry, by_length, entry, reported
from safe_core.benchmarks.report.results import Run
from safe_core.benchmarks.report.schema import Speed, Subject
from safe_core.benchmarks.report.words import escaped, plain, prose, task_title

Line = tuple[str, dict[str, Entry]]
"""A line of a table: what it is called, and its accuracies by task."""
BREAK: Final = "\x1f"
"""Ends a line in a cell; foreign text never holds it, being made ``plain`` first."""


def table(rows: Sequence[tuple[str, ...]], columns: Sequence[str], cells: Sequence[Sequence[str]], kind: str = "numbers") -> str:
    """A table as markup, with one or two headings a row. All is escaped, headings are made plain too; ``BREAK`` ends a line."""
    import pandas as pd

    index = pd.MultiIndex.from_tuples([tuple(map(plain, row)) for row in rows])
    frame = pd.DataFrame(cells, index=index, columns=list(map(plain, columns)))
    with pd.option_context("display.max_colwidth", None, "display.html.border", 0):
        markup: str = frame.to_html(escape=True, classes=kind, na_rep="–", index_names=False)
    return f'<div class="scroll" tabindex="0">{markup.replace(BREAK, "<br>")}</div>'


def compared(groups: Mapping[str, Sequence[Line]], tasks: Sequence[str]) -> str:
    """Lines of several origins as one table, a column per task: accuracy, E/T in brackets, and below it the interval."""
    lines = [(origin, label, by_task) for origin, part in groups.items() for label, by_task in part]
    cells = [[_cell(by_task.get(task)) for task in tasks] for _, _, by_task in lines]
    return table([line[:2] for line in lines], list(map(task_title, tasks)), cells, "numbers grouped")


def _cell(e: Entry | None) -> str:
    if e is None:
        return "–"
    rate = "" if e.rate is None else f" ({e.rate:.2f})"
    interval = "" if e.interval is None else f"{BREAK}{e.interval[0]:.1f} – {e.interval[1]:.1f}, of {e.questions:,}"
    return f"{e.accuracy:.2f}{rate}{interval}"


def measured_lines(runs: Iterable[Run], label: Callable[[Run], str] = lambda run: run.title) -> list[Line]:
    """Lines of a table: runs of different tasks stand in one line where they are called alike."""
    lines: list[Line] = []
    for run in runs:
        name, task = label(run), run.summary.task
        held = next((by_task for other, by_task in lines if other == name and task not in by_task), None)
        if held is None:
            lines.append((name, {task: entry(run)}))
        else:
            held[task] = entry(run)
    return lines


def published_lines(rows: Sequence[published.Row]) -> list[Line]:
    """Lines of a table: what the paper reports."""
    return [(row.label, {task: reported(row, task) for task in row.accuracy}) for row in rows]


def subjects_table(runs: Sequence[Run], task: str) -> str:
    """Accuracy by subject, folded away; nothing where a task has no subjects."""
    names = sorted({name for run in runs for name in run.summary.subjects})
    if len(names) < 2:
        return ""
    cells = [[_subject(run.summary.subjects.get(name)) for run in runs] for name in names]
    held = table([(name,) for name in names], [run.title for run in runs], cells)
    return f"<details><summary>{escaped(task_title(task))}, by subject ({len(names)})</summary>{held}</details>"


def _subject(subject: Subject | None) -> str:
    return "–" if subject is None else f"{100 * subject.accuracy:.1f}{BREAK}of {subject.questions:,}"


def matrix_table(names: Sequence[str], matrix: Sequence[Sequence[float]], title: str, sentence: str) -> str:
    """A matrix of shares as a table whose cells are the darker, the larger the share."""
    head = "".join(f'<th scope="col"><span>{escaped(name)}</span></th>' for name in names)
    rows = []
    for name, shares in zip(names, matrix, strict=True):
        cells = "".join(f'<td style="--share:{100 * share:.1f}%">{100 * share:.1f}</td>' for share in shares)
        rows.append(f'<tr><th scope="row">{escaped(name)}</th>{cells}</tr>')
    return (
        f'<figure><h3>{escaped(title)}</h3><div class="scroll" tabindex="0"><table class="matrix"><thead><tr><td></td>{head}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table></div><figcaption>{prose(sentence)}</figcaption></figure>"
    )


def speed_table(speed: Speed) -> str:
    """A line per method and length."""
    rows, cells = [], []
    for variant, (name, *_) in variant_looks(speed).items():
        rates = by_length(speed, variant, lambda row: row.rate_over_own)
        engine = by_length(speed, variant, lambda row: 100 * row.engine_share)
        wasted = by_length(speed, variant, lambda row: row.discarded)
        fed = by_length(speed, variant, lambda row: max(row.fed_over_least.values(), default=1.0))
        for tokens, rate in rates.items():
            rows.append((name, f"{tokens:,}"))
            cells.append(
                [f"{rate:.2f}", f"{1 / rate:.2f}", f"{engine[tokens]:.1f}", f"{wasted[tokens]:.0f}", f"{fed[tokens]:.2f}"]
            )
    columns = ["rate over own", "time over own", "engine's share, %", "drafts discarded", "fed over least"]
    return table(rows, columns, cells, "numbers grouped")
