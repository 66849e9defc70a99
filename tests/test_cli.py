"""The command line: what it prints, its exit codes, and one clear sentence for bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from safe_core import engine, trace
from safe_core.__main__ import main
from safe_core.types import Settings
from tests.toys import toy_sessions


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    trace.write(path, engine.run("safe", toy_sessions(1, 2), Settings(max_new_tokens=20), "a prompt"))
    return path


def test_stats_prints_the_statistics_of_a_trace(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(recorded)]) == 0
    assert json.loads(capsys.readouterr().out) == trace.read(recorded).statistics


def test_stats_runs_without_torch(recorded: Path) -> None:
    code = (
        "import sys; from safe_core.__main__ import main; code = main(['stats', sys.argv[1]]); "
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(recorded)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda rows: [rows[0], rows[1][: len(rows[1]) // 2]], "Line 2 of the trace cannot be used: it is not JSON"),
        (lambda rows: [b"hello\n"], "Line 1 of the trace cannot be used: it is not JSON"),
        (lambda rows: rows[1:], "must begin with a 'start' event"),
        (lambda rows: [rows[0].replace(b'"version":1', b'"version":99'), *rows[1:]], "version 99"),
        (lambda rows: [rows[0].replace(b"safe-trace", b"other"), *rows[1:]], "the format is 'other'"),
        (lambda rows: [rows[0], rows[1].replace(b'"p":', b'"q":', 1)], "missing required field"),
        (lambda rows: [rows[0], *rows[5:]], "came before its"),
        (lambda rows: [*rows, rows[-1]], "nothing may follow"),
        (lambda rows: [rows[0], rows[0]], "second 'start'"),
        (lambda rows: [], "holds no trace event"),
        (lambda rows: [rows[0], rows[1].replace(b'"hex":"', b'"hex":"zz', 1)], "Line 2"),
        (lambda rows: [rows[0], b"\xff\xfe" + rows[1]], "Line 2"),
    ],
)
def test_a_damaged_trace_is_refused_with_the_line_and_the_reason(
    recorded: Path, damage: object, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.write_bytes(b"".join(damage(lines(recorded))))  # type: ignore[operator]
    assert main(["stats", str(recorded)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["stats", "no-such-file.jsonl"], "could not be read"),
        (["run", "--prompt", "  \n "], "The prompt is empty"),
        (["run", "--prompt-file", "no-such-file.txt"], "cannot be read"),
        (["run", "--prompt", "x", "--n", "0"], "n, the tokens of a window"),
        (["run", "--prompt", "x", "--lam", "2"], "lambda"),
        (["run", "--prompt", "x", "--drafter", "smollm2-135m-instrukt"], "smollm2-135m-instruct"),
        (["run", "--prompt", "x", "--prompt-for", "nonsense"], "NAME=TEXT"),
        (["fetch", "no-such-model"], "no-such-model"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "arguments",
    [[], ["dance"], ["run"], ["run", "--prompt", "a", "--prompt-file", "b"], ["run", "--prompt", "x", "--n", "many"], ["stats"]],
)
def test_wrong_arguments_are_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_trace_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    events = engine.run("single", toy_sessions(1, 1), Settings(max_new_tokens=3))
    with pytest.raises(trace.TraceError, match="could not be written"):
        trace.write(tmp_path / "no" / "such" / "folder.jsonl", events)


def test_an_interrupted_recording_leaves_a_valid_prefix(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl"
    recording = trace.recorded(path, engine.run("safe", toy_sessions(1, 2), Settings(max_new_tokens=30)))
    taken = [next(recording) for _ in range(7)]
    recording.close()
    assert list(trace.read(path).events) == taken
