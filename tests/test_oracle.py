"""The oracle and the toys against cases small enough to work out by hand."""

from __future__ import annotations

import collections
import math
import operator
import types
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safe_core.events import Event
from safe_core.types import EOS, Settings, Token
from tests import oracle, toys
from tests.toys import Said, ScriptedSession, ToyVocabulary

BYTES = [bytes([value]) for value in range(256)]
Dicts = list[dict[str, Any]]


def vocabulary(*pieces: bytes, eos: int = 1, controls: int = 0, lower: bool = False) -> ToyVocabulary:
    """``pieces`` first, then all single bytes, then end-of-sequence and control tokens."""
    ordinary = [*pieces, *BYTES]
    ends = [f"</s{number}>".encode() for number in range(eos)]
    marks = [f"<|{number}|>".encode() for number in range(controls)]
    first = len(ordinary)
    return ToyVocabulary(
        [*ordinary, *ends, *marks],
        eos_ids=range(first, first + eos),
        control_ids=range(first + eos, first + eos + controls),
        lower=lower,
    )


def scripted(
    name: str, voc: ToyVocabulary, script: Mapping[bytes, Mapping[Said, float]], otherwise: Said = EOS
) -> ScriptedSession:
    """A session that is sure of ``otherwise`` where the script is silent."""
    return ScriptedSession(name, voc, script, {otherwise: 0.99})


def events_of(kind: str, events: Dicts) -> Dicts:
    return [event for event in events if event["event"] == kind]


def verdicts(events: Dicts) -> list[list[str]]:
    return [[check["verdict"] for check in event["checks"]] for event in events_of("verify", events)]


def words(tokens: Dicts) -> list[bytes]:
    return [b"</s>" if token["eos"] else bytes.fromhex(token["hex"]) for token in tokens]


def committed(events: Dicts) -> list[list[bytes]]:
    return [words(event["tokens"]) for event in events_of("commit", events)]


# Checks ---------------------------------------------------------------------------------------------------------------


def incorrect_pair(own: float = 0.9) -> tuple[ScriptedSession, ScriptedSession]:
    """The drafter writes Inc|orrect| so, the verifier has Incorrect as one token."""
    d = scripted("d", vocabulary(b"Inc", b"orrect", b" so"), {b"": {b"Inc": 0.8}, b"Inc": {b"orrect": 0.9},
                 b"Inc|orrect": {b" so": 0.7}})  # fmt: skip
    v = scripted("v", vocabulary(b"Incorrect", b" so"), {b"": {b"Incorrect": own}, b"Incorrect": {b" so": 0.6}})
    return d, v


def test_token_that_ends_inside_a_verifiers_token_makes_the_next_one_oov() -> None:
    d, v = incorrect_pair()
    events = oracle.safe(d, [v], Settings(n=3, max_new_tokens=8), "p")
    assert words(events_of("draft", events)[0]["tokens"]) == [b"Inc", b"orrect", b" so"]
    assert verdicts(events)[0] == ["unanimous", "oov", "unanimous"]
    first, second, third = events_of("verify", events)[0]["checks"]
    assert first["p"] == pytest.approx([0.8, 0.9], abs=1e-6)
    assert first["mean_p"] == pytest.approx(0.85, abs=1e-6)
    assert (second["oov_for"], second["start"], second["mean_p"]) == (["v"], 3, None)
    assert second["p"] == [pytest.approx(0.9, abs=1e-6), None]
    assert third["p"] == pytest.approx([0.7, 0.6], abs=1e-6)
    assert [check["edge"] for check in (first, second, third)] == [False, False, True]
    reading = events_of("retokenize", events)[0]["readings"][0]["tokens"]
    assert words(reading) == [b"Incorrect", b" so"]
    assert events[-1]["text"] == "Incorrect so"
    assert events[-1]["reason"] == "eos"
    assert events[-1]["oov_like"] == {"v": [0]}


def test_a_verifier_token_cut_by_the_window_is_marked_edge() -> None:
    d, v = incorrect_pair()
    v.vocabulary = vocabulary(b"Inc", b"Incorrect", b" so")
    v.script[b""] = {b"Inc": 0.9}
    events = oracle.safe(d, [v], Settings(n=1, max_new_tokens=3), "p")
    assert words(events_of("retokenize", events)[0]["readings"][0]["tokens"]) == [b"Inc"]
    assert [c["edge"] for event in events_of("verify", events) for c in event["checks"]] == [True, True, False]


@pytest.mark.parametrize(("p", "expected"), [(0.22, "majority"), (0.18, "ensemble")])
def test_majority_needs_a_mean_above_one_half(p: float, expected: str) -> None:
    d = scripted("d", vocabulary(b"yes", b"no"), {b"": {b"yes": 0.8}})
    v = scripted("v", vocabulary(b"yes", b"no"), {b"": {b"no": 0.7, b"yes": p}})
    check = events_of("verify", oracle.safe(d, [v], Settings(n=1, max_new_tokens=1), "p"))[0]["checks"][0]
    assert check["verdict"] == expected
    assert check["mean_p"] == pytest.approx((0.8 + p) / 2, abs=1e-6)


def test_weights_move_the_majority() -> None:
    d = scripted("d", vocabulary(b"yes", b"no"), {b"": {b"yes": 0.8}})
    v = scripted("v", vocabulary(b"yes", b"no"), {b"": {b"no": 0.8, b"yes": 0.1}})
    how = Settings(n=1, max_new_tokens=1, weights=(3.0, 1.0))
    check = events_of("verify", oracle.safe(d, [v], how, "p"))[0]["checks"][0]
    assert check["verdict"] == "majority"
    assert check["mean_p"] == pytest.approx(0.75 * 0.8 + 0.25 * 0.1, abs=1e-6)


def test_later_positions_stay_unchecked_behind_an_ensemble_point() -> None:
    d = scripted("d", vocabulary(b"yes", b"no"), {b"": {b"yes": 0.6}}, b"no")
    v = scripted("v", vocabulary(b"yes", b"no"), {b"": {b"no": 0.9}}, b"no")
    events = oracle.safe(d, [v], Settings(n=3, max_new_tokens=3), "p")
    assert verdicts(events)[0] == ["ensemble", "unchecked", "unchecked"]
    assert committed(events)[0] == [b"no"]
    ensemble = events_of("ensemble", events)[0]
    assert (bytes.fromhex(ensemble["chosen_hex"]), ensemble["replaced"]) == (b"no", True)


def continuing_pair() -> tuple[ScriptedSession, ScriptedSession]:
    d = scripted("d", vocabulary(b"yes", b"no", b"!"), {b"": {b"yes": 0.6, b"no": 0.3}}, b"!")
    v = scripted("v", vocabulary(b"yes", b"no", b"!"), {b"": {b"no": 0.4, b"yes": 0.35}}, b"!")
    return d, v


def test_confirmed_token_redrafts_or_continues() -> None:
    d, v = continuing_pair()
    redraft = oracle.safe(d, [v], Settings(n=3, max_new_tokens=4), "p")
    go_on = oracle.safe(d, [v], Settings(n=3, max_new_tokens=4, after_confirm="continue"), "p")
    assert committed(redraft)[:2] == [[b"yes"], [b"!", b"!", b"!"]]
    assert committed(go_on)[:2] == [[b"yes", b"!", b"!"], [b"!"]]
    assert verdicts(go_on)[:2] == [["ensemble", "unchecked", "unchecked"], ["unanimous", "unanimous"]]
    assert [token["source"] for token in events_of("commit", go_on)[0]["tokens"]] == ["ensemble", "draft", "draft"]
    assert [event["replaced"] for event in events_of("ensemble", go_on)] == [False]
    assert redraft[-1]["text"] == go_on[-1]["text"] == "yes!!!"


def test_without_the_oov_check_a_verifier_is_asked_on_a_broken_prefix() -> None:
    d, v = incorrect_pair()
    v.script[b"I|n|c"] = {b"orr": 0.4, b"o": 0.2}
    v.vocabulary = vocabulary(b"Incorrect", b"orr", b" so")
    events = oracle.safe(d, [v], Settings(n=3, max_new_tokens=8, check_oov=False), "p")
    second = events_of("verify", events)[0]["checks"][1]
    assert (second["verdict"], second["oov_for"]) == ("unanimous", ["v"])
    assert second["p"] == pytest.approx([0.9, 0.4], abs=1e-6)
    d.script[b"Inc"] = {b"orrect": 0.3}
    v.script[b"I|n|c"] = {b"o": 0.6, b"orr": 0.2}
    events = oracle.safe(d, [v], Settings(n=3, max_new_tokens=8, check_oov=False), "p")
    assert verdicts(events)[0] == ["unanimous", "ensemble", "unchecked"]


def test_without_the_consensus_check_every_safe_position_is_an_ensemble_point() -> None:
    d, v = incorrect_pair()
    events = oracle.safe(d, [v], Settings(n=3, max_new_tokens=8, check_consensus=False, commit="first_piece"), "p")
    assert verdicts(events) == [["ensemble", "unchecked", "unchecked"], ["oov", "ensemble", "unchecked"], ["ensemble"]]
    assert committed(events) == [[b"Inc"], [b"orrect", b" so"], [b"</s>"]]


def test_normalised_bytes_are_unaligned_and_never_ensembled() -> None:
    d = scripted("d", vocabulary(b"ab"), {b"": {b"ab": 0.5}, b"ab": {b"C": 0.5}, b"ab|C": {b"d": 0.5}})
    v = ScriptedSession("v", vocabulary(b"ab", b"cd", lower=True), {b"": {b"ab": 0.9}, b"ab": {b"x": 0.9}})
    check_0, check_1, check_2 = events_of("verify", oracle.safe(d, [v], Settings(n=3), "p"))[0]["checks"]
    assert [check_0["verdict"], check_1["verdict"], check_2["verdict"]] == ["unanimous", "unaligned", "oov"]
    assert (check_1["oov_for"], check_1["p"], check_1["mean_p"]) == ([], [pytest.approx(0.5, abs=1e-6), None], None)


def test_end_of_sequence_gathers_its_set() -> None:
    d = scripted("d", vocabulary(b"go", eos=2), {b"": {b"go": 0.45, EOS: 0.5}})
    v = scripted("v", vocabulary(b"go", eos=3), {b"": {b"go": 0.3, EOS: 0.6}})
    events = oracle.safe(d, [v], Settings(n=3), "p")
    token = events_of("draft", events)[0]["tokens"]
    assert [(t["id"], t["hex"], t["eos"]) for t in token] == [(min(d.vocabulary.eos_ids), "", True)]
    check = events_of("verify", events)[0]["checks"][0]
    assert (check["verdict"], check["edge"]) == ("unanimous", False)
    assert check["p"] == pytest.approx([0.5, 0.6], abs=1e-6)
    assert (events[-1]["reason"], events[-1]["text"]) == ("eos", "")


def test_a_verifier_without_end_of_sequence_gives_it_nothing() -> None:
    d = scripted("d", vocabulary(b"go"), {b"": {b"go": 0.3, EOS: 0.6}})
    v = scripted("v", vocabulary(b"go", eos=0), {b"": {b"go": 0.9}}, b"go")
    events = oracle.safe(d, [v], Settings(n=3, max_new_tokens=2), "p")
    check = events_of("verify", events)[0]["checks"][0]
    assert (check["verdict"], check["p"][1]) == ("ensemble", 0.0)
    chosen = events_of("ensemble", events)[0]
    assert bytes.fromhex(chosen["chosen_hex"]) == b"go"
    assert chosen["draft_eos"] is True
    assert next(c for c in chosen["candidates"] if c["eos"])["p"][1] == 0.0


# Characters that a window cuts ----------------------------------------------------------------------------------------


def accent_pair() -> tuple[ScriptedSession, ScriptedSession]:
    d = scripted("d", vocabulary(b"caf"), {b"": {b"caf": 0.9}, b"caf": {b"\xc3": 0.9}, b"caf|\xc3": {b"\xa9": 0.9}})
    v = scripted("v", vocabulary(b"caf", "é".encode()), {b"": {b"caf": 0.9}, b"caf": {"é".encode(): 0.8}})
    return d, v


def test_half_a_character_waits_for_the_next_window() -> None:
    d, v = accent_pair()
    events = oracle.safe(d, [v], Settings(n=2, max_new_tokens=8), "p")
    drafts, readings = events_of("draft", events), events_of("retokenize", events)
    assert words(drafts[0]["tokens"]) == [b"caf", b"\xc3"]
    assert words(readings[0]["readings"][0]["tokens"]) == [b"caf"]
    assert verdicts(events)[:2] == [["unanimous", "unchecked"], ["unanimous", "oov"]]
    assert committed(events)[:2] == [[b"caf"], [b"\xc3", b"\xa9"]]
    assert (words(drafts[1]["tokens"]), drafts[1]["carried"], drafts[1]["start"]) == ([b"\xc3", b"\xa9"], 1, 3)
    assert events[-1]["text"] == "café"


def test_a_window_of_one_grows_until_the_character_is_whole() -> None:
    d, v = accent_pair()
    events = oracle.safe(d, [v], Settings(n=1, max_new_tokens=8), "p")
    assert committed(events)[:3] == [[b"caf"], [], [b"\xc3", b"\xa9"]]
    assert [event["carried"] for event in events_of("draft", events)[:3]] == [0, 0, 1]


def test_nothing_waits_when_the_budget_is_used_up() -> None:
    d, v = accent_pair()
    events = oracle.safe(d, [v], Settings(n=5, max_new_tokens=2), "p")
    assert words(events_of("retokenize", events)[0]["readings"][0]["tokens"]) == [b"caf", b"\xc3"]
    assert committed(events) == [[b"caf", b"\xc3"]]
    assert (events[-1]["reason"], events[-1]["text"]) == ("length", "caf\ufffd")


@pytest.mark.parametrize(
    ("text", "waiting"),
    [
        (b"", 0),
        (b"abc", 0),
        ("é".encode(), 0),
        (b"a\xc3", 1),
        (b"a\xe2\x82", 2),
        (b"\xf0\x9f\x9a", 3),
        (b"\x80", 0),
        (b"a\xff", 0),
        (b"\xed\xa0", 0),
        (b"\xf0\x80", 0),
        (b"\xc3\xff\xf0", 1),
    ],
)
def test_only_a_tail_that_can_be_finished_waits(text: bytes, waiting: int) -> None:
    assert oracle.unfinished_tail(text) == waiting


# Fusion ---------------------------------------------------------------------------------------------------------------


def fused(rows: list[Mapping[bytes, float]], how: Settings, *vocabularies: ToyVocabulary) -> oracle.Fusion:
    """Fuse rows given as logits by bytes (``</s>`` for the end); what is not named is out of reach."""
    arrays = []
    for voc, logits in zip(vocabularies, rows, strict=True):
        row = np.full(voc.size, -100.0)
        for data, logit in logits.items():
            row[min(voc.eos_ids) if data == b"</s>" else voc.ids_of(data)] = logit
        arrays.append(row)
    return oracle.FUSE[how.ensemble](vocabularies, arrays, how)


def test_unite_is_a_softmax_over_the_union_alone() -> None:
    voc = vocabulary(b"aa", b"bb")
    result = fused([{b"aa": 2.0, b"bb": 1.0}, {b"aa": 0.0, b"bb": 3.0}], Settings(top_k=1), voc, voc)
    e = math.exp
    p_aa = [e(2) / (e(2) + e(1)), 1 / (1 + e(3))]
    assert [one.symbol[0] for one in result.ranked] == [b"bb", b"aa"]
    assert result.ranked[1].p == pytest.approx(p_aa)
    assert result.ranked[1].mean == pytest.approx(sum(p_aa) / 2)
    assert not result.smooth


def test_absent_string_takes_its_first_subtoken_that_is_no_lone_blank() -> None:
    has = vocabulary(b" zebra")
    lacks = vocabulary(b"zeb")
    result = fused([{b" zebra": 1.0}, {b" ": 9.0, b"zeb": 4.0, b"q": 5.0}], Settings(top_k=1), has, lacks)
    zebra = next(one for one in result.ranked if one.symbol[0] == b" zebra")
    assert zebra.p[1] == pytest.approx(math.exp(4.0) / (math.exp(4.0) + math.exp(9.0)), rel=1e-6)
    blank = fused([{b"  ": 1.0}, {b" ": 2.0}], Settings(top_k=1), vocabulary(b"  "), vocabulary())
    assert [one.p[1] for one in blank.ranked] == pytest.approx([0.5, 0.5])


def test_a_string_a_model_cannot_encode_has_no_mass_there() -> None:
    voc = vocabulary(b"Abc")
    small = ToyVocabulary([b"abc", b"x"])
    lowering = ToyVocabulary([b"abc", b"x"], lower=True)
    for other in (small, lowering):
        result = fused([{b"Abc": 1.0}, {b"x": 1.0}], Settings(top_k=1), voc, other)
        assert next(one for one in result.ranked if one.symbol[0] == b"Abc").p == [pytest.approx(1.0), 0.0]


def prefix_rows() -> list[Mapping[bytes, float]]:
    first = {b"Inc": math.log(0.30), b"What": math.log(0.36), b"Incor": math.log(0.34)}
    second = {b"Inc": math.log(0.20), b"What": math.log(0.45), b"Incor": math.log(0.35)}
    return [first, second]


def test_heur_adds_longer_strings_to_their_prefix_and_turns_the_winner() -> None:
    voc = vocabulary(b"Inc", b"What", b"Incor")
    plain = fused(prefix_rows(), Settings(top_k=3, sharpen="none"), voc, voc)
    assert [(one.symbol[0], round(one.score, 3)) for one in plain.ranked] == [
        (b"What", 0.405), (b"Incor", 0.345), (b"Inc", 0.25)]  # fmt: skip
    sharp = fused(prefix_rows(), Settings(top_k=3), voc, voc)
    assert sharp.smooth
    assert [(one.symbol[0], round(one.score, 3)) for one in sharp.ranked] == [
        (b"Inc", 0.595), (b"What", 0.405), (b"Incor", 0.345)]  # fmt: skip
    assert fused(prefix_rows(), Settings(top_k=3, lam=0.3), voc, voc).ranked[0].symbol[0] == b"What"


def test_heur_strengthens_the_drafters_own_strings_only() -> None:
    drafter = vocabulary(b"What", b"Incor")
    other = vocabulary(b"Inc", b"What", b"Incor")
    rows = [{b"What": math.log(0.5), b"Incor": math.log(0.4), b"I": math.log(0.1)}, prefix_rows()[1]]
    ranked = fused(rows, Settings(top_k=3), drafter, other).ranked
    assert next(one for one in ranked if one.symbol[0] == b"Inc").score == pytest.approx(
        next(one for one in ranked if one.symbol[0] == b"Inc").mean
    )


def test_lone_blank_and_end_are_not_sharpened() -> None:
    voc = vocabulary(b" a")
    rows = [{b" ": math.log(0.4), b" a": math.log(0.35), b"</s>": math.log(0.25)}] * 2
    ranked = fused(list(rows), Settings(top_k=3), voc, voc).ranked
    assert [one.score for one in ranked] == pytest.approx([0.4, 0.35, 0.25])


def test_geom_is_the_weighted_geometric_mean() -> None:
    voc = vocabulary(b"aa", b"bb", b"cc")
    first = {b"aa": math.log(0.45), b"bb": math.log(0.40), b"cc": math.log(0.15)}
    second = {b"aa": math.log(0.10), b"bb": math.log(0.35), b"cc": math.log(0.55)}
    how = Settings(top_k=3, sharpen="geom", weights=(1.0, 3.0))
    ranked = fused([first, second], how, voc, voc).ranked
    raw = {b"aa": 0.45**0.25 * 0.1**0.75, b"bb": 0.4**0.25 * 0.35**0.75, b"cc": 0.15**0.25 * 0.55**0.75}
    assert {one.symbol[0]: one.score for one in ranked} == pytest.approx(
        {data: value / sum(raw.values()) for data, value in raw.items()}
    )
    assert ranked[0].mean < 0.5


def test_ties_go_to_the_drafters_order_then_to_bytes() -> None:
    voc = vocabulary(b"zz", b"bb", b"yy", b"aa")
    first = {b"zz": 1.0, b"bb": 1.0}
    second = {b"yy": 1.0, b"aa": 1.0}
    ranked = fused([first, second], Settings(top_k=2, sharpen="none"), voc, voc).ranked
    assert [one.symbol[0] for one in ranked] == [b"zz", b"bb", b"aa", b"yy"]


def test_control_tokens_are_no_candidates_and_still_weigh_in_gacs_softmax() -> None:
    voc = vocabulary(b"aa", b"aa", controls=1)
    rows = np.full(voc.size, -100.0)
    rows[[0, 1]] = math.log(0.2)
    rows[min(voc.control_ids)] = math.log(0.6)
    for name, mass in (("gac", 0.4), ("unite", None)):
        result = oracle.FUSE[name]([voc, voc], [rows, rows], Settings(ensemble="gac", top_k=3))
        assert b"<|0|>" not in [one.symbol[0] for one in result.ranked]
        assert result.ranked[0].symbol[0] == b"aa"
        if mass is not None:
            assert result.ranked[0].mean == pytest.approx(mass)


def test_gac_under_safe_keeps_its_gate() -> None:
    d = scripted("d", vocabulary(b"yes", b"no"), {b"": {b"yes": 0.6}, b"yes": {b"yes": 0.4}}, b"no")
    v = scripted("v", vocabulary(b"yes", b"no"), {b"": {b"no": 0.9}, b"yes": {b"no": 0.9}}, b"no")
    events = oracle.safe(d, [v], Settings(n=3, max_new_tokens=3, ensemble="gac"), "p")
    assert verdicts(events)[0] == ["gated", "ensemble", "unchecked"]
    assert committed(events)[0] == [b"yes", b"no"]


# Commit and end -------------------------------------------------------------------------------------------------------


def splitting_pair() -> tuple[ScriptedSession, ScriptedSession]:
    """The verifier wants Incorrect, which the drafter can only write as Inc|orrect."""
    d = scripted("d", vocabulary(b"Inc", b"orrect", b"What"), {b"": {b"What": 0.6, b"Inc": 0.3}})
    v = scripted("v", vocabulary(b"Incorrect", b"What"), {b"": {b"Incorrect": 0.97}})
    return d, v


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Settings(n=2, max_new_tokens=9), [b"Inc", b"orrect"]),
        (Settings(n=2, max_new_tokens=9, commit="first_piece"), [b"Inc"]),
        (Settings(n=2, max_new_tokens=1), [b"Inc"]),
    ],
)
def test_chosen_string_is_committed_in_the_drafters_tokens(how: Settings, expected: list[bytes]) -> None:
    d, v = splitting_pair()
    events = oracle.safe(d, [v], how, "p")
    assert bytes.fromhex(events_of("ensemble", events)[0]["chosen_hex"]) == b"Incorrect"
    assert committed(events)[0] == expected
    assert {token["source"] for token in events_of("commit", events)[0]["tokens"]} == {"ensemble"}


def test_stop_string_ends_with_the_token_that_completes_it() -> None:
    d, v = incorrect_pair()
    events = oracle.safe(d, [v], Settings(n=3, stop=("cor",)), "p")
    assert committed(events) == [[b"Inc", b"orrect"]]
    assert (events[-1]["reason"], events[-1]["text"]) == ("stop", "Incorrect")


def test_padded_columns_are_cut() -> None:
    d, v = incorrect_pair()
    padded = ScriptedSession("d", d.vocabulary, d.script, d.otherwise, pad=7)
    assert padded.raw_rows([], 0).shape == (1, d.vocabulary.size + 7)
    assert oracle.safe(padded, [v], Settings(), "p") == oracle.safe(d, [v], Settings(), "p")


# Baselines ------------------------------------------------------------------------------------------------------------


def test_unite_alone_asks_on_broken_prefixes_and_says_so() -> None:
    d, v = incorrect_pair()
    v.script[b"I|n|c"] = {b"orrect": 0.9}
    v.vocabulary = vocabulary(b"Incorrect", b" so", b"orrect")
    v.script[b""] = {b"Incorrect": 0.5, b"I": 0.3}
    events = oracle.unite_alone(d, [v], Settings(max_new_tokens=3, sharpen="none", commit="first_piece"), "p")
    checks = [event["checks"] for event in events_of("verify", events)]
    assert committed(events) == [[b"Inc"], [b"orrect"], [b" so"]]
    assert [[check["oov_for"] for check in step] for step in checks] == [[[]], [["v"]], [[]]]
    assert [step[0]["verdict"] for step in checks] == ["ensemble"] * 3
    assert checks[1][0]["p"] == [pytest.approx(0.9, abs=1e-6), None]
    assert checks[1][0]["mean_p"] is None
    assert words(events_of("retokenize", events)[1]["readings"][0]["tokens"]) == [b"Incorrect"]
    assert events[-1]["oov_like"] == {"v": [0]}


def test_gac_alone_fuses_only_below_its_gate() -> None:
    d = scripted("d", vocabulary(b"yes", b"no"), {b"": {b"yes": 0.6}, b"yes": {b"yes": 0.4}}, b"no")
    v = scripted("v", vocabulary(b"yes", b"no"), {b"": {b"no": 0.9}, b"yes": {b"no": 0.9}}, b"no")
    events = oracle.gac_alone(d, [v], Settings(max_new_tokens=2), "p")
    assert verdicts(events) == [["gated"], ["ensemble"]]
    assert committed(events) == [[b"yes"], [b"no"]]
    assert [event["tokens"][0]["source"] for event in events_of("commit", events)] == ["draft", "ensemble"]


def test_single_is_greedy_decoding() -> None:
    d, _ = incorrect_pair()
    events = oracle.single(d, Settings(), "p")
    assert [event["event"] for event in events] == ["start", *["draft", "commit"] * 4, "end"]
    assert committed(events) == [[b"Inc"], [b"orrect"], [b" so"], [b"</s>"]]


# Toys -----------------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=40), st.integers(0, 5))
def test_toy_vocabulary_gives_back_any_bytes(data: bytes, seed: int) -> None:
    encoding = toys.toy_vocabulary(seed, pieces=30).encode(data)
    assert b"".join(token.bytes for token in encoding.tokens) == data
    assert encoding.unaligned == ()
    assert [token.start for token in encoding.tokens] == [
        len(b"".join(token.bytes for token in encoding.tokens[:k])) for k in range(len(encoding.tokens))
    ]


def test_toy_vocabulary_reports_what_it_changes_or_lacks() -> None:
    voc = ToyVocabulary([b"a", b"b", b"ab"], lower=True)
    assert voc.encode(b"aBAb").unaligned == ((1, 3),)
    assert voc.encode(b"ab??b").unaligned == ((2, 4),)
    assert [token.id for token in voc.encode(b"ab??b").tokens] == [2, 1]
    assert ToyVocabulary([b"a"]).id_of(b"b") is None
    special = ToyVocabulary([b"</s>", b"a", b"</s>", b"<|c|>"], eos_ids=[0], control_ids=[3])
    assert special.id_of(b"</s>") == 2
    assert special.id_of(b"<|c|>") is None
    assert [special.token(id, 7) for id in (0, 2, 3)] == [
        Token(0, b"", 7, eos=True),
        Token(2, b"</s>", 7),
        Token(3, b"<|c|>", 7, control=True),
    ]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 30), st.lists(st.integers(0, 200), max_size=6), st.data())
def test_toy_rows_depend_on_prompt_and_ids_alone(seed: int, ids: list[int], data: st.DataObject) -> None:
    since = data.draw(st.integers(0, len(ids)))
    one, other = (toys.toy_sessions(seed, 1, pad=3)[0] for _ in range(2))
    other.raw_rows([1, 2, 3], 0)
    together = one.raw_rows(ids, since)
    assert len(together) == len(ids) - since + 1
    for k, row in enumerate(together):
        assert np.array_equal(row, other.raw_rows(ids[: since + k], since + k)[0])
    elsewhere = toys.toy_sessions(seed, 1, prompt_ids=(9,))[0]
    assert not np.array_equal(together, elsewhere.raw_rows(ids, since))


@pytest.mark.parametrize("seed", [1, 2])
def test_toy_rows_count_what_they_cost_and_match_the_raw_ones(seed: int) -> None:
    session = toys.toy_sessions(seed, 2, pad=5)[1]
    assert len(session.rows([3, 4, 5], 1).logits) == 3
    assert (session.passes, session.fed) == (1, 2)
    indirect = types.SimpleNamespace(vocabulary=session.vocabulary, rows=session.rows)
    for ids in ([], [3], [3, 4, 5]):
        assert np.allclose(oracle.row_after(indirect, ids), oracle.row_after(session, ids), atol=1e-5)
    with pytest.raises(ValueError, match="since"):
        session.rows([3], 2)


def test_toy_models_reach_every_verdict_both_methods_and_both_outcomes() -> None:
    seen: collections.Counter[str] = collections.Counter()
    carried = replaced = kept = smooth = 0
    for seed in range(8):
        drafter, *verifiers = toys.toy_sessions(seed, 2 + seed % 2)
        how = Settings(max_new_tokens=32, ensemble="gac" if seed % 2 else "unite")
        for event in oracle.safe(drafter, verifiers, how, "p"):
            seen.update(check["verdict"] for check in event.get("checks", []))
            carried += event.get("carried", 0)
            replaced += event.get("replaced") is True
            kept += event.get("replaced") is False
            smooth += event.get("smooth") is True
    assert set(seen) == {"oov", "unanimous", "majority", "gated", "ensemble", "unchecked"}
    assert min(carried, replaced, kept, smooth) > 0


def test_tiny_llama_is_seeded_and_asked_afresh() -> None:
    torch = pytest.importorskip("torch")
    network, tokenizer = toys.tiny_llama(3)
    again, _ = toys.tiny_llama(3)
    assert 280 <= len(tokenizer) <= 320
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), again.parameters(), strict=True))
    text = "Café tables: 東京"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text
    session = toys.FreshSession("tiny", network, None, [tokenizer.bos_token_id])
    rows = session.raw_rows(ids, 2)
    assert rows.shape == (len(ids) - 1, len(tokenizer))
    assert np.allclose(rows[1], session.raw_rows(ids[:3], 3)[0], atol=1e-5)
    assert len(toys.tiny_llama(4, 300, toys.TEXTS_B)[1]) == 300


# The comparison itself ------------------------------------------------------------------------------------------------


def as_events(events: Dicts) -> list[Event]:
    """The oracle's dicts as the records an engine would have yielded."""
    shared = {"format": "safe-trace", "version": 1, "settings": {}, "ms": 0.0, "stats": {}}
    built = []
    for event in events:
        full = shared | event | {"ensemble": event.get("ensemble") or "unite"}
        built.append(msgspec.convert(full, Event))
    return built


RUNS: dict[str, Callable[[], Dicts]] = {
    "safe": lambda: oracle.safe(*_split(toys.toy_sessions(1, 3)), Settings(max_new_tokens=24), "p"),
    "gac": lambda: oracle.gac_alone(*_split(toys.toy_sessions(2, 2)), Settings(max_new_tokens=24), "p"),
    "unite": lambda: oracle.unite_alone(*_split(toys.toy_sessions(3, 2)), Settings(max_new_tokens=12), "p"),
    "single": lambda: oracle.single(toys.toy_sessions(4, 1)[0], Settings(max_new_tokens=12), "p"),
}


def _split(sessions: list[toys.ToySession]) -> tuple[toys.ToySession, list[toys.ToySession]]:
    return sessions[0], sessions[1:]


@pytest.mark.parametrize("name", RUNS)
def test_compare_accepts_the_same_run(name: str) -> None:
    events = RUNS[name]()
    oracle.compare(as_events(events), events)


def _set(kind: str, path: list[str | int], value: Any) -> Callable[[Dicts], None]:
    """Put ``value`` (or what it makes of the old one) at ``path`` of the last event of a kind."""

    def change(events: Dicts) -> None:
        target: Any = events_of(kind, events)[-1]
        for step in path[:-1]:
            target = target[step]
        old = target[path[-1]]
        target[path[-1]] = value(old) if callable(value) else value
        assert target[path[-1]] != old

    return change


def _swap_candidates(events: Dicts) -> None:
    listed = events_of("ensemble", events)[-1]["candidates"]
    listed[1], listed[2] = listed[2], listed[1]


CHANGES: dict[str, Callable[[Dicts], object]] = {
    "prompt": _set("start", ["prompt"], "q"),
    "role": _set("start", ["models", 1, "role"], "drafter"),
    "draft id": _set("draft", ["tokens", 0, "id"], 10_000),
    "draft p": _set("draft", ["tokens", 0, "p"], 0.0),
    "reading p": _set("retokenize", ["readings", 0, "tokens", 0, "p"], 0.0),
    "reading argmax": _set("retokenize", ["readings", 0, "tokens", 0, "argmax_hex"], "beef"),
    "reading start": _set("retokenize", ["readings", 0, "tokens", 0, "start"], 9_999),
    "reading unaligned": _set("retokenize", ["readings", 0, "unaligned"], [(5, 900)]),
    "verdict": _set("verify", ["checks", 0, "verdict"], "gated"),
    "check p": _set("verify", ["checks", 0, "p", 1], 0.123),
    "edge": _set("verify", ["checks", -1, "edge"], operator.not_),
    "oov_for": _set("verify", ["checks", 0, "oov_for"], ["nobody"]),
    "candidate p": _set("ensemble", ["candidates", 0, "p", 0], 0.123),
    "candidate mean": _set("ensemble", ["candidates", 1, "mean"], 0.987),
    "candidate sharpened": _set("ensemble", ["candidates", 1, "sharpened"], 0.987),
    "smooth": _set("ensemble", ["smooth"], operator.not_),
    "replaced": _set("ensemble", ["replaced"], operator.not_),
    "commit source": _set("commit", ["tokens", 0, "source"], lambda old: "draft" if old == "ensemble" else "ensemble"),
    "commit hex": _set("commit", ["tokens", 0, "hex"], "beef"),
    "reason": _set("end", ["reason"], "cancelled"),
    "text": _set("end", ["text"], "?"),
    "oov_like": _set("end", ["oov_like", "toy-1"], [99]),
    "fewer candidates": lambda events: events_of("ensemble", events)[-1]["candidates"].pop(),
    "order of candidates": _swap_candidates,
    "no end": lambda events: events.pop(),
    "missing commit": lambda events: events.remove(events_of("commit", events)[0]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_compare_names_any_difference(change: str) -> None:
    right, wrong = RUNS["safe"](), RUNS["safe"]()
    CHANGES[change](wrong)
    with pytest.raises(AssertionError, match=r"the engine has|stands after"):
        oracle.compare(as_events(wrong), right)
