"""SAFE lens: ``python app.py`` opens the page; ``python app.py --export TRACE [TRACE] OUT.html`` writes one offline file."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from safe_core import trace
from safe_core.types import InputError, SafeError

UPLOAD_LIMIT = "24mb"


class Parser(argparse.ArgumentParser):
    """Bad arguments are one sentence on stderr and exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"app.py: {message[:1].upper()}{message[1:]}. See app.py --help.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Open the page, or write a file; returns the exit code: 0, or 2 for what cannot be done."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    try:
        if options.export:
            _export([Path(path) for path in options.export])
        else:
            _serve(options)
    except SafeError as problem:
        print(f"app.py: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _export(paths: Sequence[Path]) -> None:
    """The last path is the page to write, those before it are traces."""
    *sources, target = paths
    if not 1 <= len(sources) <= 2:
        raise InputError("--export takes one or two traces and then the page to write: --export TRACE.jsonl OUT.html.")
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"The page to write must end in .html, not '{target.name}'; it comes after the traces.")
    traces = [(path.stem, trace.read(path).events) for path in sources]
    from app.export import export_html

    export_html(traces, target)
    print(f"{target} is written. It opens in any browser, without a network.")


def _serve(options: argparse.Namespace) -> None:
    logging.basicConfig(level=logging.WARNING)
    auth = _auth(options.auth)
    from app import layout, wire
    from app.keep import Keep

    local = _is_loopback(options.host)
    page = layout.Page(options.model or (), any_model=local, keep=Keep(None) if options.no_keep else None)
    demo = page.blocks()
    demo.queue(max_size=128, api_open=False)
    try:
        demo.launch(
            server_name=options.host,
            server_port=options.port,
            auth=auth,
            share=False,
            run_history=False,
            allowed_paths=[],
            max_file_size=UPLOAD_LIMIT,
            footer_links=[],
            ssr_mode=False,
            enable_monitoring=False,
            theme=layout.theme(),
            head=layout.head(),
            app_kwargs=wire.APP,
            quiet=True,
            prevent_thread_lock=True,
        )
    except OSError as problem:
        raise InputError(
            f"The page cannot open at {options.host}:{options.port} ({problem.strerror or 'the port is taken'}); "
            "choose another --port or --host."
        ) from problem
    print(f"SAFE lens is open at {demo.local_url}", flush=True)
    if not local:
        print("Others can reach it, so only built-in models and those named with --model are offered.", flush=True)
    demo.block_thread()


def _auth(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    user, colon, password = text.partition(":")
    if not (user and colon and password):
        raise InputError("--auth takes a name and a password with a colon between them: --auth ada:secret.")
    return user, password


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _port(text: str) -> int:
    port = int(text)
    if not 1 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"a port lies between 1 and 65535, not {port}")
    return port


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="app.py", description="SAFE lens: a visual debugger for ensembles of language models.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: this machine only)")
    parser.add_argument("--port", type=_port, default=7860)
    parser.add_argument("--auth", metavar="USER:PASSWORD", help="ask visitors for a name and a password")
    parser.add_argument("--model", metavar="NAME", action="append", help="also offer this model; may be given several times")
    parser.add_argument("--no-keep", action="store_true", help="write nothing of open pages to disk; a reload then begins anew")
    parser.add_argument(
        "--export", nargs="+", metavar="FILE", help="TRACE.jsonl [TRACE.jsonl] OUT.html: write an offline page and exit"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
