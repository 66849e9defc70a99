"""lm-evaluation-harness on this engine: ``safe`` is one of its models, and the paper's tasks are YAML files beside this one.

Importing this module registers the model: ``lm_eval.simple_evaluate(model="safe", model_args={"model_path1": ...}, ...)``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.evaluator import evaluate
from lm_eval.tasks import TaskManager

from safe_core.benchmarks.answerer import Answerer, Question, Row, Setup
from safe_core.types import Settings

TASKS: Final = Path(__file__).with_name("tasks")
Answers = Callable[[Iterable[Question]], Iterator[Row]]


@register_model("safe")
class SafeLM(LM):  # type: ignore[misc]  # the harness is untyped
    """A model of the harness that answers with ``answers``; rows in ``known``, by document id, are not asked again.

    ``finished`` is called with each new row and its document, in the order of finishing.
    """

    def __init__(
        self,
        answers: Answers,
        known: Mapping[str, Row] | None = None,
        finished: Callable[[Row, Row], None] = lambda row, doc: None,
    ) -> None:
        super().__init__()
        self._answers = answers
        self._known = {} if known is None else known
        self._finished = finished

    @classmethod
    def create_from_arg_obj(cls, arg_dict: Mapping[str, Any], additional_config: Mapping[str, Any] | None = None) -> SafeLM:
        """From the harness's ``model_args``: ``model_path1`` (the drafter), ``model_path2`` ..., ``method``, and any field of
        ``Settings``."""
        given = dict(arg_dict)
        paths = sorted(key for key in given if key.startswith("model_path"))
        names = tuple(str(given.pop(key)) for key in paths)
        method = given.pop("method", "safe" if len(names) > 1 else "single")
        options = {key: given.pop(key) for key in ("device", "dtype", "attention", "system") if key in given}
        return cls(Answerer(Setup(names, method, Settings(**given), **options)))

    @classmethod
    def create_from_arg_string(cls, arg_string: str, additional_config: Mapping[str, Any] | None = None) -> SafeLM:
        from lm_eval.utils import simple_parse_args_string

        return cls.create_from_arg_obj(simple_parse_args_string(arg_string), additional_config)

    def generate_until(self, requests: list[Any]) -> list[str]:
        """The response to each request, in its order."""
        docs = {_id(request): request.doc for request in requests}
        responses = {id_: self._known[id_]["response"] for id_ in docs if id_ in self._known}
        asked = [_question(request) for request in requests if _id(request) not in responses]
        for row in self._answers(asked):
            self._finished(row, docs[row["id"]])
            responses[row["id"]] = row["response"]
        return [responses[_id(request)] for request in requests]

    def loglikelihood(self, requests: list[Any]) -> NoReturn:
        raise NotImplementedError("An ensemble decides tokens; it has no likelihood of a given text. Use generate_until tasks.")

    loglikelihood_rolling = loglikelihood


@dataclass(frozen=True)
class Task:
    """One task of the harness, loaded, with its first ``limit`` questions."""

    name: str
    harness_task: Any
    limit: int | None

    @property
    def docs(self) -> list[Row]:
        """The questions that are asked, in order."""
        docs = self.harness_task.eval_docs
        return [docs[at] for at in range(len(docs) if self.limit is None else min(self.limit, len(docs)))]

    @property
    def answer_kind(self) -> str:
        """How its answers are read and compared: a key of ``answers.KINDS``."""
        return str(self.harness_task.config.metadata["answer"])

    @property
    def version(self) -> float:
        """Of its prompt and its scoring."""
        return float(self.harness_task.config.metadata["version"])

    def run(self, model: SafeLM, max_new_tokens: int) -> float:
        """Ask everything; the accuracy as the harness computes it."""
        self.harness_task.set_config(key="generation_kwargs", value={"max_gen_toks": max_new_tokens}, update=True)
        result = evaluate(model, {self.name: self.harness_task}, limit=self.limit, bootstrap_iters=0, log_samples=False)
        return float(result["results"][self.name]["accuracy,none"])


def names() -> list[str]:
    """The tasks there are."""
    return sorted(file.stem for file in TASKS.glob("*.yaml"))


def load(name: str, data_path: str | None, limit: int | None) -> Task:
    """A task and its questions. Raises InputError for data that cannot be had or read."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    manager = TaskManager(include_path=str(TASKS), include_defaults=False, metadata={"data_path": data_path})
    return Task(f"safe-{name}", manager.load([f"safe-{name}"])["tasks"][f"safe-{name}"], limit)


def _id(request: Any) -> str:
    """The document's own id; for foreign tasks, whose documents have none, its number."""
    return str(request.doc.get("id", f"{request.task_name}-{request.doc_id}"))


def _question(request: Any) -> Question:
    prompt, options = request.args
    until = options.get("until") or []
    stop = tuple(text for text in ([until] if isinstance(until, str) else until) if text)
    return Question(_id(request), prompt, stop, int(options.get("max_gen_toks", 2048)))
