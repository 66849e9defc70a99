"""All that was read: runs with the titles that tell them apart, measurements of speed, comparisons of tokenizers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Final

from safe_core.benchmarks import published
from safe_core.benchmarks.report.schema import KINDS, Agreement, Question, Speed, Summary
from safe_core.benchmarks.report.words import plural
from safe_core.types import Settings


@dataclass(frozen=True, slots=True)
class File:
    """A file's name as it is shown, the folder that says which files belong together, and its bytes."""

    name: str
    folder: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Run:
    """A summary, where it was found, what it is called here, and its questions where they were there too."""

    source: str
    summary: Summary
    title: str = ""
    rows: tuple[Question, ...] = ()


@dataclass(slots=True)
class Results:
    """All that could be used. ``problems`` are sentences that name the files that could not."""

    runs: list[Run] = field(default_factory=list)
    speeds: list[Speed] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def of(self, task: str) -> list[Run]:
        """Runs of one task, those of one model first, then UniTE before GaC, as the paper has them."""
        return sorted((r for r in self.runs if r.summary.task == task), key=lambda r: (KINDS.index(r.summary.kind), r.title))

    @property
    def others(self) -> list[tuple[int, str]]:
        """How much there is besides runs."""
        return [(len(self.speeds), "speed measurement"), (len(self.agreements), "tokenizer comparison")]

    @property
    def said(self) -> str:
        """What there is, as words."""
        return ", ".join(plural(count, name) for count, name in [(len(self.runs), "run"), *self.others] if count)

    def ordered(self) -> list[Run]:
        """All runs, task by task in the paper's order."""
        tasks = dict.fromkeys([*published.TASKS, *sorted(run.summary.task for run in self.runs)])
        return [run for task in tasks for run in self.of(task)]


def varied(summary: Summary) -> dict[str, Any]:
    """The settings of a SAFE run that an ablation changes, where they are not the paper's."""
    default = asdict(Settings())
    keys = ("n", "lam", "sharpen", "top_k", "weights", "temperature", "commit", "after_confirm", "check_oov", "check_consensus")
    held = summary.settings
    return {key: held[key] for key in keys if key in held and held[key] != default[key]}


def titled(runs: Sequence[Run]) -> list[Run]:
    """Runs with their titles: the label, and of runs of one task with the same label whatever tells them apart."""
    groups: defaultdict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.summary.task, run.summary.label].append(run)
    return [replace(run, title=_title(run, groups[run.summary.task, run.summary.label])) for run in runs]


def _title(run: Run, alike: Sequence[Run]) -> str:
    if len(alike) == 1:
        return run.summary.label
    facts = [{"models": other.summary.called, **other.summary.settings} for other in alike]
    own = {"models": run.summary.called, **run.summary.settings}
    differing = [key for key in dict.fromkeys(k for fact in facts for k in fact) if len({_key(f.get(key)) for f in facts}) > 1]
    default = asdict(Settings())
    words = [setting_in_words(key, own.get(key)) for key in differing if own.get(key, default.get(key)) != default.get(key)]
    if sum(all(_key(f.get(key)) == _key(own.get(key)) for key in differing) for f in facts) > 1:
        words.append(f"{run.summary.questions:,} questions, {PurePosixPath(run.source).parent}")
    return f"{run.summary.label} · {', '.join(words) or 'default settings'}"


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


SYMBOLS: Final = {"lam": "lambda", "top_k": "k"}


def setting_in_words(key: str, value: Any) -> str:
    """One setting as words."""
    match key, value:
        case "check_oov", bool():
            return "OOV-like check" if value else "no OOV-like check"
        case "check_consensus", bool():
            return "consensus check" if value else "no consensus check"
        case "sharpen", "none":
            return "no sharpening"
        case "sharpen", "geom":
            return "geometric sharpening"
        case "sharpen", "heur":
            return "heuristic sharpening"
        case "models", _:
            return str(value)
        case _:
            shown = value if isinstance(value, str) else "default" if value is None else json.dumps(value)
            return f"{SYMBOLS.get(key, key.replace('_', ' '))} {shown}"
