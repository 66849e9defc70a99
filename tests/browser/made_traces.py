"""Traces made without a model, for tests of the view: their form is exact, their probabilities are drawn from a seed.

The text and its tokens are given; verifiers read the same bytes with other boundaries, so every verdict follows from the
readings as in a real run.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from safe_core import events as ev
from safe_core.trace import Statistics
from safe_core.types import Method, Reason, Role, Source, Verdict

Piece = bytes | Literal["eos"]


@dataclass
class Maker:
    """Makes one run over ``pieces`` (the committed tokens). ``replace_at`` and ``keep_at`` are fused positions."""

    pieces: Sequence[Piece]
    method: Method = "safe"
    models: Sequence[str] = ("SmolLM2-135M", "gemma-3-270m")
    prompt: str = "What is made up?"
    n: int = 5
    seed: int = 0
    fuse: float = 0.2
    replace: float = 0.4
    control: frozenset[int] = frozenset()
    ended: bool = True
    rng: random.Random = field(init=False)

    def events(self) -> list[ev.Event]:
        """The run, ``start`` to ``end``."""
        self.rng = random.Random(self.seed)
        self.text = b"".join(p for p in self.pieces if p != "eos")
        self.starts = [0]
        for piece in self.pieces:
            self.starts.append(self.starts[-1] + (0 if piece == "eos" else len(piece)))
        self.readings = {name: self._segment() for name in self.models[1:]}
        events: list[ev.Event] = [self._start()]
        at, window = 0, 0
        while at < len(self.pieces):
            cycle, at = self._cycle(at, window)
            events += cycle
            window += 1
        if self.ended:
            fold = Statistics()
            for event in events:
                fold.add(event)
            reason: Reason = "eos" if "eos" in self.pieces else "length"
            events.append(fold.close(reason, self.text.decode(errors="replace"), 1e3, None, {}))
        return events

    def _start(self) -> ev.Start:
        roles: list[Role] = ["drafter", *(["verifier"] * (len(self.models) - 1))]  # type: ignore[list-item]
        models = [
            ev.ModelInfo(name=name, role=role, vocab_size=1000, prompt_ids=[1, 2])
            for name, role in zip(self.models, roles, strict=True)
        ]
        return ev.Start(
            format=ev.FORMAT,
            version=ev.VERSION,
            method=self.method,
            ensemble="unite",
            models=models,
            prompt=self.prompt,
            settings={"n": self.n, "top_k": 10},
        )

    def _segment(self) -> list[tuple[int, int]]:
        """Another tokenizer's tokens of the text: the drafter's, some joined, some cut."""
        cuts = {0, len(self.text)}
        for start in self.starts[1:-1]:
            if self.rng.random() > 0.12:
                cuts.add(start)
            elif start + 2 < len(self.text):
                cuts.add(start + 2)
        ordered = sorted(cuts)
        return list(itertools.pairwise(ordered))

    def _cycle(self, at: int, window: int) -> tuple[list[ev.Event], int]:
        """Events of one window from the piece ``at`` on, and the piece behind it."""
        every = self.method in ("unite", "gac")
        drafted = range(at, min(at + (1 if every or self.method == "single" else self.n), len(self.pieces)))
        checks: list[ev.Check] = []
        for index, i in enumerate(drafted if self.method != "single" else ()):
            checks.append(self._check(index, i, every))
            if checks[-1].verdict == "ensemble":
                break
        point = checks[-1].index if checks and checks[-1].verdict == "ensemble" else None
        replaced = point is not None and self.rng.random() < self.replace
        drafts = [self._draft(i, replaced and index == point) for index, i in enumerate(drafted)]
        tokens = self._lined_up(drafts, self.starts[at])
        events: list[ev.Event] = [ev.Draft(window=window, start=self.starts[at], tokens=tokens, ms=20.5)]
        if self.method != "single":
            end = self.starts[drafted[-1] + 1]
            readings = [self._reading(name, self.starts[at], end) for name in self.models[1:]]
            events.append(ev.Retokenize(window=window, readings=readings, ms=0.5))
            events.append(ev.Verify(window=window, checks=checks + self._unchecked(tokens, len(checks)), ms=9.25))
        stood = list(drafted) if point is None else list(drafted)[: point + 1]
        if point is not None:
            events.append(self._fusion(window, point, drafted[point], drafts[point], replaced))
        kept = [self._commit(i, "ensemble" if index == point else "draft") for index, i in enumerate(stood)]
        return [*events, ev.Commit(window=window, tokens=kept)], at + len(stood)

    @staticmethod
    def _unchecked(drafts: Sequence[ev.DraftToken], seen: int) -> list[ev.Check]:
        return [
            ev.Check(index=index, start=draft.start, verdict="unchecked", oov_for=[], p=[], mean_p=None, edge=False)
            for index, draft in enumerate(drafts)
            if index >= seen
        ]

    def _draft(self, i: int, other: bool) -> ev.DraftToken:
        piece = self.pieces[i]
        if other:
            return ev.DraftToken(id=900 + i % 50, hex=b" other".hex(), start=self.starts[i], p=0.41)
        if piece == "eos":
            return ev.DraftToken(id=2, hex="", start=self.starts[i], p=0.9, eos=True)
        return ev.DraftToken(id=i % 900, hex=piece.hex(), start=self.starts[i], p=self._p(), control=i in self.control)

    @staticmethod
    def _lined_up(drafts: list[ev.DraftToken], start: int) -> list[ev.DraftToken]:
        lined = []
        for draft in drafts:
            lined.append(ev.DraftToken(id=draft.id, hex=draft.hex, start=start, p=draft.p, eos=draft.eos, control=draft.control))
            start += len(draft.hex) // 2
        return lined

    def _check(self, index: int, i: int, every: bool) -> ev.Check:
        start = self.starts[i]
        oov = [name for name, cuts in self.readings.items() if start not in {a for a, _ in cuts} | {len(self.text)}]
        p: list[float | None] = [self._p(), *(None if name in oov else self._p() for name in self.models[1:])]
        known = [x for x in p if x is not None]
        mean = _kept(sum(known) / len(known)) if len(known) == len(p) else None
        verdict: Verdict = "majority" if mean is not None and mean > 0.5 else "ensemble"
        if every:
            verdict = "gated" if self.method == "gac" and self.rng.random() < 0.5 else "ensemble"
        elif oov:
            verdict = "oov"
        elif self.rng.random() < self.fuse:
            verdict = "ensemble"
        elif self.rng.random() < 0.6:
            verdict = "unanimous"
        broken = [ev.Broken(model=name, hex=b" else".hex(), p=0.27) for name in oov] if every else []
        edge = index == self.n - 1 and not every
        return ev.Check(index=index, start=start, verdict=verdict, oov_for=oov, p=p, mean_p=mean, edge=edge, broken=broken)

    def _reading(self, name: str, start: int, end: int) -> ev.Reading:
        tokens = []
        for a, b in self.readings[name]:
            if b <= start or a >= end:
                continue
            held = self.text[a : min(b, end)].hex()
            p = self._p()
            tokens.append(ev.ReadToken(id=a % 1000, hex=held, start=a, p=p, argmax_hex=held if p > 0.4 else b" the".hex()))
        return ev.Reading(model=name, tokens=tokens)

    def _fusion(self, window: int, index: int, i: int, draft: ev.DraftToken, replaced: bool) -> ev.Ensemble:
        piece = self.pieces[i]
        chosen, eos = ("", True) if piece == "eos" else (piece.hex(), False)
        words = {(self._word().hex(), False) for _ in range(self.rng.randint(9, 19))}
        others = {(draft.hex, draft.eos)} | words - {(chosen, eos)}
        smooth = self.rng.random() < 0.5
        top = 0.42 if smooth else 0.61
        rows = [(chosen, eos, top)] + [(h, e, 0.3 * 0.6**k) for k, (h, e) in enumerate(sorted(others - {(chosen, eos)}))]
        candidates = []
        for k, (text, end, mean) in enumerate(rows):
            p = [_kept(max(0.0, mean * self.rng.uniform(0.5, 1.5))) for _ in self.models]
            mean = _kept(sum(p) / len(p))
            sharpened = _kept(mean + 0.2) if smooth and k == 0 else mean
            candidates.append(ev.CandidateRecord(hex=text, p=p, mean=mean, sharpened=sharpened, eos=end))
        return ev.Ensemble(
            window=window, index=index, candidates=candidates, smooth=smooth, sharpen="heur", chosen_hex=chosen, chosen_eos=eos,
            draft_hex=draft.hex, draft_eos=draft.eos, replaced=replaced, ms=1.75,
        )  # fmt: skip

    def _p(self) -> float:
        return _kept(self.rng.random())

    def _word(self) -> bytes:
        return f" {''.join(self.rng.choices('abcdefghijklmnopqrstuvwxyz', k=self.rng.randint(2, 7)))}".encode()

    def _commit(self, i: int, source: Source) -> ev.CommitToken:
        piece = self.pieces[i]
        data = b"" if piece == "eos" else piece
        return ev.CommitToken(
            id=i % 900,
            hex=data.hex(),
            start=self.starts[i],
            source=source,
            eos=piece == "eos",
            control=i in self.control,
        )


def _kept(p: float) -> float:
    """As many digits as the engine keeps."""
    return float(f"{min(p, 1.0):.6g}")


WORDS: list[Piece] = [
    *(b" the", b" gall", b"bladder", b" is", b" Inc", b"orrect", b",", b" because"),
    *(b" of", b" Sofia", b"\n", b" a", b" liver", b".", b" 42"),
]


def long_run(tokens: int, method: Method = "safe", models: int = 2, seed: int = 0) -> list[ev.Event]:
    """A run of so many tokens and models. Its text says nothing, in as many different words as a real one."""
    rng = random.Random(seed)
    names = ["SmolLM2-360M-Instruct", "gemma-3-270m-it", "Qwen3-0.6B", "Llama-3.2-1B"][:models]
    letters = "etaoinshrdlu"
    pieces = [
        rng.choice(WORDS) if rng.random() < 0.7 else f" {''.join(rng.choices(letters, k=rng.randint(2, 6)))}".encode()
        for _ in range(tokens - 1)
    ]
    return Maker([*pieces, "eos"], method=method, models=names, seed=seed).events()


def text_run(
    pieces: Sequence[Piece], prompt: str = "", method: Method = "safe", control: frozenset[int] = frozenset()
) -> list[ev.Event]:
    """A run of the small models that commits exactly these tokens."""
    models = ("SmolLM2-135M", "gemma-3-270m")[: 1 if method == "single" else 2]
    return Maker(pieces, method=method, models=models, prompt=prompt, control=control).events()
