"""``python -m safe_core.benchmarks accuracy | speed | memory | tokenizers | report``: the paper's claims, on your own models."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safe_core.__main__ import DRAFTER, VERIFIER, Parser
from safe_core.benchmarks import accuracy, report, speed, tokenizers
from safe_core.types import InputError, SafeError

NOTHING_SAVED = "Nothing was saved."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark; returns the exit code: 0, 2 for bad input, 130 for Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        result: dict[str, Any] = options.command(options)
        if getattr(options, "save", None):
            _save(Path(options.save), result)
    except SafeError as problem:
        print(f"benchmarks: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"benchmarks: stopped. {options.stopped}", file=sys.stderr)
        return 130
    return 0


def _save(path: Path, result: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(result, indent=2) + "\n")
    except OSError as problem:
        raise InputError(f"{path} cannot be written: {problem.strerror}.") from None
    print(f"Saved to {path}.")


def _speed(options: argparse.Namespace) -> dict[str, Any]:
    prompts = options.prompt or speed.PROMPTS[: options.prompts]
    if max(options.tokens) < 8:
        raise InputError("A speed below 8 tokens measures nothing; give --tokens 100 or more.")
    if options.random_weights:
        return speed.on_random_weights(options.random_weights, sorted(options.tokens), options.disagree)
    return speed.measure(_models(options), prompts, sorted(options.tokens), options.variants)


def _memory(options: argparse.Namespace) -> dict[str, Any]:
    return speed.memory(_models(options), speed.PROMPTS[0], max(options.tokens))


def _models(options: argparse.Namespace) -> list[Any]:
    from safe_core import api

    names = [options.drafter, *(options.verifier or [VERIFIER])]
    return [api.load(name, dtype=options.dtype, device=options.device, attention=options.attention) for name in names]


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m safe_core.benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    _add(
        commands.add_parser("accuracy", help="answer a benchmark's questions with an ensemble, and score them"),
        accuracy,
        "Finished questions are kept; the same command goes on behind them.",
    )
    _add(commands.add_parser("tokenizers", help="how alike tokenizers cut text (Figure 4), and the OOV-like rate"), tokenizers)
    _add(commands.add_parser("report", help="one HTML page of everything measured, beside the paper's numbers"), report)
    one = commands.add_parser("speed", help="time per token of every method over the drafter's own generate")
    one.add_argument("--prompts", type=int, default=1, metavar="K", help="how many of the built-in prompts to average over")
    one.add_argument("--prompt", action="append", metavar="TEXT", help="measure on this prompt instead")
    one.add_argument("--variants", nargs="+", choices=list(speed.VARIANTS), default=list(speed.DEFAULT_VARIANTS))
    one.add_argument(
        "--random-weights", nargs="+", metavar="SHAPE", help="qwen2.5-7b llama-3.1-8b: random models of these shapes"
    )
    one.add_argument("--disagree", type=float, nargs="+", default=[0.05, 0.15], help="with --random-weights: about E/T")
    one.set_defaults(command=_speed)
    two = commands.add_parser("memory", help="peak memory above the weights with both panes running")
    two.set_defaults(command=_memory)
    for command, lengths in ((one, [100, 500, 1000, 2000]), (two, [500])):
        command.set_defaults(stopped=NOTHING_SAVED)
        command.add_argument("--tokens", type=int, nargs="+", default=lengths, metavar="T", help="response lengths")
        command.add_argument("--drafter", default=DRAFTER)
        command.add_argument("--verifier", action="append")
        command.add_argument("--dtype", default="auto")
        command.add_argument("--device", default="auto")
        command.add_argument("--attention", default="auto")
    one.add_argument("--save", metavar="OUT.json", default="speed.json", help="write the numbers to this file")
    two.add_argument("--save", metavar="OUT.json", help="write the numbers to this file")
    return parser


def _add(parser: argparse.ArgumentParser, benchmark: Any, stopped: str = NOTHING_SAVED) -> None:
    benchmark.add_arguments(parser)
    parser.set_defaults(command=benchmark.run, stopped=stopped)


if __name__ == "__main__":
    sys.exit(main())
