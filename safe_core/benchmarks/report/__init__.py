"""One offline page of everything that was measured, beside what the paper reports.

Reads the files that the other benchmarks write (``summary.json`` with its ``results.jsonl``, the JSON of ``speed`` and of
``tokenizers``), wherever they lie below the folders that are given, and draws tables and curves. Nothing is counted here that
a run has counted already; a file that is broken or foreign is named on the page and left out.

Everything a file says is data: it reaches the page escaped, or as JSON that is only ever drawn.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from safe_core.benchmarks.report.page import page_of
from safe_core.benchmarks.report.reading import files_of, is_ours, read_bytes, results_of
from safe_core.benchmarks.report.results import File
from safe_core.types import InputError

__all__ = ["File", "add_arguments", "files_of", "is_ours", "page_of", "read_bytes", "results_of", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What ``report`` takes on the command line."""
    parser.add_argument("paths", nargs="+", metavar="DIR", help="folders (or files) that the benchmarks wrote")
    parser.add_argument("--out", default="report.html", metavar="OUT.html", help="where the page goes (default: report.html)")
    parser.set_defaults(save=None)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Write the page; returns where it is and what it was made of. Raises InputError where nothing can be read or written."""
    results = results_of(files_of(options.paths))
    for problem in results.problems:
        print(f"report: {problem}", file=sys.stderr)
    target = Path(options.out)
    try:
        target.write_text(page_of(results), encoding="utf-8")
    except OSError as error:
        raise InputError(f"The page cannot be written to {target}: {error.strerror}. Choose another --out.") from error
    counts = {"runs": len(results.runs), "speed": len(results.speeds), "tokenizers": len(results.agreements)}
    print(f"{target}: made of {results.said}.", flush=True)
    return {"kind": "report", "out": str(target), **counts, "problems": results.problems}
