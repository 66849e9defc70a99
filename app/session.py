"""The way from orders and forks to the engine: the one place of the page that loads models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from app.desks import Shown
from app.forks import Fork, opening, settings_of
from app.jobs import Prepare, Progress
from app.orders import METHODS, Order
from safe_core import events as ev
from safe_core.events import Event
from safe_core.types import InputError, ModelError

if TYPE_CHECKING:
    from safe_core.model import Model
    from safe_core.vocabulary import Vocabulary


class Workshop:
    """The way from orders and forks to the engine. The first use imports torch.

    ``names`` are the only models that may be asked for; ``None`` lets a person name any folder, file or hub id.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self._names = names

    def order(self, order: Order, keys: Sequence[str]) -> Prepare:
        """One run per side."""

        def prepare(report: Progress, cancelled: Callable[[], bool]) -> Mapping[str, Iterator[Event]]:
            wanted = dict.fromkeys(name for side in order.sides for name in order.names(side))
            report(None, "Loading the libraries that run models")
            from safe_core import api

            models = {name: self._load(name, order, report) for name in wanted}
            sources: dict[str, Iterator[Event]] = {}
            for key, side in zip(keys, order.sides, strict=True):
                chosen = [models[name] for name in order.names(side)]
                method, settings = METHODS[side][0], order.settings_of(side)
                run = api.generate(method, chosen, order.prompt, settings, system=order.system or None, cancelled=cancelled)
                sources[key] = run
            return sources

        return prepare

    def fork(self, parent: Shown, fork: Fork, key: str) -> Prepare:
        """The parent's run up to the fork, and on from there."""

        def prepare(report: Progress, cancelled: Callable[[], bool]) -> Mapping[str, Iterator[Event]]:
            start = parent.events[0]
            if not isinstance(start, ev.Start):
                raise InputError("That run has no beginning, so it cannot be continued.")
            report(None, "Loading the libraries that run models")
            from safe_core import api

            models = [self._load(name, parent.order, report) for name in self._parents_names(parent, start)]
            begun = opening(parent.events, fork, models[0].vocabulary)
            system, prompts = start.settings.get("system"), start.settings.get("prompts")
            settings = settings_of(start)
            run = api.generate(
                start.method,
                models,
                start.prompt,
                settings,
                system=system,
                prompts=prompts,
                cancelled=cancelled,
                opening=begun,
            )
            return {key: run}

        return prepare

    def vocabulary(self, name: str, report: Progress = lambda *_: None) -> Vocabulary:
        """A model's tokens, without its weights."""
        self._allow(name)
        from safe_core import zoo
        from safe_core.vocabulary import Vocabulary, fast_tokenizer

        return Vocabulary(fast_tokenizer(zoo.load_tokenizer(name, report), name), name=name)

    def _parents_names(self, parent: Shown, start: ev.Start) -> Sequence[str]:
        """How the parent's models were asked for: as ordered, else as its trace names them."""
        named = [m.name for m in start.models]
        if parent.order is None:
            return named
        asked = (parent.order.drafter, *parent.order.verifiers)
        if start.method == "single":
            return [next((name for name in asked if name == named[0] or name.endswith(named[0])), named[0])]
        return asked

    def _load(self, name: str, order: Order | None, report: Progress) -> Model:
        self._allow(name)
        from safe_core import api

        options = {} if order is None else {"device": order.device, "dtype": order.dtype, "attention": order.attention}
        return api.load(name, progress=report, **options)

    def _allow(self, name: str) -> None:
        if self._names is not None and name not in self._names:
            raise ModelError(f"This server does not offer the model '{name}'. Choose one of: {', '.join(self._names)}.")
