"""The public trace: one frozen record per event of a run, and its JSON form.

A run is ``start``, then cycles of ``draft``, ``retokenize``, ``verify``, ``ensemble`` (only where models were fused) and
``commit``, then ``end``. Bytes travel as lower-case hex; end of sequence as ``hex: ""`` with ``eos: true``.
Records hold plain numbers and strings only: no tensor, no clock, no path of the machine.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from safe_core.types import EnsembleName, Method, Reason, Role, Sharpening, Source, TraceError, Verdict

FORMAT: Final = "safe-trace"
VERSION: Final = 1

Hex = Annotated[str, Meta(pattern="^(?:[0-9a-f]{2})*$")]
P = Annotated[float, Meta(ge=0.0, le=1.0)]
Count = Annotated[int, Meta(ge=0)]
Ms = Annotated[float, Meta(ge=0.0)]


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of every part of a trace. Fields with a default are left out of the JSON where they have it."""


class ModelInfo(Record, frozen=True):
    """One model of the run, drafter first."""

    name: str
    role: Role
    vocab_size: Count
    prompt_ids: list[int]


class Fed(Record, frozen=True):
    """What one model computed for one event: forward passes and tokens fed to them."""

    model: str
    passes: Count
    tokens: Count


class DraftToken(Record, frozen=True):
    """A token the drafter proposed; ``p`` is the drafter's probability of it, ``start`` its byte offset."""

    id: int
    hex: Hex
    start: Count
    p: P
    eos: bool = False
    control: bool = False


class ReadToken(Record, frozen=True):
    """A token of a verifier's reading; ``p`` that verifier's probability of it where it stands, ``argmax_hex`` what the
    verifier would have put there. Both are absent where no row was needed."""

    id: int
    hex: Hex
    start: Count
    p: P | None
    argmax_hex: Hex | None
    argmax_eos: bool = False
    eos: bool = False


class Reading(Record, frozen=True):
    """A verifier's own tokens from the one that holds the window's first byte to the end of the text.

    ``unaligned`` are byte ranges ``[start, end)`` its tokenizer does not give back as they were (it normalises).
    """

    model: str
    tokens: list[ReadToken]
    unaligned: list[tuple[int, int]] = []


class Broken(Record, frozen=True):
    """What a model answered that was asked on a prefix its tokenizer would not produce: its first choice and how sure it was."""

    model: str
    hex: Hex
    p: P
    eos: bool = False


class Check(Record, frozen=True):
    """The two tests at one position of the window.

    ``index`` counts the window's tokens from 0; ``oov_for`` names the verifiers with no boundary at ``start``;
    ``p`` is each model's probability (drafter first) of its own token that starts here, ``None`` where it has none;
    ``mean_p`` their weighted mean, absent where a model could not be asked. ``edge``: the witness touches the end of the text
    drafted so far, so what follows may still change it. ``broken`` holds the answers of models that were asked all the
    same where they have no boundary (fusing at every token, or with the OOV check switched off).
    """

    index: Count
    start: Count
    verdict: Verdict
    oov_for: list[str]
    p: list[P | None]
    mean_p: P | None
    edge: bool
    broken: list[Broken] = []


class CandidateRecord(Record, frozen=True):
    """One fused string: probability per model over the candidates, mean, and value after sharpening.

    ``sharpened`` adds the mass of longer candidates to their prefix (``heur``), so a column need not sum to 1.
    """

    hex: Hex
    p: list[P]
    mean: P
    sharpened: Annotated[float, Meta(ge=0.0)]
    eos: bool = False


class CommitToken(Record, frozen=True):
    """A token of the response, final from here on."""

    id: int
    hex: Hex
    start: Count
    source: Source
    eos: bool = False
    control: bool = False


class Start(Record, frozen=True, tag_field="event", tag="start"):
    """First event: who takes part, and with which settings."""

    format: str
    version: int
    method: Method
    ensemble: EnsembleName
    models: list[ModelInfo]
    prompt: str
    settings: dict[str, Any]


class Draft(Record, frozen=True, tag_field="event", tag="draft"):
    """The drafter's window. ``carried`` of its tokens were drafted in an earlier cycle and kept."""

    window: Count
    start: Count
    tokens: list[DraftToken]
    ms: Ms
    forward_ms: Ms = 0.0
    fed: list[Fed] = []
    carried: Count = 0


class Retokenize(Record, frozen=True, tag_field="event", tag="retokenize"):
    """Every verifier's reading of the text drafted so far. ``ms`` is tokenization alone."""

    window: Count
    readings: list[Reading]
    ms: Ms


class Verify(Record, frozen=True, tag_field="event", tag="verify"):
    """Algorithm 1's checks. ``ms`` covers the verifiers' forward passes, ``forward_ms`` of which are theirs alone.

    A window has more than one when checking went on after a confirmed token: a later check of an index replaces
    an earlier ``unchecked`` one.
    """

    window: Count
    checks: list[Check]
    ms: Ms
    forward_ms: Ms = 0.0
    fed: list[Fed] = []


class Ensemble(Record, frozen=True, tag_field="event", tag="ensemble"):
    """The fusion at position ``index`` of the window. ``replaced`` only when the chosen bytes differ from the drafter's.

    ``forced``: a person chose, not the fusion (the run was forked here).
    """

    window: Count
    index: Count
    candidates: list[CandidateRecord]
    smooth: bool
    sharpen: Sharpening
    chosen_hex: Hex
    draft_hex: Hex
    replaced: bool
    ms: Ms
    chosen_eos: bool = False
    draft_eos: bool = False
    forced: bool = False


class Commit(Record, frozen=True, tag_field="event", tag="commit"):
    """The tokens this window added to the response."""

    window: Count
    tokens: list[CommitToken]


class End(Record, frozen=True, tag_field="event", tag="end"):
    """Last event: why the run ended, its whole text, and its statistics.

    ``text`` decodes the response's bytes with the replacement character where they are not UTF-8; the commits hold the bytes.
    ``oov_like`` lists, per model, the committed tokens (by index) whose end is no boundary in its reading of the final text.
    """

    reason: Reason
    text: str
    stats: dict[str, Any]
    ms: Ms = 0.0
    error: str | None = None
    oov_like: dict[str, list[int]] = {}


Event = Start | Draft | Retokenize | Verify | Ensemble | Commit | End

_decoder: Final = msgspec.json.Decoder(Event)
_encoder: Final = msgspec.json.Encoder()


def to_json(event: Event) -> bytes:
    """One event as one line of JSON, without the line end."""
    return _encoder.encode(event)


def from_json(line: bytes | str) -> Event:
    """The event of one line. Raises TraceError with what was expected where the line is no event."""
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError as error:
        raise TraceError(f"it is no trace event: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"it is not JSON: {error}.") from None


def to_dict(event: Event) -> dict[str, Any]:
    """The same as plain dicts and lists, for the page."""
    built: dict[str, Any] = msgspec.to_builtins(event)
    return built
