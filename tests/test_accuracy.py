"""The accuracy benchmark from end to end, on tiny random models: rows, summary, resuming, and what may go wrong."""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from safe_core import trace
from safe_core.benchmarks import accuracy, data, harness
from safe_core.benchmarks.__main__ import main
from safe_core.benchmarks.answerer import Answerer, Question, Setup
from safe_core.benchmarks.cluster import share
from safe_core.types import InputError, Settings
from tests import benchmark_data
from tests.toys import TEXTS_A, TEXTS_B, tiny_llama

TIMES = ("seconds", "tokens_per_second", "engine_share", "ms")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Folders of two tiny models with different tokenizers, and contexts of 2,048 tokens."""
    folders = []
    for seed, texts in ((1, TEXTS_A), (2, TEXTS_B)):
        network, tokenizer = tiny_llama(seed, texts=texts)
        folder = tmp_path_factory.mktemp("models") / f"tiny-{seed}"
        network.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        folders.append(str(folder))
    return folders[0], folders[1]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return benchmark_data.write(tmp_path_factory.mktemp("data"))


Run = Callable[..., int]


@pytest.fixture
def run(pair: tuple[str, str], files: Path, tmp_path: Path) -> Run:
    """Runs the command with these models and data; further flags override."""

    def command(*flags: str, task: str = "gsm8k", out: str = "run", data_path: Path | None = None) -> int:
        options = ["--model_path1", pair[0], "--model_path2", pair[1], "--data_name", task, "--dtype", "float32"]
        options += ["--data_path", str(data_path or files), "--output_path", str(tmp_path / out), "--max_new_tokens", "12"]
        return main(["accuracy", *options, *flags])

    return command


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]


def untimed(folder: Path) -> list[dict[str, Any]]:
    """The rows without what a clock said."""
    found = rows(folder)
    for row in found:
        row.pop("seconds")
        row["statistics"] = {k: v for k, v in (row["statistics"] or {}).items() if k not in TIMES}
    return found


def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("task", accuracy.TASKS)
def test_every_task_runs_to_a_summary(run: Run, tmp_path: Path, task: str) -> None:
    assert run(task=task) == 0
    folder, found = tmp_path / "run", rows(tmp_path / "run")
    told = summary(folder)
    asked = [r for r in benchmark_data.ROWS[data.SOURCES[task.removesuffix("-nocot")].folder] if r.get("corrected_answer", 1)]
    assert {r["id"] for r in found} == {r["id"] for r in asked}
    assert told["questions"] == len(asked)
    assert told["complete"]
    assert told["correct"] == sum(r["correct"] for r in found)
    assert told["statistics"]["tokens"] == sum(r["statistics"]["tokens"] for r in found)
    assert told["interval"][0] <= told["accuracy"] <= told["interval"][1]
    for row in found:
        question = next(r for r in asked if r["id"] == row["id"])
        assert question["question"] in row["prompt"]
        assert row["answer"] == question.get("corrected_answer", question["answer"])
        assert row["error"] is None


def test_prompts_ask_as_the_paper_does(run: Run, tmp_path: Path) -> None:
    for task in ("gsm8k", "arc", "arc-nocot", "bbh"):
        run(task=task, out=task)
    mathematics, thinking, direct, shots = (rows(tmp_path / t)[0]["prompt"] for t in ("gsm8k", "arc", "arc-nocot", "bbh"))
    assert "step by step" in mathematics
    assert "\\boxed{}" in mathematics
    assert "A. trout\nB. whale\nC. gull\nD. newt" in thinking
    assert "step by step" in thinking
    assert "The answer is (X)" in thinking
    assert "step by step" not in direct
    assert "The answer is (X)" in direct
    assert shots.count("Q: ") == 4
    assert shots.startswith("About boolean_expressions.")


def test_the_harness_finds_the_same_accuracy(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []
    ask = harness.Task.run
    monkeypatch.setattr(harness.Task, "run", lambda *given: told.append(ask(*given)))
    replies = iter(["\\boxed{12}", "The answer is 7.", "4.50", "", "28"])
    monkeypatch.setattr(Answerer, "_run", lambda self, q: _reply(next(replies)))
    assert run() == 0
    assert told == [0.6]
    assert summary(tmp_path / "run")["accuracy"] == 0.6
    assert [r["parsed"] for r in rows(tmp_path / "run")] == ["12", "7", "4.50", None, "28"]


def _reply(text: str) -> dict[str, Any]:
    return {"response": text, "reason": "eos", "error": None, "statistics": None, "events": None}


@pytest.mark.parametrize(
    ("flags", "method", "label"),
    [
        ((), "safe", "UniTE+SAFE"),
        (("--method", "always"), "unite", "UniTE"),
        (("--ensemble_type", "gac"), "safe", "GaC+SAFE"),
        (("--ensemble-type", "gac", "--method", "always"), "gac", "GaC"),
        (("--ensemble", "False"), "single", "tiny-1"),
    ],
)
def test_the_papers_flags_choose_the_method(run: Run, tmp_path: Path, flags: tuple[str, ...], method: str, label: str) -> None:
    assert run("--limit", "1", "--save_traces", *flags) == 0
    told, row = summary(tmp_path / "run"), rows(tmp_path / "run")[0]
    recorded = trace.read(tmp_path / "run" / row["trace"])
    assert told["method"] == recorded.start.method == method
    assert label in told["label"]
    assert recorded.statistics == row["statistics"]
    assert recorded.end is not None
    assert recorded.end.text == row["response"]


def test_settings_reach_the_engine(run: Run, tmp_path: Path) -> None:
    flags = "--gamma 3 --sharpen_type geom --top_k 4 --weights 3,1 --no_oov_check --no_consensus_check --after_confirm continue"
    assert run("--limit", "1", "--save_traces", *flags.split(), "--system", "Be brief.") == 0
    start = trace.read(tmp_path / "run" / rows(tmp_path / "run")[0]["trace"]).start
    wanted = {"n": 3, "sharpen": "geom", "top_k": 4, "check_oov": False, "check_consensus": False, "after_confirm": "continue"}
    assert {key: start.settings[key] for key in wanted} == wanted
    assert start.settings["system"] == "Be brief."


def test_a_cut_run_goes_on_where_it_was(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(out="whole") == 0
    asked = _interrupting(monkeypatch, after=2)
    assert run() == 130
    assert len(rows(tmp_path / "run")) == 2
    assert not summary(tmp_path / "run")["complete"]
    with (tmp_path / "run" / "results.jsonl").open("ab") as file:
        file.write(b'{"id": "g/2", "resp')  # as a power cut leaves it
    asked.clear()
    monkeypatch.undo()
    again = _counting(monkeypatch)
    assert run() == 0
    assert again == ["g/2", "g/3", "g/4"]
    assert untimed(tmp_path / "run") == untimed(tmp_path / "whole")
    assert run() == 0  # nothing is left to ask
    assert again == ["g/2", "g/3", "g/4"]
    assert untimed(tmp_path / "run") == untimed(tmp_path / "whole")


def test_a_raised_limit_asks_only_the_further_questions(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _counting(monkeypatch)
    assert run("--limit", "2") == 0
    assert run("--limit", "4") == 0
    assert asked == ["g/0", "g/1", "g/2", "g/3"]
    assert summary(tmp_path / "run")["questions"] == 4


def _counting(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return _interrupting(monkeypatch, after=10**6)


def _interrupting(monkeypatch: pytest.MonkeyPatch, after: int) -> list[str]:
    """Note each question that is asked; Ctrl-C comes ``after`` so many."""
    asked: list[str] = []
    answer = Answerer.answer

    def watched(self: Answerer, question: Question) -> dict[str, Any]:
        if len(asked) == after:
            raise KeyboardInterrupt
        asked.append(question.id)
        return answer(self, question)

    monkeypatch.setattr(Answerer, "answer", watched)
    return asked


def test_other_settings_are_refused_by_name(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--limit", "1") == 0
    before = rows(tmp_path / "run")
    assert run("--limit", "1", "--gamma", "8", "--top_k", "3") == 2
    told = capsys.readouterr().err
    assert "settings.n is 5 there and 8 here" in told
    assert "settings.top_k is 10 there and 3 here" in told
    assert rows(tmp_path / "run") == before


def test_a_question_beyond_the_context_is_recorded_and_the_rest_goes_on(run: Run, tmp_path: Path) -> None:
    many = benchmark_data.ROWS["gsm8k"][:3]
    long = [many[0], many[1] | {"question": "Why? " * 3000}, many[2]]
    file = tmp_path / "gsm8k.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in long))
    assert run(data_path=file) == 0
    found = rows(tmp_path / "run")
    assert [row["error"] is None for row in found] == [True, False, True]
    assert "whose context is 2048" in found[1]["error"]
    assert not found[1]["correct"]
    told = summary(tmp_path / "run")
    assert (told["failed"], told["questions"]) == (1, 3)


def test_what_fails_inside_is_recorded_and_can_be_asked_again(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = Answerer._run

    def breaks(self: Answerer, question: Question) -> dict[str, Any]:
        if question.id == "g/1":
            raise RuntimeError("the third rail")
        return answer(self, question)

    monkeypatch.setattr(Answerer, "_run", breaks)
    assert run("--limit", "3") == 0
    assert rows(tmp_path / "run")[1]["error"] == "RuntimeError: the third rail"
    monkeypatch.undo()
    assert run("--limit", "3") == 0
    assert summary(tmp_path / "run")["failed"] == 1  # not redone unasked
    assert run("--limit", "3", "--retry_failed") == 0
    assert summary(tmp_path / "run")["failed"] == 0
    assert [row["id"] for row in rows(tmp_path / "run")] == ["g/0", "g/1", "g/2"]


@contextmanager
def full_disk(room_bytes: int) -> Iterator[None]:
    """No file may grow beyond ``room_bytes``: the system refuses the write, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_loses_no_finished_question(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--limit", "3", out="whole") == 0
    room = sum(len(json.dumps(row, ensure_ascii=False).encode()) + 1 for row in rows(tmp_path / "whole")[:2]) + 300
    with full_disk(room):
        assert run("--limit", "3") == 2
    told = capsys.readouterr().err
    assert "cannot be written" in told
    assert "the same command goes on" in told
    assert (tmp_path / "run" / "results.jsonl").read_bytes().count(b"\n") >= 2
    assert run("--limit", "3") == 0
    assert untimed(tmp_path / "run") == untimed(tmp_path / "whole")


GOOD = '{"id": "x", "question": "Why?", "answer": "3"}'


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ("{", "line 2: this is no JSON"),
        ("[]", "line 2: an object"),
        ('{"id": "y", "answer": "3"}', "line 2: 'question'"),
        ('{"id": "y", "question": " ", "answer": "3"}', "line 2: 'question'"),
        ('{"id": "y", "question": "Why?", "answer": 3}', "line 2: 'answer'"),
        (GOOD, "line 2: the id 'x' stands on line 1 already"),
        ('{"id": "y", "question": "?", "answer": "A", "choices": ["a"]}', "line 2: 'choices'"),
        (
            '{"id": "y", "question": "?", "answer": "C", "choices": [{"label": "A", "text": "a"}, {"label": "B", "text": "b"}]}',
            "line 2: the answer 'C' is none of the choices",
        ),
    ],
)
def test_a_broken_data_file_is_refused_with_its_line(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], second: str, says: str
) -> None:
    (tmp_path / "gsm8k.jsonl").write_text(f"{GOOD}\n{second}\n")
    assert run(data_path=tmp_path) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--data_name", "gsm9k"), "There is no task 'gsm9k'. There are: gsm8k"),
        (("--data_path", "nowhere"), "There is no data of gsm8k at nowhere"),
        (("--limit", "0"), "--limit must be at least 1"),
        (("--workers", "-1"), "--workers must be 0 or more"),
        (("--gamma", "0"), "n, the tokens of a window"),
        (("--model_path1", "no-such-model-here", "--limit", "1"), "no-such-model-here"),
    ],
)
def test_bad_flags_are_one_sentence(run: Run, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], says: str) -> None:
    assert run(*flags) == 2
    told = capsys.readouterr().err
    assert says in told
    assert "Traceback" not in told


def test_an_ensemble_needs_a_second_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["accuracy", "--model_path1", "x", "--data_name", "arc", "--output_path", str(tmp_path)]) == 2
    assert "--model_path2" in capsys.readouterr().err


def test_no_network_is_said_with_the_way_out(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=r"cannot be fetched .* --data_path"):
        data.questions("gsm8k")


HUB = {
    "gsm8k": [{"question": "How many?", "answer": "2 * 617 = 1234\n#### 1,234"}],
    "math500": [{"problem": "Why?", "solution": "", "answer": "3", "subject": "Algebra", "level": 1, "unique_id": "t/1"}],
    "arc": [{"id": "q", "question": "Which?", "choices": {"text": ["a", "b", "c"], "label": ["1", "2", "3"]}, "answerKey": "3"}],
    "mmlu-redux": [
        {"question": "Which?", "choices": list("wxyz"), "answer": 2, "error_type": kind, "correct_answer": right}
        for kind, right in (("ok", None), ("wrong_groundtruth", "1"), ("bad_question_clarity", None), ("wrong_groundtruth", "D"))
    ],
}


@pytest.mark.parametrize(
    ("benchmark", "expected"), [("gsm8k", ["1234"]), ("math500", ["3"]), ("arc", ["C"]), ("mmlu-redux", ["C", "B", "D"])]
)
def test_rows_of_the_hub_become_questions(benchmark: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub is out of a test's reach; its row formats are not."""
    import datasets

    monkeypatch.setattr(datasets, "get_dataset_config_names", lambda name: ["anatomy"])
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: datasets.Dataset.from_list(HUB[benchmark]))
    found = data.questions(benchmark)
    assert [row["answer"] for row in found] == expected
    assert len({row["id"] for row in found}) == len(found)
    assert data.fingerprint(found) == data.fingerprint(found)


def test_worked_examples_are_there_for_every_subject_without_local_data() -> None:
    found = data.shots(None)
    assert set(found) == set(data.BBH_SUBJECTS)
    assert all(len(given["shots"]) == 3 for given in found.values())
    assert all("answer is" in shot["answer"] for given in found.values() for shot in given["shots"])


def test_a_limit_is_spread_over_the_subjects(files: Path) -> None:
    assert [row["subject"] for row in data.questions("bbh", str(files))] == [
        "boolean_expressions",
        "snarks",
        "boolean_expressions",
    ]


def test_the_engine_is_a_model_of_the_harness(pair: tuple[str, str]) -> None:
    import lm_eval
    from lm_eval.tasks import TaskManager

    task = {
        "task": "echo",
        "custom_dataset": _two_lines,
        "output_type": "generate_until",
        "test_split": "test",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{text}}",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 8},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    no_other = TaskManager(include_defaults=False)
    arguments = {"model_path1": pair[0], "model_path2": pair[1], "dtype": "float32", "n": 3}
    result = lm_eval.simple_evaluate(model="safe", model_args=arguments, tasks=[task], bootstrap_iters=0, task_manager=no_other)
    setup = Setup(pair, "safe", Settings(n=3), dtype="float32")
    expected = [Answerer(setup).answer(Question("", text, ("\n",), 8))["response"] for text in ("Trees are", "The river")]
    assert [sample["resps"][0][0] for sample in result["samples"]["echo"]] == expected
    assert "\n" not in "".join(expected)


def _two_lines(**_: Any) -> Any:
    import datasets

    return {"test": datasets.Dataset.from_list([{"text": "Trees are"}, {"text": "The river"}])}


@pytest.mark.parametrize(
    ("workers", "models", "cpus", "gpus", "expected"),
    [
        (2, 2, 2, 0, {"num_cpus": 1, "num_gpus": 0.0}),
        (1, 3, 16, 8, {"num_cpus": 16, "num_gpus": 3.0}),
        (4, 3, 64, 8, {"num_cpus": 16, "num_gpus": 2.0}),
        (2, 2, 8, 1, {"num_cpus": 4, "num_gpus": 0.5}),
        (8, 2, 4, 0, {"num_cpus": 1, "num_gpus": 0.0}),
    ],
)
def test_workers_share_processors_and_cards(
    workers: int, models: int, cpus: float, gpus: float, expected: dict[str, float]
) -> None:
    assert share(workers, models, cpus, gpus) == expected


def test_wilson_intervals_are_the_published_ones() -> None:
    assert accuracy._interval(0, 0) == [0.0, 1.0]
    assert accuracy._interval(5, 10) == [0.2366, 0.7634]
    assert accuracy._interval(0, 10)[0] == 0.0
    assert accuracy._interval(10, 10)[1] == 1.0


def test_only_local_files_are_read_with_a_data_path(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: pytest.fail("the hub was asked"))
    assert run("--limit", "1") == 0


def test_waiting_for_the_last_answer_is_no_overhead() -> None:
    """Two workers: one answers for 4 and 4 seconds, the other for 6 and then has nothing left; 0.5 seconds go by otherwise."""
    assert accuracy.harness_share([4.0, 6.0, 4.0], [14.0, 16.0, 18.0], 2, 8.5) == pytest.approx(0.5 / 8.5, abs=1e-4)
    assert accuracy.harness_share([5.0], [7.0], 4, 5.0) == 0.0
    assert accuracy.harness_share([3.0, 3.0], [3.5, 7.0], 1, 8.0) == pytest.approx(0.25)
