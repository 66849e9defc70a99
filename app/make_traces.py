"""Records the pairs of the gallery again: ``python -m app.make_traces [NAME ...]``. The real engine, the built-in models.

Each recipe says which prompt is run, what the pair shows, and how its place is found in what the models really wrote; a recipe
whose effect does not show up is an error, so that the gallery never promises what is not there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from app import gallery, tables
from app.gallery import Pair, Place, Recorded
from app.jobs import Lane
from app.orders import Order
from app.session import Workshop
from app.tables import Placed
from safe_core import events as ev
from safe_core import trace
from safe_core.trace import Trace
from safe_core.types import SafeError, Settings

DRAFTER, VERIFIER = "smollm2-135m-instruct", "gemma-3-270m"

Find = Callable[[Trace, Trace], Place | None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """One pair: UniTE left, SAFE right, on one prompt. ``find`` looks for the place worth opening."""

    name: str
    title: str
    look_for: str
    prompt: str
    find: Find
    tokens: int = 96


def first(run: str, wanted: Callable[[Placed], bool]) -> Find:
    """The first token of a run for which ``wanted`` holds."""

    def find(left: Trace, right: Trace) -> Place | None:
        events = (left if run == "left" else right).events
        hits = (Place(run, at.cycle.number, k) for k, at in enumerate(tables.placed(events)) if wanted(at))
        return next(hits, None)

    return find


def derailed(at: Placed) -> bool:
    """A model was asked on an OOV-like prefix, and the drafter's token was then replaced."""
    return at.broken and at.state == "replaced" and at.piece == 0


def not_safe(at: Placed) -> bool:
    """The OOV check kept the drafter's token."""
    return at.state == "oov"


def sharpened(at: Placed) -> bool:
    """Sharpening made another candidate win than the plain mean."""
    fusion = at.cycle.fusions.get(at.index)
    if at.token.source != "ensemble" or at.piece or fusion is None or not fusion.candidates:
        return False
    best = max(fusion.candidates, key=lambda c: c.mean)
    return (best.hex, best.eos) != (fusion.chosen_hex, fusion.chosen_eos)


def split_character(at: Placed) -> bool:
    """The token is not a whole number of characters."""
    try:
        bytes.fromhex(at.token.hex).decode()
    except UnicodeDecodeError:
        return True
    return False


def derailed_word(at: Placed) -> bool:
    """Derailed inside a word written in whole characters."""
    return derailed(at) and not split_character(at) and bytes.fromhex(at.token.hex)[:1].strip() != b""


RECIPES: Final = (
    Recipe(
        name="cut-word",
        title="A word cut in two: f|ear becomes f|right",
        look_for=(
            "The drafter wrote 'f' and meant 'fear'. Gemma has no token that ends after this 'f', so its answer "
            "there is about a text it never sees cut like that: UniTE asks it all the same and follows. SAFE does"
            " not ask there, and the drafter's word stays whole."
        ),
        prompt="What does the German word Schadenfreude mean? Use it in a German sentence.",
        find=first("left", derailed_word),
        tokens=64,
    ),
    Recipe(
        name="repetition",
        title="UniTE loses its way and repeats itself",
        look_for=(
            "Row after row UniTE asks Gemma in the middle of Russian words that Gemma cuts elsewhere, and lets "
            "the answers replace what the drafter wrote, until it writes one line again and again. Models this small "
            "loop under SAFE too, but no longer for this reason. Press o to walk from one broken prefix to the next."
        ),
        prompt="Write one sentence in Russian about the sea.",
        find=first("left", derailed_word),
        tokens=96,
    ),
    Recipe(
        name="stray-script",
        title="Half a character: a letter nobody meant",
        look_for=(
            "The first byte of a Cyrillic letter stands, and UniTE asks Gemma what follows. Gemma never reads half a "
            "letter; its answer wins, and the letter that comes out is not the one the drafter had begun. SAFE does "
            "not ask inside a letter."
        ),
        prompt="Translate into Russian: The sea is calm today.",
        find=first("left", lambda at: derailed(at) and split_character(at)),
        tokens=64,
    ),
    Recipe(
        name="sharpening",
        title="Sharpening changes the winner",
        look_for=(
            "No candidate reaches one half, because the mass is spread over longer strings that begin alike. "
            "Sharpening gives their mass to the short token they all start with, and that one wins. The bars show"
            " every value before and after."
        ),
        prompt="List five common medicines and what each is used for.",
        find=first("right", sharpened),
        tokens=64,
    ),
    Recipe(
        name="code",
        title="Code: names and indentation",
        look_for=(
            "Identifiers and runs of blanks are cut differently by every tokenizer. SAFE leaves the drafter's "
            "token alone where Gemma has no boundary, as in count_vow|els, and fuses at the places where both can"
            " be asked."
        ),
        prompt="Write a Python function that counts the vowels in a string.",
        find=first("right", not_safe),
        tokens=96,
    ),
    Recipe(
        name="split-characters",
        title="Japanese: characters split into bytes",
        look_for=(
            "The drafter spells most kana in two or three byte tokens, Gemma in whole words. Each character "
            "stands in one cell, with its bytes under it; a boundary inside a character is none for Gemma, so "
            "nothing is fused there."
        ),
        prompt="Translate into Japanese: Good morning, how are you?",
        find=first("right", lambda at: not_safe(at) and split_character(at)),
        tokens=64,
    ),
)


def record(recipe: Recipe, folder: Path) -> Pair:
    """Run both sides of a recipe and write their traces. Raises SafeError where a run fails or shows nothing of the kind."""
    order = Order(recipe.prompt, ("UniTE", "SAFE"), DRAFTER, (VERIFIER,), Settings(max_new_tokens=recipe.tokens)).checked()
    sources = Workshop().order(order, ("left", "right"))(lambda _, message: None, lambda: False)
    for side, key in (("unite", "left"), ("safe", "right")):
        trace.write(folder / f"{recipe.name}.{side}.jsonl", _whole(key, sources[key]))
    return pair_of(recipe, folder)


def pair_of(recipe: Recipe, folder: Path) -> Pair:
    """What the gallery's list says of a recorded pair. Raises SafeError where its traces show nothing of the kind."""
    sides = Recorded("UniTE", f"{recipe.name}.unite.jsonl"), Recorded("SAFE", f"{recipe.name}.safe.jsonl")
    place = recipe.find(*(trace.read(folder / side.file) for side in sides))
    if place is None:
        raise SafeError(f"The pair '{recipe.name}' no longer shows what it is for; find another prompt for it.")
    return Pair(recipe.name, recipe.title, recipe.look_for, *sides, place)


def _whole(key: str, source: Iterator[ev.Event]) -> Sequence[ev.Event]:
    lane = Lane(key, source=source)
    lane.begin()
    while not lane.done:
        lane.cycle()
    end = lane.events[-1]
    if isinstance(end, ev.End) and end.error:
        raise SafeError(end.error)
    return lane.events


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the named pairs, or all; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m app.make_traces", description="Record the gallery's pairs again.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="; ".join(recipe.name for recipe in RECIPES))
    parser.add_argument("--list-only", action="store_true", help="keep the traces; write titles, words and places again")
    options = parser.parse_args(arguments)
    gallery.TRACES.mkdir(exist_ok=True)
    try:
        chosen = [recipe for recipe in RECIPES if recipe.name in (options.names or [recipe.name])]
        for recipe in [] if options.list_only else chosen:
            print(f"{recipe.name}: opens at {record(recipe, gallery.TRACES).where}")
        listed = [pair_of(recipe, gallery.TRACES) for recipe in RECIPES]
    except SafeError as problem:
        print(f"make_traces: {problem}", file=sys.stderr)
        return 2
    (gallery.TRACES / "gallery.json").write_bytes(msgspec.json.format(msgspec.json.encode(listed), indent=2) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
