"""The tour against the recorded traces: its places and numbers are read here once more, straight from the files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from app import gallery, tour
from app.gallery import TRACES
from safe_core.types import TraceError

ROOT = Path(__file__).resolve().parent.parent
KEYS = (ROOT / "assets" / "lens" / "keys.js").read_text("utf-8")
SCRIPT = (ROOT / "assets" / "page" / "tour.js").read_text("utf-8")


@pytest.fixture(scope="module")
def stops() -> list[dict[str, Any]]:
    return tour.stops(gallery.pairs())


def lines(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TRACES / file).read_text("utf-8").splitlines()]


def words(stop: dict[str, Any]) -> str:
    """The words of a card as they read."""
    return "".join(p if isinstance(p, str) else next(iter(p.values())) for p in [*stop["text"], " ", *stop["look"]])


def quotes(stop: dict[str, Any]) -> list[str]:
    return [part["quote"] for part in stop["text"] if isinstance(part, dict) and "quote" in part]


class Place:
    """What the trace holds where a stop stands: the events of its window, and the position in it."""

    def __init__(self, stop: dict[str, Any]) -> None:
        self.asked = dict(parse_qsl(stop["link"].removeprefix("#")))
        pair = next(entry for entry in json.loads((TRACES / "gallery.json").read_text()) if entry["name"] == self.asked["trace"])
        self.events = lines(pair[self.asked["run"]]["file"])
        window, self.token = int(self.asked["window"]), int(self.asked["token"])
        cycle = [event for event in self.events if event.get("window") == window]
        self.by_name = {event["event"]: event for event in cycle}
        before = sum(len(e["tokens"]) for e in self.events if e["event"] == "commit" and e["window"] < window)
        self.index = self.token - before  # every stop stands at the first piece of a string, none behind several pieces
        self.committed = self.by_name["commit"]["tokens"]
        assert 0 <= self.index < len(self.committed)
        self.draft = self.by_name["draft"]["tokens"][self.index]
        verify = self.by_name.get("verify", {"checks": []})
        self.check = next((check for check in verify["checks"] if check["index"] == self.index), None)
        self.fusion = next((e for e in cycle if e["event"] == "ensemble" and e["index"] == self.index), None)

    def chosen(self) -> str:
        assert self.fusion is not None
        return bytes.fromhex(self.fusion["chosen_hex"]).decode()


def titled(stops: list[dict[str, Any]], word: str) -> tuple[dict[str, Any], Place]:
    stop = next(stop for stop in stops if word in stop["title"])
    return stop, Place(stop)


def drawn(text: str) -> str:
    return text.replace(" ", "␣")


def test_every_stop_says_something_and_defines_words_at_their_first_use(stops: list[dict[str, Any]]) -> None:
    assert 7 <= len(stops) <= 10
    for stop in stops:
        assert stop["title"]
        assert not re.search(r"[{}]|\*\*|  ", words(stop)), words(stop)
        assert 1 <= "".join(p for p in stop["text"] if isinstance(p, str)).count(".") <= 6
    terms = [part["term"] for stop in stops for part in stop["text"] if isinstance(part, dict) and "term" in part]
    assert len(terms) == len(set(terms))
    for term in ("tokens", "drafter", "verifier", "tokenizer", "OOV-like", "ensembling", "Consensus", "Sharpening", "E/T"):
        assert term in terms
    said = ""
    for stop in stops:
        own = [part["term"].lower() for part in stop["text"] if isinstance(part, dict) and "term" in part]
        for term in own:
            assert term not in said, f"'{term}' is used before it is explained"
        said += words(stop).lower()


def test_a_window_in_which_the_tokenizers_cut_differently(stops: list[dict[str, Any]]) -> None:
    _, at = titled(stops, "its own way")
    drafted = {t["start"] for t in at.by_name["draft"]["tokens"]}
    read = {t["start"] for t in at.by_name["retokenize"]["readings"][0]["tokens"]}
    assert drafted - read
    assert drafted & read


def test_unite_asked_on_a_broken_prefix_and_followed(stops: list[dict[str, Any]]) -> None:
    for title in ("never makes", "UniTE asks"):
        stop, at = titled(stops, title)
        assert at.events[0]["method"] == "unite"
        assert at.check["oov_for"] == ["gemma-3-270m"]
        assert at.check["broken"]
        assert at.fusion is not None
        assert at.fusion["replaced"]
        assert bytes.fromhex(at.draft["hex"]).decode() in quotes(stop)
    stop, at = titled(stops, "UniTE asks")
    answer = bytes.fromhex(at.check["broken"][0]["hex"]).decode()
    assert quotes(stop)[1:3] == [answer, at.chosen()]
    data = b"".join(bytes.fromhex(t["hex"]) for e in at.events if e["event"] == "commit" for t in e["tokens"])
    (covering,) = [
        t
        for t in at.by_name["retokenize"]["readings"][0]["tokens"]
        if t["start"] < at.draft["start"] < t["start"] + len(t["hex"]) // 2
    ]
    broken = data[covering["start"] : at.draft["start"]].decode()
    assert quotes(stop)[0] == broken
    stop, _ = titled(stops, "never makes")
    assert quotes(stop)[1:3] == [broken, bytes.fromhex(covering["hex"]).decode()]


def test_check_1_kept_the_same_token_at_the_same_byte(stops: list[dict[str, Any]]) -> None:
    _, broke = titled(stops, "UniTE asks")
    stop, at = titled(stops, "check 1")
    assert at.check["verdict"] == "oov"
    assert at.fusion is None
    assert at.committed[at.index]["hex"] == at.draft["hex"] == broke.draft["hex"]
    assert at.draft["start"] == broke.draft["start"]
    assert quotes(stop) == [bytes.fromhex(at.draft["hex"]).decode()]


def test_check_2_found_consensus_all_through_its_window(stops: list[dict[str, Any]]) -> None:
    stop, at = titled(stops, "check 2")
    checks = at.by_name["verify"]["checks"]
    assert {check["verdict"] for check in checks} <= {"unanimous", "majority"}
    assert "ensemble" not in at.by_name
    assert f"All {len(checks)} tokens" in words(stop)
    assert len(at.committed) == len(checks)


def test_the_fused_token_won_by_its_mean(stops: list[dict[str, Any]]) -> None:
    stop, at = titled(stops, "Only here")
    assert at.check["verdict"] == "ensemble"
    assert at.fusion is not None
    assert at.fusion["replaced"]
    best = max(at.fusion["candidates"], key=lambda c: float(c["mean"]))
    assert best["hex"] == at.fusion["chosen_hex"]
    assert quotes(stop) == [drawn(at.chosen()), drawn(bytes.fromhex(at.draft["hex"]).decode())]


def test_sharpening_changed_the_winner(stops: list[dict[str, Any]]) -> None:
    stop, at = titled(stops, "Sharpening")
    assert at.fusion is not None
    before = max(at.fusion["candidates"], key=lambda c: float(c["mean"]))
    after = max(at.fusion["candidates"], key=lambda c: float(c["sharpened"]))
    assert at.fusion["smooth"]
    assert before["hex"] != after["hex"] == at.fusion["chosen_hex"]
    longer = [c for c in at.fusion["candidates"] if c["hex"].startswith(after["hex"]) and c["hex"] != after["hex"]]
    assert longer
    assert quotes(stop) == [drawn(bytes.fromhex(before["hex"]).decode()), drawn(at.chosen())]


def test_the_cost_is_what_the_traces_add_up_to(stops: list[dict[str, Any]]) -> None:
    stop, at = titled(stops, "costs")
    pairs = json.loads((TRACES / "gallery.json").read_text())

    def total(side: str) -> Iterator[int]:
        runs = [lines(pair[side]["file"]) for pair in pairs]
        tokens = sum(len(e["tokens"]) for run in runs for e in run if e["event"] == "commit")
        yield round(100 * sum(e["event"] == "ensemble" for run in runs for e in run) / tokens)
        broken = 0
        for run in runs:
            checks: dict[int, Any] = {}
            for event in run:
                if event["event"] == "verify":
                    checks = {check["index"]: check for check in event["checks"]}
                broken += event["event"] == "ensemble" and bool(checks[event["index"]]["oov_for"])
        yield broken
        asked = (f for run in runs for e in run for f in e.get("fed", ()) if f["model"] == at.events[0]["models"][1]["name"])
        yield sum(f["passes"] for f in asked)

    (unite_et, unite_broken, unite_passes), (safe_et, safe_broken, safe_passes) = total("left"), total("right")
    assert f"all {len(pairs)} recorded pairs UniTE fused at {unite_et} of 100 tokens, {unite_broken} times" in words(stop)
    assert f"SAFE at {safe_et} of 100, and {safe_broken} times" in words(stop)
    assert f"compute {unite_passes} times for UniTE and {safe_passes} times for SAFE" in words(stop)


def test_a_pair_that_no_longer_shows_its_stop_is_named(tmp_path: Path) -> None:
    for file in TRACES.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "sharpening.safe.jsonl").write_bytes((TRACES / "sharpening.unite.jsonl").read_bytes())
    with pytest.raises(TraceError, match="'sharpening' no longer shows 'SAFE, check 2"):
        tour.stops(gallery.pairs(tmp_path), tmp_path)
    assert not tour.offered(gallery.pairs(tmp_path)[1:])
    assert tour.offered(gallery.pairs())


def test_its_keys_are_not_the_lenss() -> None:
    taken = {key for keys in re.findall(r"keys: \[([^\]]*)\]", KEYS) for key in re.findall(r'"([^"]+)"', keys)}
    assert {"ArrowLeft", "o", "p"} <= taken
    table = re.search(r"const act = \{(.*)\}\[event\.key\]", SCRIPT)
    assert table is not None
    own = set(re.findall(r"(\w+): \(\)", table[1]))
    assert own == {"n", "N", "Escape"}
    assert own & taken == {"Escape"}  # it closes the lens's help and presenter mode first
    assert "presenter" in SCRIPT
    assert "dialog[open]" in SCRIPT
