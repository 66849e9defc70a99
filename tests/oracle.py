"""The algorithm again, slowly: an oracle that shares nothing with the engine but the values of ``safe_core.types``.

Every run is a list of plain dicts, one per event, with the trace's field names and without timings. All rows are asked
for anew, one at a time, in float64; nothing is cached, nothing is fast. ``compare`` holds the engine's events against
them. Sessions are those of ``tests/toys.py``. Greedy decoding with a fixed window only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from safe_core.events import Event
from safe_core.types import EOS, Settings, Symbol, Token

Dicts = list[dict[str, Any]]
Floats = NDArray[np.float64]
NO_MASS = float("-inf")


# Rows -----------------------------------------------------------------------------------------------------------------


def row_after(session: Any, ids: Sequence[int]) -> Floats:
    """Logits [V] of what follows ``ids``: padding cut, the end-of-sequence set gathered at its lowest id."""
    if hasattr(session, "raw_rows"):
        raw = session.raw_rows(list(ids), len(ids))
    else:
        raw = session.rows(ids, len(ids)).logits.float().numpy(force=True)
    vocabulary = session.vocabulary
    row: Floats = np.array(raw, dtype=np.float64)[0][: vocabulary.size].copy()
    if vocabulary.eos_ids:
        ends = sorted(vocabulary.eos_ids)
        total = float(np.logaddexp.reduce(row[ends]))
        row[ends] = NO_MASS
        row[ends[0]] = total
    return row


def softmax(logits: Sequence[float] | Floats) -> Floats:
    """Probabilities of logits; minus infinity has none."""
    values = np.asarray(logits, dtype=np.float64)
    powers = np.exp(values - values.max())
    result: Floats = powers / powers.sum()
    return result


def symbol_of(vocabulary: Any, id: int) -> Symbol:
    """What an id stands for across models."""
    return EOS if id in vocabulary.eos_ids else (vocabulary.bytes_of(id), False)


def first_choice(row: Floats) -> int:
    """The likeliest id; the lowest of equals."""
    return int(np.argmax(row))


def weights_of(settings: Settings, models: int) -> list[float]:
    """One weight per model, summing to 1."""
    given = settings.weights or (1.0,) * models
    if len(given) != models:
        raise ValueError(f"There are {models} models and {len(given)} weights.")
    return [weight / math.fsum(given) for weight in given]


def mean_of(weights: Sequence[float], values: Iterable[float]) -> float:
    """Weighted mean, the same in any order."""
    return math.fsum(weight * float(value) for weight, value in zip(weights, values, strict=True))


# Text -----------------------------------------------------------------------------------------------------------------


def unfinished_tail(text: bytes) -> int:
    """How many bytes at the end of ``text`` begin a UTF-8 character that more bytes could finish."""
    for length in (3, 2, 1):
        if length <= len(text) and any(is_one_character(text[-length:] + ending) for ending in ENDINGS):
            return length
    return 0


def is_one_character(data: bytes) -> bool:
    """Whether these bytes are exactly one UTF-8 character."""
    try:
        return len(data.decode("utf-8")) == 1
    except UnicodeDecodeError:
        return False


ENDINGS = [bytes([byte]) + b"\x80" * more for byte in range(0x80, 0xC0) for more in range(3)]
"""Enough endings to finish any beginning of a character: only its second byte is ever restricted further."""


@dataclass
class Reading:
    """One model's tokens of ``text``."""

    session: Any
    text: bytes

    def __post_init__(self) -> None:
        encoding = self.session.vocabulary.encode(self.text)
        self.tokens: list[Token] = list(encoding.tokens)
        self.unaligned: list[tuple[int, int]] = [(start, end) for start, end in encoding.unaligned]
        ends = {0, len(self.text)}
        self.boundaries = ends | {token.start for token in self.tokens} | {token.end for token in self.tokens}

    def starting_at(self, offset: int) -> Token | None:
        """The token that begins at ``offset``."""
        return next((token for token in self.tokens if token.start == offset), None)

    def row_at(self, offset: int) -> Floats:
        """Logits of what follows the tokens before ``offset``."""
        return row_after(self.session, [token.id for token in self.tokens if token.end <= offset])

    def is_unaligned(self, offset: int) -> bool:
        """Whether ``offset``, or the token that begins there, lies in bytes that are not given back as they were."""
        token = self.starting_at(offset)
        end = token.end if token else offset
        return any(a <= offset < b or (offset < b and a < end) for a, b in self.unaligned)

    def record(self, since: int, ends: bool) -> dict[str, Any]:
        """As in the trace, from the token that holds byte ``since``; with its end of sequence where the text ends."""
        vocabulary = self.session.vocabulary
        shown = [token for token in self.tokens if token.end > since]
        if ends and vocabulary.eos_ids:
            shown.append(Token(min(vocabulary.eos_ids), b"", len(self.text), eos=True))
        return {
            "model": self.session.name,
            "tokens": [read_token(vocabulary, token, self.row_at(token.start)) for token in shown],
            "unaligned": [pair for pair in self.unaligned if pair[1] > since],
        }


def read_token(vocabulary: Any, token: Token, row: Floats | None) -> dict[str, Any]:
    """One token of a reading, with its probability and the first choice of ``row`` where one was asked for."""
    record: dict[str, Any] = {"id": token.id, "hex": token.bytes.hex(), "start": token.start, "eos": token.eos}
    if row is None:
        return record | {"p": None, "argmax_hex": None, "argmax_eos": False}
    data, eos = symbol_of(vocabulary, first_choice(row))
    return record | {"p": float(softmax(row)[token.id]), "argmax_hex": data.hex(), "argmax_eos": eos}


# The drafter ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drafted:
    """A token of the window and the drafter's probability of it."""

    token: Token
    p: float

    @property
    def symbol(self) -> Symbol:
        return EOS if self.token.eos else (self.token.bytes, False)


def draft_next(session: Any, ids: Sequence[int], start: int) -> Drafted:
    """The drafter's first choice after ``ids``."""
    vocabulary = session.vocabulary
    row = row_after(session, ids)
    id = first_choice(row)
    if id in vocabulary.eos_ids:
        token = Token(id, b"", start, eos=True)
    else:
        token = Token(id, vocabulary.bytes_of(id), start, control=id in vocabulary.control_ids)
    return Drafted(token, float(softmax(row)[id]))


class Response:
    """Committed tokens, and why the run is over when it is."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tokens: list[Token] = []
        self.reason: str | None = None

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def text(self) -> bytes:
        return b"".join(token.bytes for token in self.tokens)

    @property
    def budget(self) -> int:
        return self.settings.max_new_tokens - len(self.tokens)

    def commit(self, additions: Sequence[tuple[Token, str]]) -> list[dict[str, Any]]:
        """Take (token, source) pairs until the run is over; the commit event's tokens."""
        records: list[dict[str, Any]] = []
        for token, source in additions:
            if self.reason:
                break
            placed = Token(token.id, token.bytes, len(self.text), token.eos, token.control)
            self.tokens.append(placed)
            records.append(token_record(placed) | {"source": source})
            if placed.eos:
                self.reason = "eos"
            elif any(stop.encode() in self.text for stop in self.settings.stop):
                self.reason = "stop"
            elif self.budget == 0:
                self.reason = "length"
        return records


def token_record(token: Token) -> dict[str, Any]:
    """The fields that every token of a trace has."""
    return {
        "id": token.id,
        "hex": token.bytes.hex(),
        "start": token.start,
        "eos": token.eos,
        "control": token.control,
    }


def draft_event(number: int, start: int, window: Sequence[Drafted], carried: int) -> dict[str, Any]:
    tokens = [token_record(drafted.token) | {"p": drafted.p} for drafted in window]
    return {"event": "draft", "window": number, "start": start, "tokens": tokens, "carried": carried}


# Verification ---------------------------------------------------------------------------------------------------------


@dataclass
class Witness:
    """What one verifier has to say where a drafted token starts."""

    name: str
    state: str  # "safe", "oov" or "unaligned"
    token: Token | None = None
    p: float | None = None
    is_first_choice: bool = False
    row: Floats | None = None


def witness(reading: Reading, drafted: Token, check_oov: bool) -> Witness:
    """The verifier's token that starts where ``drafted`` does, or why there is none."""
    name, vocabulary, offset = reading.session.name, reading.session.vocabulary, drafted.start
    token = reading.starting_at(offset)
    if reading.is_unaligned(offset):
        return Witness(name, "unaligned", token)
    if offset not in reading.boundaries:
        return Witness(name, "oov") if check_oov else witness_on_broken_prefix(reading, offset)
    row = reading.row_at(offset)
    if drafted.eos:
        if not vocabulary.eos_ids:
            return Witness(name, "safe", None, 0.0, False, row)
        token = Token(min(vocabulary.eos_ids), b"", offset, eos=True)
    assert token is not None, f"{name} has a boundary at byte {offset} and no token there"
    agrees = symbol_of(vocabulary, first_choice(row)) == symbol_of(vocabulary, token.id)
    return Witness(name, "safe", token, float(softmax(row)[token.id]), agrees, row)


def witness_on_broken_prefix(reading: Reading, offset: int) -> Witness:
    """Without the first check: read the text before ``offset`` by itself, and the rest by itself."""
    session = reading.session
    before = Reading(session, reading.text[:offset])
    after = Reading(session, reading.text[offset:])
    if after.is_unaligned(0):
        return Witness(session.name, "unaligned")
    first = after.tokens[0]
    row = row_after(session, [token.id for token in before.tokens])
    agrees = symbol_of(session.vocabulary, first_choice(row)) == symbol_of(session.vocabulary, first.id)
    token = Token(first.id, first.bytes, offset)
    return Witness(session.name, "oov", token, float(softmax(row)[first.id]), agrees, row)


def unchecked(index: int, drafted: Drafted) -> dict[str, Any]:
    return {
        "index": index,
        "start": drafted.token.start,
        "verdict": "unchecked",
        "oov_for": [],
        "p": [],
        "mean_p": None,
        "edge": False,
    }


def check(index: int, drafted: Drafted, witnesses: Sequence[Witness], open_end: int | None, settings: Settings) -> dict[str, Any]:
    """Both tests at one position. ``open_end`` is where the text ends that may go on; None when it cannot."""
    p = [drafted.p, *(w.p for w in witnesses)]
    known = [value for value in p if value is not None]
    oov_for = [w.name for w in witnesses if w.state == "oov"]
    mean = mean_of(weights_of(settings, len(p)), known) if len(known) == len(p) else None
    if oov_for and settings.check_oov:
        verdict, mean = "oov", None
    elif any(w.state == "unaligned" for w in witnesses):
        verdict, mean = "unaligned", None
    elif settings.check_consensus and all(w.is_first_choice for w in witnesses):
        verdict = "unanimous"
    elif settings.check_consensus and mean is not None and mean > 0.5:
        verdict = "majority"
    elif settings.ensemble == "gac" and drafted.p > 0.5:
        verdict = "gated"
    else:
        verdict = "ensemble"
    ends = {drafted.token.end} | {w.token.end for w in witnesses if w.token is not None}
    return {
        "index": index,
        "start": drafted.token.start,
        "verdict": verdict,
        "oov_for": oov_for,
        "p": p,
        "mean_p": mean,
        "edge": open_end is not None and open_end in ends,
    }


# Fusion ---------------------------------------------------------------------------------------------------------------


@dataclass
class Fused:
    """One string, each model's probability of it, their mean, and the value that decides."""

    symbol: Symbol
    p: list[float]
    mean: float
    score: float = 0.0


@dataclass
class Fusion:
    """All strings, best first, and whether the mean is smooth."""

    ranked: list[Fused]
    smooth: bool


def best_symbols(vocabulary: Any, row: Floats, k: int) -> list[Symbol]:
    """The k likeliest strings of one model, control tokens aside; the lowest id first among equals."""
    found: list[Symbol] = []
    for id in sorted(range(vocabulary.size), key=lambda id: (-row[id], id)):
        symbol = symbol_of(vocabulary, id)
        if id not in vocabulary.control_ids and symbol not in found and row[id] > NO_MASS:
            found.append(symbol)
        if len(found) == k:
            break
    return found


def unite_logit(vocabulary: Any, row: Floats, symbol: Symbol) -> float:
    """A model's score of a candidate: its own token's logit, else that of the first sub-token that is no lone blank."""
    data, eos = symbol
    if eos:
        return float(row[min(vocabulary.eos_ids)]) if vocabulary.eos_ids else NO_MASS
    id = vocabulary.id_of(data)
    if id is not None:
        return float(row[id])
    encoding = vocabulary.encode(data)
    if encoding.unaligned or not encoding.tokens:
        return NO_MASS
    telling = [token for token in encoding.tokens if token.bytes != b" "]
    return float(row[(telling or list(encoding.tokens))[0].id])


def unite(vocabularies: Sequence[Any], rows: Sequence[Floats], settings: Settings) -> Fusion:
    """Union of every model's best strings; softmax per model over the union alone; mean; sharpening."""
    lists = [best_symbols(v, row, settings.top_k) for v, row in zip(vocabularies, rows, strict=True)]
    union = list(dict.fromkeys(itertools.chain(*lists)))
    per_model = [
        softmax([unite_logit(vocabulary, row, symbol) for symbol in union])
        for vocabulary, row in zip(vocabularies, rows, strict=True)
    ]
    weights = weights_of(settings, len(rows))
    fused = []
    for number, symbol in enumerate(union):
        p = [float(probabilities[number]) for probabilities in per_model]
        fused.append(Fused(symbol, p, mean_of(weights, p)))
    return finish(fused, lists[0], weights, settings)


def gac(vocabularies: Sequence[Any], rows: Sequence[Floats], settings: Settings) -> Fusion:
    """Union of all vocabularies; a model's probability of a string is the sum over its ids with those bytes."""
    masses: list[dict[Symbol, float]] = []
    for vocabulary, row in zip(vocabularies, rows, strict=True):
        probabilities = softmax(row)
        mass: dict[Symbol, float] = {}
        for id in range(vocabulary.size):
            if id not in vocabulary.control_ids:
                symbol = symbol_of(vocabulary, id)
                mass[symbol] = mass.get(symbol, 0.0) + float(probabilities[id])
        masses.append(mass)
    weights = weights_of(settings, len(rows))
    fused = []
    for symbol in dict.fromkeys(symbol for mass in masses for symbol in mass):
        p = [mass.get(symbol, 0.0) for mass in masses]
        fused.append(Fused(symbol, p, mean_of(weights, p)))
    return finish(fused, best_symbols(vocabularies[0], rows[0], settings.top_k), weights, settings)


def finish(fused: list[Fused], own: Sequence[Symbol], weights: Sequence[float], settings: Settings) -> Fusion:
    """Sharpen where the mean is smooth, then rank: by score, the drafter's order, bytes."""
    smooth = max(one.mean for one in fused) < 0.5
    for one in fused:
        one.score = one.mean
    if smooth and settings.sharpen == "heur":
        sharpen_by_prefix(fused, own, settings.lam)
    if smooth and settings.sharpen == "geom":
        sharpen_by_geometric_mean(fused, weights)
    place = {symbol: rank for rank, symbol in enumerate(own)}
    fused.sort(key=lambda one: (-one.score, place.get(one.symbol, len(own)), one.symbol))
    return Fusion(fused, smooth)


def sharpen_by_prefix(fused: Sequence[Fused], own: Sequence[Symbol], lam: float) -> None:
    """``heur``: the drafter's own strings above lambda gain the means of all that begin with them."""
    for one in fused:
        data, eos = one.symbol
        if one.symbol not in own or eos or data == b" " or not one.mean > lam:
            continue
        longer = [other.mean for other in fused if other is not one and not other.symbol[1]
                  and other.symbol[0].startswith(data)]  # fmt: skip
        one.score = one.mean + math.fsum(longer)


def sharpen_by_geometric_mean(fused: Sequence[Fused], weights: Sequence[float]) -> None:
    """``geom``: weighted geometric mean, renormalised; the mean stays where no string has mass in every model."""
    values = []
    for one in fused:
        heard = [(weight, p) for weight, p in zip(weights, one.p, strict=True) if weight > 0.0]
        possible = all(p > 0.0 for _, p in heard)
        values.append(math.exp(math.fsum(weight * math.log(p) for weight, p in heard)) if possible else 0.0)
    total = math.fsum(values)
    if total > 0.0:
        for one, value in zip(fused, values, strict=True):
            one.score = value / total


FUSE: dict[str, Callable[[Sequence[Any], Sequence[Floats], Settings], Fusion]] = {"unite": unite, "gac": gac}


def ensemble_event(number: int, index: int, fusion: Fusion, drafted: Drafted, settings: Settings) -> dict[str, Any]:
    chosen, was = fusion.ranked[0].symbol, drafted.symbol
    return {
        "event": "ensemble",
        "window": number,
        "index": index,
        "candidates": [
            {"hex": one.symbol[0].hex(), "eos": one.symbol[1], "p": one.p, "mean": one.mean, "sharpened": one.score}
            for one in fusion.ranked
        ],
        "smooth": fusion.smooth,
        "sharpen": settings.sharpen,
        "chosen_hex": chosen[0].hex(),
        "chosen_eos": chosen[1],
        "draft_hex": was[0].hex(),
        "draft_eos": was[1],
        "replaced": chosen != was,
    }


def pieces_of(vocabulary: Any, chosen: Symbol, drafted: Drafted, room: int, settings: Settings) -> list[Token]:
    """The chosen string in the drafter's own tokens, at most ``room`` of them."""
    data, eos = chosen
    if chosen == drafted.symbol:
        return [drafted.token]
    if eos:
        if not vocabulary.eos_ids:
            raise ValueError("The drafter has no end of sequence to commit.")
        return [Token(min(vocabulary.eos_ids), b"", 0, eos=True)]
    id = vocabulary.id_of(data)
    if id is not None:
        return [Token(id, data, 0)]
    tokens = list(vocabulary.encode(data).tokens)
    if not tokens:
        raise ValueError(f"The drafter cannot write {data!r}.")
    return tokens[:1] if settings.commit == "first_piece" else tokens[:room]


# Runs -----------------------------------------------------------------------------------------------------------------


def safe(drafter: Any, verifiers: Sequence[Any], settings: Settings, prompt: str) -> Dicts:
    """Algorithm 1."""
    if settings.n == "auto" or settings.temperature > 0.0:
        raise ValueError("The oracle knows greedy decoding with a fixed window only.")
    events: Dicts = [start_event("safe", settings.ensemble, [drafter, *verifiers], prompt)]
    response = Response(settings)
    carried: list[Drafted] = []
    number = 0
    while response.reason is None:
        window = draft_window(drafter, response, carried, settings.n)
        events.append(draft_event(number, len(response.text), window, len(carried)))
        additions, carried = verify_window(drafter, verifiers, response, window, number, settings, events)
        events.append({"event": "commit", "window": number, "tokens": response.commit(additions)})
        number += 1
    events.append(end_event(response, verifiers))
    return events


def draft_window(drafter: Any, response: Response, carried: Sequence[Drafted], n: int) -> list[Drafted]:
    """The carried tokens and what the drafter says after them: n tokens in all, one new one at least."""
    window = list(carried)
    fresh = min(max(1, n - len(carried)), response.budget - len(carried))
    for _ in range(fresh):
        ids = response.ids + [drafted.token.id for drafted in window]
        start = len(response.text) + sum(len(drafted.token.bytes) for drafted in window)
        window.append(draft_next(drafter, ids, start))
        if window[-1].token.eos:
            break
    return window


def verify_window(
    drafter: Any,
    verifiers: Sequence[Any],
    response: Response,
    window: Sequence[Drafted],
    number: int,
    settings: Settings,
    events: Dicts,
) -> tuple[list[tuple[Token, str]], list[Drafted]]:
    """Retokenize, verify and ensemble one window, telling ``events``. Returns what to commit, and what to carry on."""
    begin = len(response.text)
    text = response.text + b"".join(drafted.token.bytes for drafted in window)
    ends = window[-1].token.eos
    closed = ends or len(window) == response.budget
    if not closed:
        text = text[: len(text) - unfinished_tail(text)]
    open_end = None if closed else len(text)
    ready = next((at for at, drafted in enumerate(window) if drafted.token.end > len(text)), len(window))
    readings = [Reading(verifier, text) for verifier in verifiers]
    records = [reading.record(begin, ends) for reading in readings]
    events.append({"event": "retokenize", "window": number, "begin": begin, "readings": records})

    additions: list[tuple[Token, str]] = []
    position = 0
    while True:
        checks: Dicts = []
        point = None
        for index in range(position, len(window)):
            drafted = window[index]
            if point is not None or index >= ready:
                checks.append(unchecked(index, drafted))
                continue
            witnesses = [witness(reading, drafted.token, settings.check_oov) for reading in readings]
            checks.append(check(index, drafted, witnesses, open_end, settings))
            if checks[-1]["verdict"] == "ensemble":
                point, asked = index, witnesses
        events.append({"event": "verify", "window": number, "checks": checks})
        if point is None:
            additions += [(drafted.token, "draft") for drafted in window[position:ready]]
            return additions, list(window[ready:])

        additions += [(drafted.token, "draft") for drafted in window[position:point]]
        drafted = window[point]
        row = row_after(drafter, response.ids + [earlier.token.id for earlier in window[:point]])
        rows = [row, *(w.row for w in asked if w.row is not None)]
        fusion = FUSE[settings.ensemble]([drafter.vocabulary, *(v.vocabulary for v in verifiers)], rows, settings)
        events.append(ensemble_event(number, point, fusion, drafted, settings))
        chosen = fusion.ranked[0].symbol
        room = response.budget - len(additions)
        pieces = pieces_of(drafter.vocabulary, chosen, drafted, room, settings)
        additions += [(piece, "ensemble") for piece in pieces]
        goes_on = settings.after_confirm == "continue" and chosen == drafted.symbol and point + 1 < len(window)
        if not goes_on:
            return additions, []
        position = point + 1


def unite_alone(main: Any, others: Sequence[Any], settings: Settings, prompt: str) -> Dicts:
    """UniTE at every token."""
    return every_token("unite", main, others, settings, prompt)


def gac_alone(main: Any, others: Sequence[Any], settings: Settings, prompt: str) -> Dicts:
    """GaC at every token at which the main model's first choice has no more than 1/2."""
    return every_token("gac", main, others, settings, prompt)


def every_token(method: str, main: Any, others: Sequence[Any], settings: Settings, prompt: str) -> Dicts:
    """The baselines: windows of one token, every other model re-encoding the whole response before each."""
    events: Dicts = [start_event(method, method, [main, *others], prompt)]
    response = Response(settings)
    number = 0
    while response.reason is None:
        begin = len(response.text)
        drafted = draft_next(main, response.ids, begin)
        ends = drafted.token.eos
        events.append(draft_event(number, begin, [drafted], 0))
        readings = [Reading(other, response.text + drafted.token.bytes) for other in others]
        rows = [Reading(other, response.text).row_at(begin) for other in others]
        records = [baseline_reading(reading, row, begin, ends) for reading, row in zip(readings, rows, strict=True)]
        events.append({"event": "retokenize", "window": number, "begin": begin, "readings": records})
        gated = method == "gac" and drafted.p > 0.5
        checks = [baseline_check(drafted, readings, rows, gated, settings)]
        events.append({"event": "verify", "window": number, "checks": checks})
        additions = [(drafted.token, "draft")]
        if not gated:
            own = row_after(main, response.ids)
            fusion = FUSE[method]([main.vocabulary, *(o.vocabulary for o in others)], [own, *rows], settings)
            events.append(ensemble_event(number, 0, fusion, drafted, settings))
            pieces = pieces_of(main.vocabulary, fusion.ranked[0].symbol, drafted, response.budget, settings)
            additions = [(piece, "ensemble") for piece in pieces]
        events.append({"event": "commit", "window": number, "tokens": response.commit(additions)})
        number += 1
    events.append(end_event(response, others))
    return events


def baseline_reading(reading: Reading, row: Floats, begin: int, ends: bool) -> dict[str, Any]:
    """As in the trace; only the token that starts where the window does was asked for."""
    record = reading.record(begin, ends)
    vocabulary = reading.session.vocabulary
    for shown in record["tokens"]:
        token = Token(shown["id"], bytes.fromhex(shown["hex"]), shown["start"], eos=shown["eos"])
        shown.update(read_token(vocabulary, token, row if token.start == begin else None))
    return record


def baseline_check(
    drafted: Drafted, readings: Sequence[Reading], rows: Sequence[Floats], gated: bool, settings: Settings
) -> dict[str, Any]:
    """Which models were asked on a prefix that they would not read that way, and what each thinks of its own token."""
    offset = drafted.token.start
    p: list[float | None] = [drafted.p]
    for reading, row in zip(readings, rows, strict=True):
        vocabulary = reading.session.vocabulary
        token = reading.starting_at(offset)
        if drafted.token.eos:
            p.append(float(softmax(row)[min(vocabulary.eos_ids)]) if vocabulary.eos_ids else 0.0)
        elif token is not None:
            p.append(float(softmax(row)[token.id]))
        else:
            p.append(None)
    known = [value for value in p if value is not None]
    return {
        "index": 0,
        "start": offset,
        "verdict": "gated" if gated else "ensemble",
        "oov_for": [reading.session.name for reading in readings if offset not in reading.boundaries],
        "p": p,
        "mean_p": mean_of(weights_of(settings, len(p)), known) if len(known) == len(p) else None,
        "edge": False,
    }


def single(session: Any, settings: Settings, prompt: str) -> Dicts:
    """One model alone."""
    events: Dicts = [start_event("single", None, [session], prompt)]
    response = Response(settings)
    number = 0
    while response.reason is None:
        begin = len(response.text)
        drafted = draft_next(session, response.ids, begin)
        events.append(draft_event(number, begin, [drafted], 0))
        events.append({"event": "commit", "window": number, "tokens": response.commit([(drafted.token, "draft")])})
        number += 1
    events.append(end_event(response, []))
    return events


def start_event(method: str, ensemble: str | None, sessions: Sequence[Any], prompt: str) -> dict[str, Any]:
    models = [
        {
            "name": session.name,
            "role": "verifier" if number else "drafter",
            "vocab_size": session.vocabulary.size,
            "prompt_ids": list(session.prompt_ids),
        }
        for number, session in enumerate(sessions)
    ]
    return {"event": "start", "method": method, "ensemble": ensemble, "models": models, "prompt": prompt}


def end_event(response: Response, verifiers: Sequence[Any]) -> dict[str, Any]:
    """Reason, text, and per verifier the committed tokens whose end is no boundary in its reading of the final text."""
    text = response.text
    oov_like: dict[str, list[int]] = {}
    for verifier in verifiers:
        reading = Reading(verifier, text)
        bad = [at for at, token in enumerate(response.tokens) if token.end not in reading.boundaries
               and not any(a <= token.end < b for a, b in reading.unaligned)]  # fmt: skip
        oov_like[verifier.name] = bad
    return {
        "event": "end",
        "reason": response.reason,
        "text": text.decode("utf-8", errors="replace"),
        "oov_like": oov_like,
    }


# Comparison -----------------------------------------------------------------------------------------------------------


def compare(events: Sequence[Event], oracle_events: Dicts, tol: float = 1e-5, oov_like: bool = True) -> None:
    """Assert that the engine's events mean what the oracle's do, event by event.

    Left out: timings, counts of passes, statistics, settings. Probabilities may differ by ``tol``. Free to the engine:
    whether it shows p and first choices of tokens no check needed, an end-of-sequence token in a reading, what a gated
    step of the GaC baseline did not ask, a further verify event that checks nothing, and which of GaC's many strings
    it lists below the winner. ``oov_like`` also compares the end event's field of that name.
    """
    engine = _from_window_0([_plain(event) for event in events])
    method = oracle_events[0]["method"]
    mine, theirs = _without_idle_checks(engine), _without_idle_checks(oracle_events)
    kinds = [event["event"] for event in mine]
    wanted = [event["event"] for event in theirs]
    for number, (got, want) in enumerate(zip(mine, theirs, strict=False)):
        where = f"event {number} ({want['event']}, window {want.get('window', '-')})"
        _equal(got["event"], want["event"], f"{where}: kind; engine {kinds[number:][:6]}, oracle {wanted[number:][:6]}")
        _COMPARE[want["event"]](got, want, where, _Rules(tol, method, oracle_events[0]["ensemble"], oov_like))
    _equal(kinds[len(wanted) :], wanted[len(kinds) :], "events after the last common one")


@dataclass(frozen=True)
class _Rules:
    tol: float
    method: str
    ensemble: str | None
    oov_like: bool


def _plain(event: Event) -> dict[str, Any]:
    """All fields of a record, those that its JSON leaves out included."""

    def unfold(value: Any) -> Any:
        if isinstance(value, msgspec.Struct):
            return {name: unfold(field) for name, field in msgspec.structs.asdict(value).items()}
        return [unfold(part) for part in value] if isinstance(value, list | tuple) else value

    fields: dict[str, Any] = unfold(event)
    tag = event.__struct_config__.tag
    return {"event": tag, **fields}


def _from_window_0(events: Dicts) -> Dicts:
    """With windows counted from 0, whatever number the first one has."""
    first = min((event["window"] for event in events if "window" in event), default=0)
    return [event | {"window": event["window"] - first} if "window" in event else event for event in events]


def _without_idle_checks(events: Dicts) -> Dicts:
    """Without further verify events of a window in which nothing was checked."""
    kept: Dicts = []
    verified: set[int] = set()
    for event in events:
        if event["event"] == "verify":
            idle = all(one["verdict"] == "unchecked" for one in event["checks"])
            if idle and event["window"] in verified:
                continue
            verified.add(event["window"])
        kept.append(event)
    return kept


def _equal(got: Any, want: Any, where: str) -> None:
    assert got == want, f"{where}: the engine has {got!r}, the oracle {want!r}"


def _close(got: float | None, want: float | None, where: str, tol: float) -> None:
    same = got == want if got is None or want is None else abs(got - want) <= tol
    assert same, f"{where}: the engine has {got!r}, the oracle {want!r}"


def _fields(got: dict[str, Any], want: dict[str, Any], names: Sequence[str], where: str) -> None:
    for name in names:
        _equal(got[name], want[name], f"{where}, {name}")


def _all_close(got: Sequence[float | None], want: Sequence[float | None], where: str, tol: float) -> None:
    _equal(len(got), len(want), f"{where}, length")
    for index, (one, other) in enumerate(zip(got, want, strict=True)):
        _close(one, other, f"{where}[{index}]", tol)


def _compare_start(got: dict[str, Any], want: dict[str, Any], where: str, rules: _Rules) -> None:
    _fields(got, want, ["method", "prompt"], where)
    if want["ensemble"] is not None:
        _equal(got["ensemble"], want["ensemble"], f"{where}, ensemble")
    _equal(len(got["models"]), len(want["models"]), f"{where}, models")
    for one, other in zip(got["models"], want["models"], strict=True):
        _fields(one, other, ["name", "role", "vocab_size", "prompt_ids"], f"{where}, model {other['name']}")


def _compare_tokens(got: Dicts, want: Dicts, names: Sequence[str], where: str) -> None:
    mine, theirs = ([bytes.fromhex(token["hex"]) for token in tokens] for tokens in (got, want))
    _equal(mine, theirs, f"{where}, tokens")
    for index, (one, other) in enumerate(zip(got, want, strict=True)):
        _fields(one, other, names, f"{where}, token {index} {theirs[index]!r}")


def _compare_draft(got: dict[str, Any], want: dict[str, Any], where: str, rules: _Rules) -> None:
    # How much of a window was drafted anew is the engine's affair, but for tokens that waited for the rest of a character.
    _fields(got, want, ["window", "start"], where)
    assert got["carried"] >= want["carried"], f"{where}: waiting tokens were drafted again"
    _compare_tokens(got["tokens"], want["tokens"], ["id", "hex", "start", "eos", "control"], where)
    _all_close([t["p"] for t in got["tokens"]], [t["p"] for t in want["tokens"]], f"{where}, p", rules.tol)


def _compare_retokenize(got: dict[str, Any], want: dict[str, Any], where: str, rules: _Rules) -> None:
    _equal(got["window"], want["window"], f"{where}, window")
    names = [[reading["model"] for reading in event["readings"]] for event in (got, want)]
    _equal(names[0], names[1], f"{where}, models")
    for reading, other in zip(got["readings"], want["readings"], strict=True):
        _compare_reading(reading, other, want["begin"], f"{where}, {other['model']}", rules)


def _compare_reading(got: dict[str, Any], want: dict[str, Any], begin: int, where: str, rules: _Rules) -> None:
    shown, wanted = got["tokens"], want["tokens"]
    if not any(token["eos"] for token in shown):
        wanted = [token for token in wanted if not token["eos"]]
    _compare_tokens(shown, wanted, ["id", "hex", "start", "eos"], where)
    for index, (one, other) in enumerate(zip(shown, wanted, strict=True)):
        here = f"{where}, token {index}"
        if one["p"] is not None and other["p"] is not None:
            _close(one["p"], other["p"], f"{here}, p", rules.tol)
            _fields(one, other, ["argmax_hex", "argmax_eos"], here)
    bytes_out = [
        sorted({at for start, end in reading["unaligned"] for at in range(start, end) if at >= begin}) for reading in (got, want)
    ]
    _equal(bytes_out[0], bytes_out[1], f"{where}, unaligned bytes of the window")


def _compare_verify(got: dict[str, Any], want: dict[str, Any], where: str, rules: _Rules) -> None:
    _equal(got["window"], want["window"], f"{where}, window")
    verdicts = [[(one["index"], one["verdict"]) for one in event["checks"]] for event in (got, want)]
    _equal(verdicts[0], verdicts[1], f"{where}, verdicts")
    for one, other in zip(got["checks"], want["checks"], strict=True):
        here = f"{where}, check {other['index']} ({other['verdict']})"
        _fields(one, other, ["start", "oov_for", "edge"], here)
        p, mean = other["p"], other["mean_p"]
        if rules.method == "gac" and other["verdict"] == "gated":
            p = [value if mine is not None else None for mine, value in zip(one["p"], p, strict=False)]
            mean = mean if one["mean_p"] is not None else None
        _all_close(one["p"], p, f"{here}, p", rules.tol)
        _close(one["mean_p"], mean, f"{here}, mean_p", rules.tol)


def _compare_ensemble(got: dict[str, Any], want: dict[str, Any], where: str, rules: _Rules) -> None:
    _fields(got, want, ["window", "index", "smooth", "sharpen"], where)
    spelled = [(bytes.fromhex(event["chosen_hex"]), event["chosen_eos"]) for event in (got, want)]
    _equal(spelled[0], spelled[1], f"{where}, chosen")
    _fields(got, want, ["draft_hex", "draft_eos", "replaced"], where)
    first = got["candidates"][0]
    _equal((first["hex"], first["eos"]), (got["chosen_hex"], got["chosen_eos"]), f"{where}, first candidate")
    wanted = {(one["hex"], one["eos"]): (rank, one) for rank, one in enumerate(want["candidates"])}
    if rules.ensemble == "gac":
        _all_close(first["p"], want["candidates"][0]["p"], f"{where}, winner, p", rules.tol)
        _close(first["mean"], want["candidates"][0]["mean"], f"{where}, winner, mean", rules.tol)
        return
    listed = [(one["hex"], one["eos"]) for one in got["candidates"]]
    _equal(sorted(listed), sorted(wanted), f"{where}, set of candidates")
    for one in got["candidates"]:
        other = wanted[one["hex"], one["eos"]][1]
        here = f"{where}, candidate {bytes.fromhex(one['hex'])!r}"
        _all_close(one["p"], other["p"], f"{here}, p", rules.tol)
        _close(one["mean"], other["mean"], f"{here}, mean", rules.tol)
        _close(one["sharpened"], other["sharpened"], f"{here}, sharpened", rules.tol)
    for upper, lower in itertools.pairwise(listed):
        gap = wanted[upper][1]["sharpened"] - wanted[lower][1]["sharpened"]
        # Rounding may turn neighbours that differ by less than float32 can tell; equal ones keep the order of ties.
        ordered = wanted[upper][0] < wanted[lower][0] or 0.0 < abs(gap) <= 1e-6
        assert ordered, f"{where}: {lower} stands after {upper} in the engine's list, before it in the oracle's"


def _compare_commit(got: dict[str, Any], want: dict[str, Any], where: str, rules: _Rules) -> None:
    _equal(got["window"], want["window"], f"{where}, window")
    _compare_tokens(got["tokens"], want["tokens"], ["id", "hex", "start", "source", "eos", "control"], where)


def _compare_end(got: dict[str, Any], want: dict[str, Any], where: str, rules: _Rules) -> None:
    _fields(got, want, ["reason", "text"], where)
    _equal(got["error"], None, f"{where}, error")
    if rules.oov_like:
        for name, indices in want["oov_like"].items():
            _equal(got["oov_like"].get(name, []), indices, f"{where}, oov_like of {name}")


_COMPARE: dict[str, Callable[[dict[str, Any], dict[str, Any], str, _Rules], None]] = {
    "start": _compare_start,
    "draft": _compare_draft,
    "retokenize": _compare_retokenize,
    "verify": _compare_verify,
    "ensemble": _compare_ensemble,
    "commit": _compare_commit,
    "end": _compare_end,
}
