"""The sections on what the paper shows in figures only or never measured, and on what was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from safe_core.benchmarks import published
from safe_core.benchmarks.report.board import Board, Section
from safe_core.benchmarks.report.figures import by_exposure, dots, drafts, exposures, lengths, phases, total_ms
from safe_core.benchmarks.report.numbers import binned, entry
from safe_core.benchmarks.report.results import Results, Run, varied
from safe_core.benchmarks.report.schema import Speed
from safe_core.benchmarks.report.tables import matrix_table, speed_table, table
from safe_core.benchmarks.report.words import escaped, lacking, note, plain, plural, task_title


def _tokenizers(results: Results, board: Board) -> Section:
    paper = ", ".join(f"{share:g} %" for share in published.AGREEMENT)
    blocks = [note(f"The paper's three pairs agree on {paper} of the Oxford 5000 (its Figure 4).")]
    if not results.agreements:
        blocks.append(lacking("a comparison of tokenizers; published numbers only"))
    for held in results.agreements:
        blocks += [
            note(", ".join(held.names), "models"),
            matrix_table(
                held.names,
                held.agreement,
                "Cut alike",
                f"Share of {held.words:,} words that two tokenizers cut into the same bytes, in percent: the fuller the colour, "
                "the more alike.",
            ),
            matrix_table(
                held.names,
                held.agreement_with_blank,
                "Cut alike, as in running text",
                f"The same {held.words:,} words with a blank before them, as words stand in a sentence.",
            ),
            matrix_table(
                held.names,
                held.oov_like,
                "OOV-like in running text",
                "Share of the row's token ends at which the column has no boundary, in percent, in a text of "
                f"{held.text_bytes:,} bytes: with the row as drafter, the column could not be asked there. It is not symmetric.",
            ),
        ]
    return Section("tokenizers", "Tokenizers", blocks)


def _speed(results: Results, board: Board) -> Section:
    blocks = [
        note(
            "The paper, on MATH500 at 1,000 tokens: a single model takes 30 to 40 s, UniTE about 80 s, UniTE+SAFE stays within "
            f"about 10 s of the single model; {published.GAC_UNCACHED}."
        )
    ]
    if not results.speeds:
        blocks.append(lacking("a measurement of speed; published numbers only"))
    for speed in results.speeds:
        blocks += _one_speed(speed, board)
    return Section("speed", "Speed", blocks)


def _one_speed(speed: Speed, board: Board) -> list[str]:
    models = " + ".join(speed.models) + (f", {speed.dtype}" if speed.dtype else "") + (f" · {speed.title}" if speed.title else "")
    prompts, lengths_seen = len({row.prompt for row in speed.rows}), sorted({row.tokens for row in speed.rows})
    over = f"Means over {plural(prompts, 'prompt')}."
    if len(lengths_seen) == 1:
        over += f" Only {lengths_seen[0]:,} tokens were measured, so growth with length cannot be seen."
    return [
        note(models, "models"),
        board.figure(
            lengths(speed, lambda row: 1 / row.rate_over_own, "time over the drafter's own", paper=True),
            "Time per token against length",
            "Time per token over that of the drafter's own generate in the same process: 1 is as fast as one model alone, lower "
            "is faster, and a flat line means that cost does not grow with length. Open marks: the paper at 1,000 tokens. "
            + over,
        ),
        board.figure(
            lengths(speed, lambda row: 100 * row.ensemble_rate, "E/T, %"),
            "Fused tokens against length",
            f"Ensemble operations per 100 response tokens: how often a method fuses. {over}",
        ),
        board.figure(
            lengths(speed, lambda row: 100 * row.engine_share, "engine's share, %"),
            "The engine's own share against length",
            f"Time that is no model's forward pass, in percent of the whole; it must not grow with length. {over}",
        ),
        speed_table(speed),
    ]


def _exposure(results: Results, board: Board) -> Section:
    fused = [r for r in results.ordered() if r.summary.method != "single" and r.summary.statistics.tokens]
    blocks = [
        note(
            "Never measured in the paper: how often a model was asked for its opinion although it read an OOV-like prefix, "
            "one that ends where its own reading has no boundary. SAFE leaves such places to the drafter."
        )
    ]
    for task in dict.fromkeys(run.summary.task for run in fused):
        blocks += _exposed([run for run in fused if run.summary.task == task], task_title(task), board)
    if not fused:
        blocks.append(lacking("a run of a method that fuses"))
    elif not any(len(binned(run)) > 1 for run in fused):
        blocks.append(lacking("results.jsonl of a run in which some questions were exposed and others less or not"))
    return Section("exposure", "Exposure to OOV-like prefixes", blocks)


def _exposed(runs: Sequence[Run], task: str, board: Board) -> list[str]:
    """Exposure and accuracy on one task, by run and, of runs whose questions differ in it, by question."""
    by_run = (
        "Each mark is a run: to the right, models were asked more often on an OOV-like prefix; higher is more accurate, with the "
        "95 % interval."
    )
    blocks = [board.figure(exposures(runs), f"{task}: exposure and accuracy, by run", by_run, runs)]
    several = [run for run in runs if len(binned(run)) > 1]
    if several:
        by_question = (
            "Questions of each run, sorted by the share of their tokens at which a model was asked on an OOV-like prefix: the "
            "share answered rightly, with the 95 % interval. A line that falls fits the paper's account; but long, hard answers "
            "meet more such places, too."
        )
        blocks.append(board.figure(by_exposure(several), f"{task}: exposure and accuracy, by question", by_question, several))
    return blocks


def _work(results: Results, board: Board) -> Section:
    drafted = [run for run in results.ordered() if run.summary.method == "safe" and run.summary.statistics.drafted]
    timed = [run for run in results.ordered() if total_ms(run) > 0]
    blocks = [note("Never measured in the paper: what is computed in vain, and where the time goes.")]
    if drafted:
        sentence = "Drafted tokens that an ensemble point threw away, in percent of all that were drafted: shorter is better."
        blocks.append(board.figure(drafts(drafted), "Wasted drafts", sentence, drafted))
    else:
        blocks.append(lacking("a SAFE run that counted its drafts"))
    if timed:
        share = max(100 * run.summary.harness_share for run in timed)
        sentence = (
            "Shares of the engine's running time, left to right as in the legend: what is neither draft nor verify is the price "
            f"of ensembling itself. The evaluation harness took at most {share:.1f} % of the whole besides."
        )
        blocks.append(board.figure(phases(timed), "Time by phase", sentence, timed))
    else:
        blocks.append(lacking("a run that timed its phases"))
    return Section("work", "Work and waste", blocks)


def _weak(results: Results, board: Board) -> Section:
    """Runs whose drafter is, alone on the same task, the worse model."""
    blocks = [note("Never measured in the paper: what happens when the weaker model drafts.")]
    for task in dict.fromkeys(run.summary.task for run in results.runs):
        runs = results.of(task)
        alone = {r.summary.models[0]: r for r in runs if r.summary.method == "single"}
        weak = [r for r in runs if not varied(r.summary) and _has_weak_drafter(r, alone)]
        if not weak:
            continue
        sets = {frozenset(r.summary.models) for r in weak}
        about = [r for r in runs if len(r.summary.models) > 1 and frozenset(r.summary.models) in sets and not varied(r.summary)]
        named = [entry(r, f"{'weaker' if r in weak else 'stronger'} drafts: {r.title}") for r in about]
        singles = [entry(r) for name, r in alone.items() if any(name in models for models in sets)]
        blocks.append(
            board.figure(
                dots([*singles, *named]),
                f"{task_title(task)}: the weaker model drafts",
                "The models alone, and together with either as drafter; bars are 95 % intervals, E/T in brackets.",
                about,
            )
        )
    if len(blocks) == 1:
        blocks.append(lacking("a run whose drafter is the worse of its models, with each of them alone on the same task"))
    return Section("weak", "A weak drafter", blocks)


def _has_weak_drafter(run: Run, alone: Mapping[str, Run]) -> bool:
    drafter, *verifiers = (alone.get(name) for name in run.summary.models)
    if run.summary.method == "single" or drafter is None or None in verifiers:
        return False
    return any(v is not None and v.summary.accuracy > drafter.summary.accuracy for v in verifiers)


def _sources(results: Results, board: Board) -> Section:
    blocks = []
    if results.runs:
        cells = [
            (
                plain(task_title(run.summary.task)),
                plain(run.summary.called),
                f"{run.summary.questions:,}"
                + (f", {run.summary.failed:,} failed" if run.summary.failed else "")
                + ("" if run.summary.complete else ", not finished"),
                f"{run.summary.statistics.tokens_per_second:.1f}",
                f"{run.summary.seconds / 3600:.2f}",
                plain(run.source),
            )
            for run in results.ordered()
        ]
        columns = ["task", "models, drafter first", "questions", "tokens/s", "hours", "file"]
        blocks.append(table([(run.title,) for run in results.ordered()], columns, cells, "numbers facts"))
        versions = {", ".join(f"{name} {number}" for name, number in run.summary.versions.items()) for run in results.runs}
        blocks.append(note(f"Made with {'; '.join(sorted(versions - {''})) or 'unknown versions'}."))
    if results.problems:
        items = "".join(f"<li>{escaped(problem)}</li>" for problem in results.problems)
        blocks.append(f'<div class="problems" role="note"><h3>Left out</h3><ul>{items}</ul></div>')
    else:
        blocks.append(note("Every file that was found could be used."))
    return Section("sources", "What was read", blocks)


SECTIONS: Final = (_tokenizers, _speed, _exposure, _work, _weak, _sources)
