"""Answering with many ensembles at once, on Ray: one actor each, on this machine or on a cluster that stands."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any

from safe_core.benchmarks.answerer import Answerer, Question, Row, Setup, lost
from safe_core.types import InputError, ModelError, SafeError


class Workers:
    """``workers`` actors, each with the models of ``setup`` on cards of its own where there are any.

    Rows come back as they are finished; a question whose worker died goes to another one, once. Raises InputError where the
    cluster cannot be reached, ModelError where the models cannot be loaded on it.
    """

    def __init__(self, setup: Setup, workers: int, *, address: str | None = None, traces: bool = False) -> None:
        try:
            import ray
        except ImportError:
            raise InputError("--workers needs Ray: pip install 'safe-lens[eval]'.") from None
        self._ray = ray
        self._setup, self._traces = setup, traces
        import safe_core

        options: dict[str, Any] = {"include_dashboard": False, "num_cpus": max(workers, os.cpu_count() or 1)}
        if address:  # the machines of a cluster need not have this package
            options = {"address": address, "runtime_env": {"py_modules": [safe_core]}}
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", ignore_reinit_error=True, **options)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            where = address or "this machine"
            raise InputError(f"Ray cannot be reached on {where}: {str(error).splitlines()[0]}") from None
        resources = ray.cluster_resources()
        self._actor_options = share(workers, len(setup.models), resources.get("CPU", 1.0), resources.get("GPU", 0.0))
        self._count = workers
        self._idle: list[Any] = []

    def load(self) -> None:
        """Start the workers and load the models now."""
        self._idle = self._started(self._count)

    def __call__(self, questions: Iterable[Question]) -> Iterator[Row]:
        waiting, losses = deque(questions), Counter[str]()
        idle = self._idle or self._started(self._count)
        running: dict[Any, tuple[Any, Question]] = {}

        def ask() -> None:
            while idle and waiting:
                actor, question = idle.pop(), waiting.popleft()
                running[actor.answer.remote(question)] = (actor, question)

        while waiting or running:
            ask()
            (done, *_), _ = self._ray.wait(list(running), num_returns=1)
            actor, question = running.pop(done)
            try:
                row = self._ray.get(done)
            except self._ray.exceptions.RayActorError:
                losses[question.id] += 1
                idle += self._started(1)
                if losses[question.id] < 2:
                    waiting.appendleft(question)
                    continue
                row = lost(question)
            else:
                idle.append(actor)
            ask()  # before the row is looked at, so that no worker waits for that
            yield row

    def close(self) -> None:
        """Let the workers go."""
        self._ray.shutdown()

    def _started(self, count: int) -> list[Any]:
        remote = self._ray.remote(**self._actor_options)(Answerer)
        actors = [remote.remote(self._setup, traces=self._traces) for _ in range(count)]
        try:
            self._ray.get([actor.load.remote() for actor in actors])
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, SafeError):
                raise type(error.cause)(str(error.cause)) from None
            raise
        except self._ray.exceptions.RayActorError:
            raise ModelError(
                "A worker died while it loaded the models, for want of memory perhaps. Use fewer --workers."
            ) from None
        return actors


def share(workers: int, models: int, cpus: float, gpus: float) -> dict[str, float]:
    """What each of ``workers`` asks Ray for: its part of the processors, and a card per model as far as the cards go."""
    part = gpus / workers
    cards = min(float(models), float(int(part)) if part >= 1 else part)
    return {"num_cpus": max(1, int(cpus // workers)), "num_gpus": cards}
