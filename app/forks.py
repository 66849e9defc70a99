"""Forks: the events of a run up to a position, ending with what a person chose there instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from safe_core import events as ev
from safe_core.events import Event
from safe_core.types import InputError, Settings

if TYPE_CHECKING:
    from safe_core.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Fork:
    """A wish to go on from another choice: position ``index`` of ``window``, and the bytes (or end of sequence) chosen."""

    window: int
    index: int
    data: bytes
    eos: bool

    @staticmethod
    def of(wish: Mapping[str, Any]) -> Fork:
        """From what a page sent. Raises InputError where that is no wish."""
        try:
            window, index, data = int(wish["window"]), int(wish["index"]), bytes.fromhex(str(wish.get("hex") or ""))
        except (KeyError, TypeError, ValueError):
            raise InputError("The page did not say where to fork. Choose a candidate in the inspector.") from None
        return Fork(window, index, data, bool(wish.get("eos")))


def opening(events: Sequence[Event], fork: Fork, vocabulary: Vocabulary) -> list[Event]:
    """The cycles of a run up to a fork, the last of them ending with what a person chose.

    Raises InputError where the run has no such position, or the drafter cannot write the choice.
    """
    kept: list[Event] = [e for e in events if not isinstance(e, ev.Start | ev.End) and e.window < fork.window]
    here = [e for e in events if not isinstance(e, ev.Start | ev.End | ev.Commit) and e.window == fork.window]
    draft = next((e for e in here if isinstance(e, ev.Draft)), None)
    if draft is None or not 0 <= fork.index < len(draft.tokens):
        raise InputError("That position is not in this run. Choose a token of the response.")
    fused = {e.index: e for e in here if isinstance(e, ev.Ensemble)}
    if any(index < fork.index and e.replaced for index, e in fused.items()):
        raise InputError("That token was discarded, because an earlier one of its window was replaced. Fork at that one.")
    before = [
        ev.CommitToken(
            id=t.id,
            hex=t.hex,
            start=t.start,
            source="ensemble" if k in fused else "draft",
            eos=t.eos,
            control=t.control,
        )
        for k, t in enumerate(draft.tokens[: fork.index])
    ]
    at = draft.tokens[fork.index]
    chosen = _written(fork, at, vocabulary, _first_piece(events))
    kept += [e for e in here if not (isinstance(e, ev.Ensemble) and e.index >= fork.index)]
    kept.append(_forced(fork, at, fused.get(fork.index)))
    kept.append(ev.Commit(window=fork.window, tokens=[*before, *chosen]))
    return kept


def _first_piece(events: Sequence[Event]) -> bool:
    start = events[0]
    return isinstance(start, ev.Start) and start.settings.get("commit") == "first_piece"


def _written(fork: Fork, at: ev.DraftToken, vocabulary: Vocabulary, first_piece: bool) -> list[ev.CommitToken]:
    """The choice in the drafter's own tokens: the drafted token itself, its token for those bytes, else its encoding."""

    def commit(id: int, data: bytes, start: int, eos: bool = False, control: bool = False) -> ev.CommitToken:
        return ev.CommitToken(id=id, hex=data.hex(), start=start, source="ensemble", eos=eos, control=control)

    if (fork.data.hex(), fork.eos) == (at.hex, at.eos):
        return [commit(at.id, fork.data, at.start, at.eos, at.control)]
    if fork.eos:
        if vocabulary.eos_id is None:
            raise InputError("The drafter has no end of sequence. Choose another candidate.")
        return [commit(vocabulary.eos_id, b"", at.start, eos=True)]
    whole = vocabulary.id_of(fork.data) if fork.data else None
    if whole is not None:
        return [commit(whole, fork.data, at.start)]
    encoding = vocabulary.encode(fork.data, at.start)
    if encoding.unaligned or not encoding.tokens:
        raise InputError("The drafter has no tokens for that text. Choose another candidate.")
    tokens = encoding.tokens[:1] if first_piece else encoding.tokens
    return [commit(t.id, t.bytes, t.start) for t in tokens]


def _forced(fork: Fork, at: ev.DraftToken, fused: ev.Ensemble | None) -> ev.Ensemble:
    """The record of a person's choice: the fusion that was there with another winner, or one without candidates."""
    choice = (fork.data.hex(), fork.eos)
    return ev.Ensemble(
        window=fork.window,
        index=fork.index,
        candidates=[] if fused is None else fused.candidates,
        smooth=False if fused is None else fused.smooth,
        sharpen="none" if fused is None else fused.sharpen,
        chosen_hex=choice[0],
        chosen_eos=choice[1],
        draft_hex=at.hex,
        draft_eos=at.eos,
        replaced=choice != (at.hex, at.eos),
        ms=0.0 if fused is None else fused.ms,
        forced=True,
    )


def settings_of(start: ev.Start) -> Settings:
    """The settings a recorded run was made with. Raises InputError where the trace's are not ours to run."""
    names = {f.name for f in dataclasses.fields(Settings)}
    try:
        return msgspec.convert({k: v for k, v in start.settings.items() if k in names}, Settings)
    except msgspec.ValidationError as problem:
        raise InputError(f"This run cannot be continued, because a setting in its trace is not one of ours: {problem}.") from None
