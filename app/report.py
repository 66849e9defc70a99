"""The report of benchmark runs as a part of the page: files a person uploads, shown in a frame that can reach nothing."""

from __future__ import annotations

import base64
import gzip
import tempfile
import time
import uuid
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import gradio as gr

from app.widgets import StatusLine
from safe_core.benchmarks import report
from safe_core.benchmarks.report import File
from safe_core.types import InputError, SafeError

MOST_FILES: Final = 1000
MOST_BYTES: Final = 96 << 20
"""Of all uploaded files together, unpacked."""
KEPT_SECONDS: Final = 600
"""A page that was written for download is copied by the toolkit at once; what is older than this is deleted."""

_FRAME: Final = """
const frame = document.createElement("iframe");
frame.setAttribute("sandbox", "allow-scripts");
frame.title = "Report";
frame.style.cssText = "display: block; width: 100%; height: 82vh; border: 1px solid var(--border-color-primary);";
const draw = async () => {
  const value = props.value;
  if (!value) return element.replaceChildren();
  const packed = await (await fetch("data:application/gzip;base64," + value)).blob();
  const page = await new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).text();
  if (value !== props.value) return;
  frame.srcdoc = page;
  element.replaceChildren(frame);
};
watch("value", draw);
draw();
"""
"""The report is data of strangers: it runs in an origin of its own, and its page forbids it every request."""


def build() -> None:
    """The upload, the button, the frame and the download; to be called inside a tab."""
    folder = tempfile.TemporaryDirectory(prefix="safe-lens-report-")  # lives as long as the handler below

    def make(paths: list[str] | None) -> list[Any]:
        try:
            page, said = report_of(paths or [])
        except SafeError as problem:
            return [gr.skip(), gr.skip(), {"kind": "error", "text": str(problem), "fraction": None}]
        target = _written(Path(folder.name), page)
        packed = base64.b64encode(gzip.compress(page.encode(), 6)).decode()
        return [packed, gr.update(value=str(target), interactive=True), {"kind": "done", "text": said, "fraction": None}]

    gr.HTML(
        "<p class='sl-note'>Benchmark runs beside the paper's numbers. Upload what the benchmarks wrote: summary.json with its "
        "results.jsonl, speed.json, tokenizers.json; several runs as one .zip of their folder.</p>"
    )
    upload = gr.File(
        label="Result files (.json, .jsonl, .zip)",
        file_count="multiple",
        file_types=[".json", ".jsonl", ".zip"],
        height=170,
        elem_id="report-files",
    )
    with gr.Row(elem_classes="sl-files"):
        button = gr.Button("Make the report", elem_id="report-make", min_width=180)
        download = gr.DownloadButton("Report, offline page (HTML)", interactive=False, elem_id="report-download", min_width=180)
    status = StatusLine(elem_id="report-status")
    frame = gr.HTML(html_template="<div></div>", js_on_load=_FRAME, elem_id="report-frame", apply_default_css=False)
    button.click(
        make,
        upload,
        [frame, download, status],
        show_progress="minimal",
        show_progress_on=status,
        api_visibility="private",
        concurrency_limit=1,
    )


def report_of(paths: Sequence[str]) -> tuple[str, str]:
    """The page made of uploaded files, and a sentence on what it was made of. Raises InputError where none can be used."""
    if not paths:
        raise InputError("Upload at least one result file first.")
    results = report.results_of(uploaded(paths))
    left_out = " ".join(results.problems)
    return report.page_of(results), f"Made of {results.said}. {left_out}".strip()


def uploaded(paths: Sequence[str]) -> Iterator[File]:
    """The files, those inside archives too, named as the person named them. Raises InputError beyond the limits."""
    count, left = 0, MOST_BYTES
    for path in map(Path, paths):
        members = _members(path) if path.suffix.lower() == ".zip" else iter([_single(path)])
        for file in members:
            count, left = count + 1, left - len(file.data)
            if count > MOST_FILES or left < 0:
                raise InputError(
                    f"That is more than {MOST_FILES:,} files or {MOST_BYTES >> 20} MB, unpacked; make the report of so much on "
                    "the command line: python -m safe_core.benchmarks report DIR."
                )
            yield file


def _single(path: Path) -> File:
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path.name} is larger than {MOST_BYTES >> 20} MB; upload less.")
    return File(path.name, "", report.read_bytes(path))


def _members(path: Path) -> Iterator[File]:
    """Result files of an archive. Nothing is unpacked to disk, and no more is read than an entry announces."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = [info for info in archive.infolist() if _is_wanted(info)]
            if len(infos) > MOST_FILES or sum(info.file_size for info in infos) > MOST_BYTES:
                raise InputError(f"{path.name} holds more than {MOST_FILES:,} files or {MOST_BYTES >> 20} MB; upload less.")
            for info in infos:
                inside = PurePosixPath(info.filename)
                yield File(f"{path.stem}/{inside}", f"{path}/{inside.parent}", archive.read(info))
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:  # the last two: encrypted, odd packing
        raise InputError(f"{path.name} is no zip archive that can be read ({error}); pack the folder again.") from error


def _is_wanted(info: zipfile.ZipInfo) -> bool:
    """A result file, and none of the shadow files some systems pack beside each."""
    path = PurePosixPath(info.filename)
    return not info.is_dir() and report.is_ours(path.name) and "__MACOSX" not in path.parts


def _written(folder: Path, page: str) -> Path:
    """The page in a file for download; earlier ones, long copied, are deleted."""
    for old in folder.glob("*/report.html"):
        if time.time() - old.stat().st_mtime > KEPT_SECONDS:
            old.unlink(missing_ok=True)
            old.parent.rmdir()
    target = folder / uuid.uuid4().hex / "report.html"
    target.parent.mkdir()
    target.write_text(page, encoding="utf-8")
    return target
