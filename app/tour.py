"""A guided walk over the recorded runs: what is said at each stop, and where in what the models really wrote it can be seen.

Places are looked for in the traces and numbers are folded from them, so recording the gallery again keeps the words true.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from app import gallery
from app.desks import PANES
from app.gallery import Pair, Place
from app.glyphs import visible
from safe_core import events as ev
from safe_core.trace import Trace
from safe_core.types import TraceError

if TYPE_CHECKING:
    from app.tables import Placed

Facts = Mapping[str, str | bytes]
"""What the words of a stop are filled with; bytes are quoted as tokens are shown."""

Part = str | dict[str, str]
"""A piece of a sentence: plain text, ``{"term": ...}`` for a word explained here, ``{"quote": ...}`` for text of a run."""


@dataclass(frozen=True, slots=True)
class Stop:
    """One stop: ``find`` tells the token to stand at, in run ``run`` of pair ``pair``; ``marks`` are the parts of the lens
    that are spoken about, as selectors within it. In the words ``**x**`` marks what is defined and ``{x}`` a fact."""

    pair: str
    run: Literal["left", "right"]
    find: Callable[[Placed], bool]
    title: str
    text: str
    look: str
    marks: tuple[str, ...]
    far: bool = False
    """Whether what is spoken about stands at the far end of a part that may have to be scrolled sideways."""


def _any(at: Placed) -> bool:
    return True


def _broke(at: Placed) -> bool:
    """A verifier was asked on a broken prefix inside a word, and the drafter's token was then replaced."""
    return at.broken and at.state == "replaced" and at.piece == 0 and _word(at)


def _not_asked(at: Placed) -> bool:
    """The OOV check kept the drafter's token, inside a word."""
    return at.state == "oov" and _word(at)


def _agreed(at: Placed) -> bool:
    """Consensus in a window that passed whole: nothing was fused in it."""
    return at.state == "unanimous" and at.index > 0 and not at.cycle.fusions


def _replaced(at: Placed) -> bool:
    """Fused and replaced without sharpening having had a say."""
    best = _best(at)
    return at.state == "replaced" and at.piece == 0 and best is not None and _word(at) and _is_chosen(at, best)


def _sharpened(at: Placed) -> bool:
    """Sharpening made another candidate win than the plain mean."""
    best = _best(at)
    return at.state == "replaced" and at.piece == 0 and best is not None and not _is_chosen(at, best)


def _word(at: Placed) -> bool:
    """Whether the token is made of letters."""
    return bytes.fromhex(at.token.hex).decode(errors="replace").strip().isalpha()


def _fusion(at: Placed) -> ev.Ensemble | None:
    return at.cycle.fusions.get(at.index)


def _best(at: Placed) -> ev.CandidateRecord | None:
    """The candidate with the highest mean, before sharpening."""
    fusion = _fusion(at)
    return None if fusion is None else max(fusion.candidates, key=lambda c: c.mean, default=None)


def _is_chosen(at: Placed, candidate: ev.CandidateRecord) -> bool:
    fusion = _fusion(at)
    return fusion is not None and (candidate.hex, candidate.eos) == (fusion.chosen_hex, fusion.chosen_eos)


STOPS: Final = (
    Stop(
        pair="cut-word",
        run="right",
        find=_any,
        title="Two models write one text",
        text=(
            "A language model writes in **tokens**: short pieces of text, one after the other. Every box here is one. In "
            "both panes the same two models wrote together: a **drafter** ({drafter}) proposes tokens, and a **verifier** "
            "({verifier}) has a say in them. UniTE and SAFE are two ways to let them."
        ),
        look="The legend above says what each kind of box means. You need none of it yet.",
        marks=(".pane[data-run=left] .strip", ".pane[data-run=right] .strip"),
    ),
    Stop(
        pair="code",
        run="right",
        find=_not_asked,
        title="Each model cuts text its own way",
        text=(
            "A **tokenizer** is the fixed list of pieces a model can read and write. Every model comes with its own, so "
            "the same letters fall into different tokens. Both rows hold the same text; only the cuts differ."
        ),
        look="{drafter}'s tokens are in the upper row, {verifier}'s below. Their edges do not always meet.",
        marks=(".figure .f-draft, .figure .f-read, .figure .f-before",),
    ),
    Stop(
        pair="cut-word",
        run="left",
        find=_broke,
        title="A cut the other model never makes",
        text=(
            "The drafter is about to write {drafted} behind {before}. {verifier} has no cut there: it reads {whole} as "
            "one token, so it hardly ever saw a text that breaks off behind {before}. Such a place is **OOV-like** for "
            "it: as strange as a word outside its vocabulary."
        ),
        look="The torn line runs through {verifier}'s token.",
        marks=(".figure .f-tear, .figure .f-oov, .figure .f-read",),
    ),
    Stop(
        pair="cut-word",
        run="left",
        find=_broke,
        title="UniTE asks all the same, and the text breaks",
        text=(
            "Averaging the probabilities that several models give is called **ensembling**, or fusing. UniTE fuses at "
            "every token, wherever it stands. So {verifier} had to go on from {before}, answered {answer}, and the fusion "
            "put {chosen} where the drafter meant {drafted}."
        ),
        look="The bars: one column per model, then their mean. The best mean wins, whatever it rests on.",
        marks=(".fused .candidates .scroller",),
    ),
    Stop(
        pair="cut-word",
        run="right",
        find=_not_asked,
        title="SAFE, check 1: is it safe to ask?",
        text=(
            "SAFE reads the drafted tokens with every verifier's tokenizer before it asks anyone. Where one of them has "
            "no cut, it is not asked, and the drafter's own token stays: {drafted} is kept whole."
        ),
        look="The verdict of this position, and the dash where {verifier} has no probability.",
        marks=(".sentence",),
    ),
    Stop(
        pair="sharpening",
        run="right",
        find=_agreed,
        title="SAFE, check 2: is it needed?",
        text=(
            "Where everyone could be asked, SAFE looks whether they agree already. **Consensus** means: the token is "
            "every model's first choice, or its average probability is above one half. Then fusing would choose the same "
            "token, and is left out."
        ),
        look="The points of this window against the dashed line at 0.5. All {count} tokens passed in one go.",
        marks=(".figure .body .f-bar, .figure .body .f-verdict",),
    ),
    Stop(
        pair="sharpening",
        run="right",
        find=_replaced,
        title="Only here the models are fused",
        text=(
            "Safe to ask, and no consensus: the models really differ. Now all candidates are weighed. {chosen} has the "
            "best mean, so it replaces the drafter's {drafted}, and drafting begins again behind it."
        ),
        look="The winner stands first, with what it replaced beneath it.",
        marks=(".fused .candidates .scroller",),
    ),
    Stop(
        pair="sharpening",
        run="right",
        find=_sharpened,
        title="Sharpening: adding up what belongs together",
        text=(
            "Sometimes no candidate gets near one half, because the votes are spread over strings that begin alike. "
            "**Sharpening** adds the votes of the longer ones to the short one they begin with. By the plain mean {best} "
            "would have won; after sharpening {chosen} does."
        ),
        look="Two columns at the right: the mean before, and the value after.",
        marks=(".fused .candidates .scroller",),
        far=True,
    ),
    Stop(
        pair="cut-word",
        run="right",
        find=_not_asked,
        title="What it costs",
        text=(
            "**E/T** is the share of tokens at which models were fused. Over all {pairs} recorded pairs UniTE fused at "
            "{unite_et} of 100 tokens, {unite_asked} times on a broken prefix; SAFE at {safe_et} of 100, and {safe_asked} "
            "times on one. {verifier} had to compute {unite_passes} times for UniTE and {safe_passes} times for SAFE."
        ),
        look="E/T of this pair stands above each response. Now press Run above and try a prompt of your own.",
        marks=(".pane[data-run=left] .stats", ".pane[data-run=right] .stats"),
    ),
)


def offered(pairs: Sequence[Pair]) -> bool:
    """Whether these pairs hold every stop of the tour."""
    return {stop.pair for stop in STOPS} <= {pair.name for pair in pairs}


def stops(pairs: Sequence[Pair], folder: Path = gallery.TRACES) -> list[dict[str, Any]]:
    """The tour as the page gets it: ``{trace, link, title, text, look, marks, far}`` per stop, its words in parts.

    Raises TraceError where a trace cannot be read, or no longer holds what a stop shows.
    """
    named = {pair.name: pair for pair in pairs}
    read = {pair.name: dict(zip(PANES, map(gallery.read, pair.files(folder)), strict=True)) for pair in pairs}
    cost = _cost(list(read.values()))
    return [_built(stop, named[stop.pair], read[stop.pair][stop.run], cost) for stop in STOPS]


def _built(stop: Stop, pair: Pair, trace: Trace, cost: Facts) -> dict[str, Any]:
    from app.tables import placed

    found = next(((k, at) for k, at in enumerate(placed(trace.events)) if stop.find(at)), None)
    if found is None:
        raise TraceError(f"The recorded pair '{pair.name}' no longer shows '{stop.title}'; record it again or change the tour.")
    number, at = found
    facts = {**cost, **_facts(trace, at)}
    return {
        "trace": pair.name,
        "link": Place(stop.run, at.cycle.number, number).link(pair.name),
        "title": stop.title,
        "text": list(_parts(stop.text, facts)),
        "look": list(_parts(stop.look, facts)),
        "marks": list(stop.marks),
        "far": stop.far,
    }


def _facts(trace: Trace, at: Placed) -> Facts:
    """What can be said of a token."""
    start = trace.start
    draft = at.cycle.draft
    drafted = b"" if draft is None else bytes.fromhex(draft.tokens[at.index].hex)
    facts: dict[str, str | bytes] = {
        "drafter": start.models[0].name,
        "verifier": start.models[1].name,
        "drafted": drafted,
        "count": str(0 if draft is None else len(draft.tokens)),
    }
    whole = _covering(trace, at)
    if whole is not None:
        facts |= {"whole": whole[1], "before": trace.data[whole[0] : at.token.start]}
    if at.check is not None and at.check.broken:
        facts["answer"] = bytes.fromhex(at.check.broken[0].hex)
    fusion, best = _fusion(at), _best(at)
    if fusion is not None and best is not None:
        facts |= {"chosen": bytes.fromhex(fusion.chosen_hex), "best": bytes.fromhex(best.hex)}
    return facts


def _covering(trace: Trace, at: Placed) -> tuple[int, bytes] | None:
    """Start and bytes of the verifier's token that reaches over the start of a token, if one does."""
    start = at.token.start
    for event in trace.events:
        if isinstance(event, ev.Retokenize) and event.window == at.cycle.number:
            for token in event.readings[0].tokens:
                data = bytes.fromhex(token.hex)
                if token.start < start < token.start + len(data):
                    return token.start, data
    return None


def _cost(read: Sequence[Mapping[str, Trace]]) -> Facts:
    """Sums over all pairs, UniTE's left and SAFE's right."""
    facts = {"pairs": str(len(read))}
    for name, side in (("unite", "left"), ("safe", "right")):
        total: Counter[str] = Counter()
        for runs in read:
            numbers = runs[side].statistics
            total.update({key: numbers[key] for key in ("tokens", "ensembles", "asked_oov")})
            total["passes"] += sum(numbers["passes"][model.name] for model in runs[side].start.models[1:])
        facts |= {
            f"{name}_et": str(round(100 * total["ensembles"] / max(1, total["tokens"]))),
            f"{name}_asked": f"{total['asked_oov']:,}",
            f"{name}_passes": f"{total['passes']:,}",
        }
    return facts


def _parts(words: str, facts: Facts) -> Iterator[Part]:
    """The words with terms and facts in their places."""
    at = 0
    for match in re.finditer(r"\*\*(.+?)\*\*|\{(\w+)\}", words):
        if match.start() > at:
            yield words[at : match.start()]
        term, fact = match[1], facts.get(match[2] or "", "")
        if term:
            yield {"term": term}
        else:
            yield {"quote": visible(fact)} if isinstance(fact, bytes) else fact
        at = match.end()
    if at < len(words):
        yield words[at:]
