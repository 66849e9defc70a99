"""The command line: ``python -m safe_core run | stats | fetch``. Every command is a thin call of the library."""

from __future__ import annotations

import argparse
import codecs
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from safe_core import trace, zoo
from safe_core.events import Commit, End, Event
from safe_core.types import InputError, SafeError, Settings, default_sharpening

DRAFTER, VERIFIER = "smollm2-135m-instruct", "gemma-3-270m"


class Parser(argparse.ArgumentParser):
    """Bad arguments are one sentence on stderr and exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message[:1].upper()}{message[1:]}. See {self.prog} --help.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 2 for bad input, 130 for Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.command(options)
        return code
    except SafeError as problem:
        print(f"safe_core: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("safe_core: stopped.", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    prompt = _prompt(options)
    settings = _settings(options)
    names = [options.drafter] if options.method == "single" else [options.drafter, *(options.verifier or [VERIFIER])]
    from safe_core import api  # torch only where something is run

    load = {"device": options.device, "dtype": options.dtype, "attention": options.attention}
    models = [api.load(name, progress=_progress, **load) for name in names]
    produced = api.generate(
        options.method,
        models,
        prompt,
        settings,
        system=options.system,
        prompts=dict(_named(options.prompt_for)),
        use_cache=not options.no_cache,
    )
    end = _print_text(trace.recorded(options.trace, produced) if options.trace else produced)
    if end is not None and end.error is not None:
        print(f"safe_core: {end.error}", file=sys.stderr)
        return 2
    if end is not None:
        print(_summary(end), file=sys.stderr)
    return 0


def _print_text(events: Iterable[Event]) -> End | None:
    """Write the response to stdout as it is committed; characters wait until they are whole."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    end = None
    for event in events:
        if isinstance(event, Commit):
            sys.stdout.write(decoder.decode(b"".join(bytes.fromhex(t.hex) for t in event.tokens)))
            sys.stdout.flush()
        elif isinstance(event, End):
            end = event
    sys.stdout.write(decoder.decode(b"", final=True) + "\n")
    sys.stdout.flush()
    return end


def _summary(end: End) -> str:
    s = end.stats
    return (
        f"[{end.reason}] {s['tokens']} tokens, {s['tokens_per_second']} tokens/s, E/T {s['ensemble_rate']:.1%}, "
        f"{s['replaced']} replaced, {s['oov']} skipped as OOV-like, {s['asked_oov']} asked on a broken prefix, "
        f"{s['discarded']} drafts discarded"
    )


def _stats(options: argparse.Namespace) -> int:
    found = trace.read(options.file)
    print(json.dumps(found.statistics, indent=2))
    return 0


def _fetch(options: argparse.Namespace) -> int:
    for name in options.names or [builtin.name for builtin in zoo.builtin_models()]:
        zoo.fetch(name, progress=_progress, verify=options.verify)
        print(f"{name} is ready.")
    return 0


def _progress(fraction: float | None, message: str) -> None:
    """Progress on stderr: rewritten in place on a terminal, one line per message elsewhere."""
    share = "" if fraction is None else f" {fraction:4.0%}"
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{message}{share}" + ("\n" if fraction == 1.0 else ""))
        sys.stderr.flush()
    elif message != getattr(_progress, "last", None):
        print(message, file=sys.stderr)
        _progress.last = message  # type: ignore[attr-defined]


def _prompt(options: argparse.Namespace) -> str:
    if options.prompt is not None:
        text = str(options.prompt)
    else:
        try:
            text = sys.stdin.read() if options.prompt_file == "-" else Path(options.prompt_file).read_bytes().decode()
        except OSError as error:
            raise InputError(f"The prompt file {options.prompt_file} cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise InputError(f"The prompt file {options.prompt_file} is not UTF-8 text (byte {error.start}).") from error
    if not text.strip():
        raise InputError("The prompt is empty. Give some text with --prompt or --prompt-file.")
    return text


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        n=options.n,
        ensemble=options.ensemble,
        sharpen=options.sharpen or default_sharpening(options.method),
        lam=options.lam,
        top_k=options.top_k,
        max_new_tokens=options.max_new_tokens,
        weights=options.weights,
        temperature=options.temperature,
        seed=options.seed,
        stop=tuple(options.stop or ()),
        after_confirm=options.after_confirm,
        commit=options.commit,
        lookup=not options.no_lookup,
        check_oov=not options.no_oov_check,
        check_consensus=not options.no_consensus_check,
    )


def window(text: str) -> int | Literal["auto"]:
    """The tokens of a window, as typed."""
    return "auto" if text == "auto" else int(text)


def weights(text: str) -> tuple[float, ...]:
    """Weights with commas between them, as typed."""
    return tuple(float(part) for part in text.split(","))


def _named(pairs: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    for pair in pairs or ():
        name, equals, text = pair.partition("=")
        if not equals:
            raise InputError(f"--prompt-for takes NAME=TEXT, not '{pair}'.")
        yield name, text


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m safe_core", description="SAFE: stable and fast ensembling of language models.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Parser)
    _add_run(commands.add_parser("run", help="generate text", formatter_class=argparse.ArgumentDefaultsHelpFormatter))
    stats = commands.add_parser("stats", help="print the statistics of a trace")
    stats.add_argument("file", metavar="TRACE")
    stats.set_defaults(command=_stats)
    fetch = commands.add_parser("fetch", help="download and convert the built-in models")
    fetch.add_argument("names", nargs="*", metavar="NAME", help="built-in models; all of them when none is named")
    fetch.add_argument("--verify", action="store_true", help="check every byte of what is already there")
    fetch.set_defaults(command=_fetch)
    return parser


def _add_run(run: argparse.ArgumentParser) -> None:
    run.set_defaults(command=_run)
    add: Any = run.add_argument
    add("--method", choices=["safe", "unite", "gac", "single"], default="safe", help="single: the drafter alone")
    text = run.add_mutually_exclusive_group(required=True)
    text.add_argument("--prompt", metavar="TEXT")
    text.add_argument("--prompt-file", metavar="FILE", help="'-' reads standard input")
    add("--drafter", metavar="NAME", default=DRAFTER, help="built-in name, folder, .gguf file or hub id")
    add("--verifier", metavar="NAME", action="append", help=f"may be given several times (default: {VERIFIER})")
    add("--system", metavar="TEXT", help="system prompt of every model")
    add("--prompt-for", metavar="NAME=TEXT", action="append", help="another prompt for one model")
    add("--n", type=window, default=5, help="drafted tokens per window, or 'auto'")
    add("--ensemble", choices=["unite", "gac"], default="unite")
    add("--sharpen", choices=["heur", "geom", "none"], help="default: heur under SAFE, none in the baselines")
    add("--lam", type=float, default=0.1, help="threshold of heur")
    add("--top-k", type=int, default=10)
    add("--weights", type=weights, metavar="W,W,...", help="one per model, drafter first")
    add("--max-new-tokens", type=int, default=256)
    add("--temperature", type=float, default=0.0, help="0 is greedy")
    add("--seed", type=int, default=0)
    add("--stop", metavar="TEXT", action="append", help="end with the token that completes this text")
    add("--after-confirm", choices=["redraft", "continue"], default="redraft")
    add("--commit", choices=["whole", "first_piece"], default="whole")
    add("--no-lookup", action="store_true", help="feed the drafter one token a pass, without guesses of what follows")
    add("--no-oov-check", action="store_true", help="ablation: ask verifiers even where they have no boundary")
    add("--no-consensus-check", action="store_true", help="ablation: fuse at every safe token")
    add("--no-cache", action="store_true", help="compute every row from scratch (slow; to check the caches)")
    add("--dtype", default="auto", help="auto, bfloat16, float16 or float32")
    add("--device", default="auto", help="auto, cpu, cuda, cuda:N or shard")
    add("--attention", default="auto", help="auto, sdpa, eager or flash_attention_2")
    add("--trace", metavar="OUT.jsonl", help="write the trace to this file")


if __name__ == "__main__":
    sys.exit(main())
