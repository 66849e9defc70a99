"""What the cycles of one generation share, and how its values become records of the trace."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from safe_core import events as ev
from safe_core.ensemble.base import Ensemble
from safe_core.lookup import Lookup
from safe_core.reading import Reading, Witness
from safe_core.types import Candidate, ModelError, Reason, Settings, Source, Symbol, Token
from safe_core.verify import significant
from safe_core.vocabulary import Encoding, Vocabulary


class Speaker(Protocol):
    """One model with its prompt: what :class:`safe_core.model.Session` is, and what toy models are in tests.

    ``rows(ids, since)`` gives ``len(ids) - since + 1`` rows, row ``k`` being P(. | prompt, ids[:since + k]). ``rolls_back``
    says that rows of ids which are then dropped cost nothing further; ``context`` is the most ids it takes, prompt included.
    The other members count forward passes, tokens fed to them, and their milliseconds.
    """

    name: str
    vocabulary: Vocabulary
    prompt_ids: tuple[int, ...]
    context: int
    rolls_back: bool
    passes: int
    fed: int
    forward_ms: float

    def rows(self, ids: Sequence[int], since: int) -> Any: ...


@dataclass(slots=True)
class Response:
    """What stands: the drafter's own tokens, never re-encoded, and their bytes."""

    tokens: list[Token] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    data: bytes = b""

    def append(self, token: Token) -> None:
        self.tokens.append(token)
        self.ids.append(token.id)
        self.data += token.bytes


@dataclass(frozen=True, slots=True)
class Drafted:
    """A proposed token, its probability, and the row ``k`` of ``rows`` it was taken from."""

    token: Token
    p: float
    rows: Any
    k: int = 0

    @property
    def symbol(self) -> Symbol:
        return (self.token.bytes, self.token.eos)


@dataclass(slots=True)
class Run:
    """One generation under way. ``reason`` is set by whatever ends it."""

    drafter: Speaker
    verifiers: Sequence[Speaker]
    settings: Settings
    ensemble: Ensemble
    weights: tuple[float, ...]
    rng: random.Random
    response: Response = field(default_factory=Response)
    window: int = 0
    reason: Reason | None = None
    texts: dict[str, tuple[bytes, Encoding]] = field(default_factory=dict)
    lookup: Lookup = field(init=False)
    leftover: list[int] = field(default_factory=list)  # ids that were drafted behind a token which fusion replaced

    def __post_init__(self) -> None:
        self.lookup = Lookup(self.drafter.prompt_ids)

    @property
    def room(self) -> int:
        """Response tokens that may still come."""
        return self.settings.max_new_tokens - len(self.response.tokens)

    def rows(self, speaker: Speaker, ids: Sequence[int], since: int) -> Any:
        """The speaker's rows, at the temperature of the run. Raises ModelError where they do not fit the request."""
        rows = speaker.rows(ids, since)
        if len(rows) != len(ids) - since + 1:
            raise ModelError(
                f"{speaker.name} gave {len(rows)} rows where {len(ids) - since + 1} were asked for, at response token {since}."
            )
        if rows.unusable is not None:
            raise ModelError(
                f"{speaker.name} gave a row that is empty, infinite or not a number, at response token {since + rows.unusable}."
            )
        return self._tempered(rows)

    def rows_ahead(self, ids: Sequence[int], most: int) -> tuple[Any, list[int]]:
        """The drafter's row behind ``ids``, and the rows behind each of at most ``most`` ids that may follow; those ids."""
        guess = self._guess(ids, most)
        if guess:
            rows = self.drafter.rows([*ids, *guess], len(ids))
            if len(rows) == len(guess) + 1 and rows.unusable is None:  # else only the row that is needed may complain
                return self._tempered(rows), guess
        return self.rows(self.drafter, ids, len(ids)), []

    def _guess(self, ids: Sequence[int], most: int) -> list[int]:
        most = min(most, self.drafter.context - len(self.drafter.prompt_ids) - len(ids))
        if most <= 0 or not self.settings.lookup or not self.drafter.rolls_back:
            return []
        leftover, self.leftover = self.leftover, []
        return leftover[:most] or self.lookup.guess(ids[len(self.response.ids) :], most)

    def _tempered(self, rows: Any) -> Any:
        return rows if self.settings.temperature in (0.0, 1.0) else rows.at_temperature(self.settings.temperature)

    def encode(self, speaker: Speaker, text: bytes) -> Encoding:
        """``text`` in the speaker's own tokens, sharing what is left of its last reading."""
        old, before = self.texts.get(speaker.name, (b"", Encoding(())))
        encoding = speaker.vocabulary.encode_again(before, old, text)
        self.texts[speaker.name] = (text, encoding)
        return encoding

    def commit(self, chosen: Sequence[tuple[Token, Source]]) -> ev.Commit:
        """Add tokens to the response, up to the first that ends the run; set the reason where one does."""
        kept: list[ev.CommitToken] = []
        for token, source in chosen:
            self.response.append(token)
            self.lookup.extend([token.id])
            kept.append(committed(token, source))
            self.reason = self._ended_by(token)
            if self.reason is not None:
                break
        window, self.window = self.window, self.window + 1
        return ev.Commit(window=window, tokens=kept)

    def _ended_by(self, token: Token) -> Reason | None:
        if token.eos:
            return "eos"
        for stop in self.settings.stop:
            wanted = stop.encode()
            if wanted in self.response.data[-(len(token.bytes) + len(wanted) - 1) :]:
                return "stop"
        return "length" if self.room <= 0 else None


class Stopwatch:
    """Time, forward passes and fed tokens of some speakers since the last look."""

    def __init__(self, speakers: Sequence[Speaker]) -> None:
        self._speakers = speakers
        self.restart()

    def restart(self) -> None:
        self._begun = time.perf_counter()
        self._before = [(s.passes, s.fed, s.forward_ms) for s in self._speakers]

    def spent(self) -> dict[str, Any]:
        """The fields ``ms``, ``forward_ms`` and ``fed`` of an event; then starts anew."""
        ms = (time.perf_counter() - self._begun) * 1e3
        spent = [
            (s.name, s.passes - passes, s.fed - fed, s.forward_ms - forward)
            for s, (passes, fed, forward) in zip(self._speakers, self._before, strict=True)
        ]
        # Verifiers on their own devices run side by side, and together may have computed longer than the clock.
        forward_ms = min(ms, sum(forward for *_, forward in spent))
        self.restart()
        fed = [ev.Fed(model=name, passes=passes, tokens=fed) for name, passes, fed, _ in spent if passes]
        return {"ms": milliseconds(ms), "forward_ms": milliseconds(forward_ms), "fed": fed}


def milliseconds(ms: float) -> float:
    """Microsecond resolution is all a trace keeps of a time."""
    return round(ms, 3)


def drafted(d: Drafted) -> ev.DraftToken:
    t = d.token
    return ev.DraftToken(id=t.id, hex=t.bytes.hex(), start=t.start, p=significant(d.p), eos=t.eos, control=t.control)


def committed(t: Token, source: Source) -> ev.CommitToken:
    return ev.CommitToken(id=t.id, hex=t.bytes.hex(), start=t.start, source=source, eos=t.eos, control=t.control)


def candidate(c: Candidate) -> ev.CandidateRecord:
    return ev.CandidateRecord(
        hex=c.bytes.hex(),
        p=[significant(x) for x in c.p],
        mean=significant(c.mean),
        sharpened=significant(c.score),
        eos=c.eos,
    )


def reading(r: Reading) -> ev.Reading:
    """The part of a reading that the window touches."""
    tokens: list[ev.ReadToken] = []
    for k, t in enumerate(r.encoding.tokens[r.first :]):
        known = r.rows is not None and k < len(r.rows)
        best, eos = r.rows.argmax[k] if r.rows is not None and known else (b"", False)
        tokens.append(
            ev.ReadToken(
                id=t.id,
                hex=t.bytes.hex(),
                start=t.start,
                p=significant(r.rows.p(k, t.id)) if r.rows is not None and known else None,
                argmax_hex=best.hex() if known else None,
                argmax_eos=eos,
            )
        )
    begin = r.encoding.tokens[r.first - 1].end if r.first else 0  # bytes without a token count to the window
    return ev.Reading(model=r.model, tokens=tokens, unaligned=[u for u in r.encoding.unaligned if u[1] > begin])


def broken(name: str, witness: Witness) -> ev.Broken:
    """The first choice of a model that was asked on an OOV-like prefix."""
    (data, eos), p = witness.argmax, witness.rows.p(witness.k, witness.rows.best_id(witness.k))
    return ev.Broken(model=name, hex=data.hex(), p=significant(p), eos=eos)
