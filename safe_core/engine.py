"""SAFE (Algorithm 1) and the every-token baselines, as generators of trace events.

``run`` is the door: it opens the trace with ``start``, drives one of the methods, and closes with ``end`` whatever happens.
This file knows neither tensors nor tokenizers; the names are the paper's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Literal

from safe_core import events as ev
from safe_core import state
from safe_core.ensemble import make_ensemble
from safe_core.ensemble.base import Fusion, normalised_weights
from safe_core.reading import Reading, Witness, oov_like, token_holding
from safe_core.state import Drafted, Run, Speaker, Stopwatch, milliseconds
from safe_core.trace import Statistics
from safe_core.types import InputError, Method, ModelError, SafeError, Settings, Source, Symbol, Token
from safe_core.verify import Position, check, position, unchecked, verify
from safe_core.vocabulary import Encoding, incomplete_tail

Cancelled = Callable[[], bool]

FIRST_WINDOW, SMALLEST_WINDOW, LARGEST_WINDOW = 5, 2, 16  # of n="auto"
UNSURE = 0.5
"""With n="auto" a window ends one token behind one that the drafter itself holds less likely than this: fusion is probable
there and would discard what follows; the one more token keeps the verifiers' reading of it from being cut by the edge."""


def run(
    method: Method,
    speakers: Sequence[Speaker],
    settings: Settings,
    prompt: str = "",
    *,
    cancelled: Cancelled = lambda: False,
    about: dict[str, Any] | None = None,
    opening: Sequence[ev.Event] = (),
) -> Iterator[ev.Event]:
    """Generate with ``speakers`` (drafter first) and yield the events of the run as they happen.

    ``prompt`` and ``about`` only go into the trace: the speakers carry their own prompts. ``cancelled`` is asked once a cycle.
    ``opening`` are the cycles of an earlier run, taken over as they are: this run continues behind them.
    Raises InputError for an impossible combination before the first event; whatever goes wrong later ends the trace with
    ``reason: "error"`` and the sentence that says what.
    """
    run = _prepared(method, speakers, settings)
    statistics = Statistics()
    begun = time.perf_counter()
    error = None

    def produced() -> Iterator[ev.Event]:
        yield _start(method, run, prompt, about or {})
        yield from _continued(run, opening)
        yield from {"safe": safe, "single": single}.get(method, every_token)(run, cancelled)

    try:
        for event in produced():
            statistics.add(event)
            yield event
    except SafeError as problem:
        run.reason, error = "error", str(problem)
    yield _end(run, statistics, (time.perf_counter() - begun) * 1e3, error)


def safe(run: Run, cancelled: Cancelled) -> Iterator[ev.Event]:
    """Algorithm 1: draft a window, let the verifiers read it, fuse only where that is safe and necessary."""
    carried: list[Drafted] = []  # drafted behind what stands now, so not to be drafted again
    unfinished = 0  # of them, tokens of a character whose last bytes are still to come
    n = FIRST_WINDOW if run.settings.n == "auto" else run.settings.n
    greedy = run.settings.temperature == 0.0
    goes_on = run.settings.after_confirm == "continue" or not greedy
    while run.reason is None and not _stopped(run, cancelled):
        window, draft = generate(run, carried, max(n, unfinished + 1))
        yield draft
        final = window[-1].token.eos or len(window) >= run.room
        text = run.response.data + b"".join(d.token.bytes for d in window)
        waiting = 0 if final else incomplete_tail(text)
        readings, retokenized, watch = retokenize(run, window, text[: len(text) - waiting])
        yield retokenized
        readable = _readable(window, len(text) - waiting)
        chosen: list[tuple[Token, Source]] = []
        while True:  # once, unless checking goes on behind a token that fusion confirmed
            rest = [_position(run, i, window[i], readings, final) for i in range(len(chosen), readable)]
            checks = verify(rest, run.weights, run.settings, partial(_gate, run, window))
            waits = [unchecked(i, window[i].token) for i in range(readable, len(window))]
            yield ev.Verify(window=run.window, checks=checks + waits, **watch.spent())
            point = next((at for at, c in zip(rest, checks, strict=True) if c.verdict == "ensemble"), None)
            end = readable if point is None else point.index
            chosen += [(d.token, "draft") for d in window[len(chosen) : end]]
            if point is None:
                replaced = False
                break
            tokens, fusion = fuse(run, window[end], point)
            watch.restart()
            yield fusion
            chosen += [(token, "ensemble") for token in tokens]
            replaced = fusion.replaced
            if replaced or not goes_on or len(chosen) == readable:
                break
        # Behind a token that fusion confirmed, greedy decoding would draft the same tokens once more.
        carried = [] if replaced or (len(chosen) < readable and not greedy) else window[len(chosen) :]
        unfinished = len(carried) if len(chosen) == readable else 0
        run.leftover = [d.token.id for d in window[end + 1 :]] if replaced else []
        yield run.commit(chosen)
        if run.settings.n == "auto":
            n = _adapted(n, len(chosen), len(window), point is None)


def generate(run: Run, carried: Sequence[Drafted], n: int) -> tuple[list[Drafted], ev.Draft]:
    """The drafter's window: what it drafted before and still stands, then new tokens up to ``n``, EOS, or no room."""
    watch = Stopwatch([run.drafter])
    target = min(n, run.room)
    window = list(carried[:target])
    kept = len(window)
    ids = run.response.ids + [d.token.id for d in window]
    offset = window[-1].token.end if window else len(run.response.data)
    rows, guess, k = None, list[int](), 0
    while len(window) < target and not (window and window[-1].token.eos):
        if run.settings.n == "auto" and max(kept, 1) < len(window) and window[-2].p < UNSURE:
            break
        if rows is not None and k < len(guess) and guess[k] == ids[-1]:
            k += 1  # the drafter chose what was fed along: its next row is there
        else:
            rows, guess = run.rows_ahead(ids, target - len(window) - 1)
            k = 0
        token = run.drafter.vocabulary.token(_pick(run, rows, k), offset)
        if not token.bytes and not token.eos:
            raise ModelError(f"{run.drafter.name} chose token {token.id} at response token {len(ids)}, which stands for no text.")
        window.append(Drafted(token, rows.p(k, token.id), rows, k))
        ids.append(token.id)
        offset = token.end
    tokens = [state.drafted(d) for d in window]
    start = len(run.response.data)
    return window, ev.Draft(window=run.window, start=start, tokens=tokens, carried=kept, **watch.spent())


def retokenize(run: Run, window: Sequence[Drafted], text: bytes) -> tuple[list[Reading], ev.Retokenize, Stopwatch]:
    """Every verifier's own tokens of ``text``, and one forward pass each for the rows of those that the window touches."""
    begun = time.perf_counter()
    encodings = [run.encode(verifier, text) for verifier in run.verifiers]
    ms = milliseconds((time.perf_counter() - begun) * 1e3)
    watch = Stopwatch(run.verifiers)
    start, asks_end = len(run.response.data), window[-1].token.eos
    readings = _side_by_side(run, [partial(_read, run, v, e, start, text, asks_end) for v, e in _pairs(run, encodings)])
    return readings, ev.Retokenize(window=run.window, readings=[state.reading(r) for r in readings], ms=ms), watch


def fuse(run: Run, drafted: Drafted, at: Position) -> tuple[list[Token], ev.Ensemble]:
    """Fuse all models' rows at an ensemble point; the drafter's tokens for the winner, and the event."""
    begun = time.perf_counter()
    witnesses = [w for w in at.witnesses if w is not None]
    rows: list[Any] = [drafted.rows, *(w.rows for w in witnesses)]
    fusion = run.ensemble.fuse(rows, [drafted.k, *(w.k for w in witnesses)])
    chosen, tokens = _sampled(run, drafted, fusion) if run.settings.temperature > 0.0 else _best(run, drafted, fusion)
    return tokens, ev.Ensemble(
        window=run.window,
        index=at.index,
        candidates=[state.candidate(c) for c in fusion.candidates],
        smooth=fusion.smooth,
        sharpen=run.settings.sharpen,
        chosen_hex=chosen[0].hex(),
        chosen_eos=chosen[1],
        draft_hex=drafted.token.bytes.hex(),
        draft_eos=drafted.token.eos,
        replaced=chosen != drafted.symbol,
        ms=milliseconds((time.perf_counter() - begun) * 1e3),
    )


def every_token(run: Run, cancelled: Cancelled) -> Iterator[ev.Event]:
    """UniTE or GaC alone: fuse at every token, asking every model wherever the text happens to end.

    The window is the main model's own next token. Reading the text with that token shows which models have no boundary before
    it (``oov_for``): they were asked to continue a prefix their tokenizer would not have produced.
    """
    while run.reason is None and not _stopped(run, cancelled):
        (own,), draft = generate(run, (), 1)
        yield draft
        text, begun = run.response.data, time.perf_counter()
        prefixes = [run.encode(v, text) for v in run.verifiers]
        longer = text + own.token.bytes
        encodings = [v.vocabulary.encode_again(e, text, longer) for v, e in _pairs(run, prefixes)]
        ms = milliseconds((time.perf_counter() - begun) * 1e3)
        watch = Stopwatch(run.verifiers)
        rows = _side_by_side(run, [partial(run.rows, v, e.ids, len(e.ids)) for v, e in _pairs(run, prefixes)])
        readings = [
            Reading(v.name, e, longer, token_holding(e, own.token.start), _known(e, own.token, r))
            for (v, e), r in zip(_pairs(run, encodings), rows, strict=True)
        ]
        yield ev.Retokenize(window=run.window, readings=[state.reading(r) for r in readings], ms=ms)
        at = replace(position(0, own.token, own.p, readings, complete=True), unaligned=False)
        answers = tuple(w or _answer(r) for w, r in zip(at.witnesses, rows, strict=True))
        stands = run.ensemble.stands(_top_p(own))
        at = replace(at, broken=_broken(at, readings, answers))
        shown = check(at, "gated" if stands else "ensemble", at.mean(run.weights))
        yield ev.Verify(window=run.window, checks=[shown], **watch.spent())
        if stands:
            yield run.commit([(own.token, "draft")])
            continue
        tokens, event = fuse(run, own, replace(at, witnesses=answers))
        yield event
        yield run.commit([(token, "ensemble") for token in tokens])


def single(run: Run, cancelled: Cancelled) -> Iterator[ev.Event]:
    """The drafter alone, token by token."""
    while run.reason is None and not _stopped(run, cancelled):
        (own,), event = generate(run, (), 1)
        yield event
        yield run.commit([(own.token, "draft")])


# -- the steps of a cycle ----------------------------------------------------------------------------------------------------


def _readable(window: Sequence[Drafted], end: int) -> int:
    """How many tokens of the window the verifiers can read whole: up to one that lies in an unfinished character."""
    return next((i for i, d in enumerate(window) if d.token.end > end), len(window))


def _read(run: Run, speaker: Speaker, encoding: Encoding, start: int, text: bytes, asks_end: bool) -> Reading:
    """Rows of all tokens from the one that holds byte ``start``, and of end of sequence where that was drafted."""
    first, count = token_holding(encoding, start), len(encoding.tokens)
    asked = encoding.ids if asks_end else encoding.ids[: max(count - 1, 0)]
    needed = asks_end or first < count
    rows = run.rows(speaker, asked, min(first, len(asked))) if needed else None
    return Reading(speaker.name, encoding, text, first, rows)


def _position(run: Run, index: int, drafted: Drafted, readings: Sequence[Reading], complete: bool) -> Position:
    """One drafted token in every reading; without the OOV check, verifiers are asked even where they have no boundary."""
    at = position(index, drafted.token, drafted.p, readings, complete=complete)
    if run.settings.check_oov or not at.oov_for:
        return at
    pairs = list(zip(run.verifiers, readings, at.witnesses, strict=True))
    forced = tuple(_forced(run, v, r, drafted.token) if r.model in at.oov_for else w for v, r, w in pairs)
    edge = at.edge or (not complete and any(w is not None and w.end == readings[0].length for w in forced))
    return replace(at, witnesses=forced, broken=_broken(at, readings, forced), edge=edge)


def _forced(run: Run, speaker: Speaker, reading: Reading, token: Token) -> Witness:
    """A verifier's testimony where it has no boundary: its row after its own encoding of what comes before ``token``."""
    text = reading.text
    ids = speaker.vocabulary.encode(text[: token.start]).ids
    rows = run.rows(speaker, ids, len(ids))
    own = speaker.vocabulary.encode(text[token.start :], token.start).tokens[0]
    return Witness((own.bytes, own.eos), own.end, rows.p(0, own.id), rows.argmax[0], rows, 0)


def _answer(rows: Any) -> Witness:
    """A model's first choice as its testimony, where it was asked although it has no boundary."""
    data, eos = rows.argmax[0]
    return Witness((data, eos), 0, rows.p(0, rows.best_id(0)), (data, eos), rows, 0)


def _broken(at: Position, readings: Sequence[Reading], answers: Sequence[Witness | None]) -> tuple[ev.Broken, ...]:
    """What the models said that were asked on an OOV-like prefix."""
    pairs = zip(readings, answers, strict=True)
    return tuple(state.broken(r.model, w) for r, w in pairs if w is not None and r.model in at.oov_for)


def _known(encoding: Encoding, token: Token, rows: Any) -> Any:
    """The row asked behind the text belongs to the reading's token at ``token.start`` only if one starts there."""
    first = token_holding(encoding, token.start)
    starts = first == len(encoding.tokens) or encoding.tokens[first].start == token.start
    return rows if starts else None


def _gate(run: Run, window: Sequence[Drafted], at: Position) -> bool:
    return run.ensemble.stands(_top_p(window[at.index]))


def _top_p(drafted: Drafted) -> float:
    """The drafter's highest probability where it took this token; when decoding greedily, the token's own."""
    top: float = drafted.rows.p(drafted.k, drafted.rows.best_id(drafted.k))
    return top


def _pick(run: Run, rows: Any, k: int) -> int:
    id: int = rows.sample(k, run.rng.random()) if run.settings.temperature > 0.0 else rows.best_id(k)
    return id


def _best(run: Run, drafted: Drafted, fusion: Fusion) -> tuple[Symbol, list[Token]]:
    """The best candidate that the drafter can write, and how it writes it."""
    for c in fusion.candidates:
        if c.symbol == drafted.symbol:
            return c.symbol, [drafted.token]
        tokens = spell(run, c.symbol, drafted.token.start)
        if tokens:
            return c.symbol, tokens
    return drafted.symbol, [drafted.token]


def _sampled(run: Run, drafted: Drafted, fusion: Fusion) -> tuple[Symbol, list[Token]]:
    """Speculative sampling (App. H): keep the drafted token with probability min(1, P_ens / P_draft), else draw from what
    the fused distribution has in excess of the drafter's. The outcome is distributed as P_ens."""
    total = sum(c.score for c in fusion.candidates)
    fused = {c.symbol: c.score / total for c in fusion.candidates}
    draft = {s: drafted.rows.symbol_p(drafted.k, s) for s in {*fused, drafted.symbol}}
    if run.rng.random() * draft[drafted.symbol] < fused.get(drafted.symbol, 0.0):
        return drafted.symbol, [drafted.token]
    excess = [(s, max(0.0, p - draft[s])) for s, p in fused.items() if spell(run, s, drafted.token.start)]
    if not sum(p for _, p in excess) > 0.0:
        return _best(run, drafted, fusion)
    (chosen,) = run.rng.choices([s for s, _ in excess], weights=[p for _, p in excess])
    return chosen, [drafted.token] if chosen == drafted.symbol else spell(run, chosen, drafted.token.start)


def spell(run: Run, symbol: Symbol, start: int) -> list[Token]:
    """A chosen string in the drafter's own tokens: its token for it, else its encoding. Empty where it cannot write it."""
    data, eos = symbol
    vocabulary = run.drafter.vocabulary
    if eos:
        return [] if vocabulary.eos_id is None else [Token(vocabulary.eos_id, b"", start, eos=True)]
    whole = vocabulary.id_of(data)
    if whole is not None:
        return [Token(whole, data, start)]
    encoding = vocabulary.encode(data, start)
    tokens = [] if encoding.unaligned else list(encoding.tokens)
    return tokens[:1] if run.settings.commit == "first_piece" else tokens


def _adapted(n: int, committed: int, drafted: int, whole: bool) -> int:
    """Greatest length of the next window: longer while windows pass whole, shorter after an early ensemble point."""
    wanted = n + 2 if whole else (n + committed + 1) // 2 if 2 * committed <= drafted else n
    return max(SMALLEST_WINDOW, min(LARGEST_WINDOW, wanted))


def _pairs(run: Run, encodings: Sequence[Encoding]) -> list[tuple[Speaker, Encoding]]:
    return list(zip(run.verifiers, encodings, strict=True))


def _side_by_side(run: Run, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run one job per verifier: at the same time where they sit on different devices, else one after the other."""
    devices = {str(getattr(getattr(v, "model", None), "device", "cpu")) for v in run.verifiers}
    if len(devices) < 2:
        return [job() for job in jobs]
    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(lambda job: job(), jobs))


def _stopped(run: Run, cancelled: Cancelled) -> bool:
    if cancelled():
        run.reason = "cancelled"
    return run.reason is not None


# -- opening and closing a trace ---------------------------------------------------------------------------------------------


def _prepared(method: Method, speakers: Sequence[Speaker], settings: Settings) -> Run:
    if not speakers or (method == "single") != (len(speakers) == 1):
        raise InputError(f"Method {method} needs {'one model' if method == 'single' else 'a drafter and at least one verifier'}.")
    names = [speaker.name for speaker in speakers]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"Two models are both named {twice}. Give them different names.")
    kind: Literal["unite", "gac"] = "unite" if method == "unite" else "gac" if method == "gac" else settings.ensemble
    ensemble = make_ensemble(kind, [speaker.vocabulary for speaker in speakers], settings)
    weights = normalised_weights(settings, len(speakers))
    return Run(speakers[0], speakers[1:], replace(settings, ensemble=kind), ensemble, weights, random.Random(settings.seed))


def _start(method: Method, run: Run, prompt: str, about: dict[str, Any]) -> ev.Start:
    speakers: list[tuple[Speaker, Literal["drafter", "verifier"]]] = [(run.drafter, "drafter")]
    speakers += [(v, "verifier") for v in run.verifiers]
    models = [
        ev.ModelInfo(name=s.name, role=role, vocab_size=s.vocabulary.size, prompt_ids=list(s.prompt_ids)) for s, role in speakers
    ]
    return ev.Start(
        format=ev.FORMAT,
        version=ev.VERSION,
        method=method,
        ensemble=run.settings.ensemble,
        models=models,
        prompt=prompt,
        settings=_plain(run.settings) | about,
    )


def _plain(settings: Settings) -> dict[str, Any]:
    """Settings as they read in JSON, so that a trace written and read is the same trace."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(settings).items()}


def _continued(run: Run, opening: Sequence[ev.Event]) -> Iterator[ev.Event]:
    """The cycles of an earlier run as this one's beginning. Raises InputError where they already end it."""
    for event in opening:
        if run.reason is not None:
            raise InputError(f"The run to continue has already ended ({run.reason}). Choose an earlier token.")
        if isinstance(event, ev.Commit):
            run.commit([(Token(t.id, bytes.fromhex(t.hex), t.start, t.eos, t.control), t.source) for t in event.tokens])
        if not isinstance(event, ev.Start | ev.End):
            yield event


def _end(run: Run, statistics: Statistics, elapsed_ms: float, error: str | None) -> ev.End:
    response = run.response
    exposed = {v.name: oov_like(response.tokens, run.encode(v, response.data)) for v in run.verifiers}
    return statistics.close(
        reason=run.reason or "error",
        text=response.data.decode(errors="replace"),
        elapsed_ms=milliseconds(elapsed_ms),
        error=error,
        oov_like=exposed,
    )
