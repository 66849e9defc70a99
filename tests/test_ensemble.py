"""Fusion, worked out by hand on small vocabularies, against plain averages, and measured on real unions."""

from __future__ import annotations

import math
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from safe_core import engine
from safe_core.ensemble import gac, make_ensemble
from safe_core.ensemble.base import Fusion, normalised_weights, top_symbols
from safe_core.ensemble.gac import GaC, Union
from safe_core.ensemble.sharpen import geom, heur
from safe_core.ensemble.unite import UniTE, scoring_id
from safe_core.model import Rows, block_maxima, leaders
from safe_core.types import EOS, InputError, Settings, Symbol
from safe_core.vocabulary import Vocabulary
from tests.toys import ToyVocabulary, toy_sessions, toy_vocabulary

quick = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def vocabulary(*strings: bytes, ends: int = 1) -> ToyVocabulary:
    """These strings, then one control token, then end-of-sequence ids."""
    entries = [*strings, b"<|c|>", *[b"<|e|>"] * ends]
    count = len(strings)
    return ToyVocabulary(entries, eos_ids=range(count + 1, count + 1 + ends), control_ids=[count])


def rows_of(v: ToyVocabulary, p: Mapping[bytes | Symbol, float], control: float = 0.0) -> Rows:
    """One row with these probabilities by string; end of sequence shared among its ids, all else impossible."""
    row = torch.full((1, v.size), -torch.inf)
    for what, mass in p.items():
        ids = sorted(v.eos_ids) if isinstance(what, tuple) else v.ids_of(what)
        row[0, ids] = math.log(mass / len(ids))
    if control:
        row[0, sorted(v.control_ids)] = math.log(control)
    return Rows.of(row, v)  # type: ignore[arg-type]


def fused(kind: str, vocabularies: Sequence[ToyVocabulary], rows: Sequence[Rows], **options: object) -> Fusion:
    chosen = Settings(**options)  # type: ignore[arg-type]
    return make_ensemble(kind, vocabularies, chosen).fuse(rows, [0] * len(rows))  # type: ignore[arg-type]


def scores(fusion: Fusion) -> dict[bytes | Symbol, float]:
    return {EOS if c.eos else c.bytes: c.score for c in fusion.candidates}


# -- by hand -----------------------------------------------------------------------------------------------------------------

A = vocabulary(b"a", b"b", b"ab", b"c")
B = vocabulary(b"a", b"b", b"d", ends=2)


def test_unite_by_hand() -> None:
    """The union {a, ab, b, EOS}: B writes "ab" from its first piece on, and A has no "d" in its own top two."""
    rows = [rows_of(A, {b"ab": 0.5, b"a": 0.25, b"c": 0.25}), rows_of(B, {b"b": 0.4, EOS: 0.4, b"a": 0.2})]
    fusion = fused("unite", [A, B], rows, top_k=2, sharpen="none")
    found = {c.symbol: c for c in fusion.candidates}
    # A over {ab, a, b, EOS}: 0.5 and 0.25 of 0.75.  B: ab stands at a's 0.2, then 0.2, 0.4, 0.4 of 1.2.
    assert set(found) == {(b"ab", False), (b"a", False), (b"b", False), EOS}
    assert found[b"ab", False].p == pytest.approx((2 / 3, 1 / 6))
    assert found[b"a", False].p == pytest.approx((1 / 3, 1 / 6))
    assert found[b"b", False].p == pytest.approx((0.0, 1 / 3))
    assert found[EOS].p == pytest.approx((0.0, 1 / 3))
    assert found[b"ab", False].mean == pytest.approx(5 / 12)
    assert fusion.smooth
    assert fusion.candidates[0].symbol == (b"ab", False)


def test_gac_by_hand() -> None:
    rows = [rows_of(A, {b"ab": 0.5, b"a": 0.25, b"c": 0.25}), rows_of(B, {b"b": 0.4, EOS: 0.4, b"a": 0.2})]
    fusion = fused("gac", [A, B], rows, sharpen="none", weights=(3.0, 1.0))
    expected = {b"ab": 0.375, b"a": 0.2375, b"c": 0.1875, b"b": 0.1, EOS: 0.1}
    assert scores(fusion) == pytest.approx(expected)
    assert [c.bytes for c in fusion.candidates][:3] == [b"ab", b"a", b"c"]
    assert next(c.p for c in fusion.candidates if c.bytes == b"a") == pytest.approx((0.25, 0.2))


@pytest.mark.parametrize("kind", ["unite", "gac"])
def test_the_head_of_longer_strings_gains_their_mass(kind: str) -> None:
    v = vocabulary(b"a", b"ab", b"abc", b"x", b" ", b" y")
    p = {b"a": 0.2, b"ab": 0.15, b"abc": 0.1, b"x": 0.3, b" ": 0.15, b" y": 0.1}
    rows = [rows_of(v, p), rows_of(v, p)]
    fusion = fused(kind, [v, v], rows, sharpen="heur", lam=0.12)
    # "a" gains "ab" and "abc"; "ab" gains the unsharpened "abc"; a lone blank is no head.
    assert scores(fusion) == pytest.approx(p | {b"a": 0.45, b"ab": 0.25})
    assert fusion.candidates[0].bytes == b"a"
    assert fusion.candidates[0].mean == pytest.approx(0.2)
    assert scores(fused(kind, [v, v], rows, sharpen="heur", lam=0.2)) == pytest.approx(p)  # strictly above lambda
    assert scores(fused(kind, [v, v], rows, sharpen="none")) == pytest.approx(p)


@pytest.mark.parametrize("kind", ["unite", "gac"])
def test_geometric_means_by_hand(kind: str) -> None:
    v = vocabulary(b"a", b"b", b"c")
    rows = [rows_of(v, {b"a": 0.64, b"b": 0.36}), rows_of(v, {b"b": 0.16, b"a": 0.01, b"c": 0.83})]
    fusion = fused(kind, [v, v], rows, sharpen="geom")
    a, b = 0.8 * 0.1, 0.6 * 0.4
    assert fusion.smooth
    assert scores(fusion) == pytest.approx({b"a": a / (a + b), b"b": b / (a + b), b"c": 0.0})
    assert fusion.candidates[0].bytes == b"b"


@pytest.mark.parametrize("kind", ["unite", "gac"])
def test_a_decided_distribution_is_not_sharpened(kind: str) -> None:
    v = vocabulary(b"a", b"ab", b"b")
    rows = [rows_of(v, {b"b": 0.52, b"a": 0.3, b"ab": 0.18})] * 2
    for sharpen in ("heur", "geom"):
        fusion = fused(kind, [v, v], rows, sharpen=sharpen)
        assert not fusion.smooth
        assert scores(fusion) == pytest.approx({b"b": 0.52, b"a": 0.3, b"ab": 0.18})


@pytest.mark.parametrize("kind", ["unite", "gac"])
def test_control_tokens_are_no_candidates(kind: str) -> None:
    rows = [rows_of(A, {b"a": 0.1, b"b": 0.1}, control=0.8), rows_of(B, {b"b": 0.3, b"d": 0.2}, control=0.5)]
    for sharpen in ("none", "heur", "geom"):
        assert not any(c.bytes.startswith(b"<|") for c in fused(kind, [A, B], rows, sharpen=sharpen).candidates)


@pytest.mark.parametrize("kind", ["unite", "gac"])
def test_ties_go_to_the_order_of_the_drafter_then_of_bytes(kind: str) -> None:
    v = vocabulary(b"c", b"a", b"b")
    even = rows_of(v, {b"a": 1 / 3, b"b": 1 / 3, b"c": 1 / 3})
    assert [c.bytes for c in fused(kind, [v, v], [even, even], sharpen="none").candidates][:3] == [b"c", b"a", b"b"]
    assert fused(kind, [v, v], [even, even], sharpen="none", top_k=1).candidates[0].bytes == b"c"


def test_spellings_of_one_string_add_up_in_gac() -> None:
    v = ToyVocabulary([b"a", b"b", b"a", b"<|e|>"], eos_ids=[3])
    w = ToyVocabulary([b"b", b"a", b"<|e|>", b"b"], eos_ids=[2])
    rows = [Rows.of(torch.tensor([[0.3, 0.3, 0.25, 0.15]]).log(), v), Rows.of(torch.tensor([[0.2, 0.2, 0.2, 0.4]]).log(), w)]  # type: ignore[arg-type]
    assert scores(fused("gac", [v, w], rows, sharpen="none")) == pytest.approx({b"a": 0.375, b"b": 0.45, EOS: 0.175})
    product = {b"a": math.sqrt(0.55 * 0.2), b"b": math.sqrt(0.3 * 0.6), EOS: math.sqrt(0.15 * 0.2)}
    total = sum(product.values())
    assert scores(fused("gac", [v, w], rows, sharpen="geom")) == pytest.approx(
        {s: x / total for s, x in product.items()}, rel=1e-5
    )


def test_a_string_is_scored_by_its_first_piece_that_is_no_blank() -> None:
    v = vocabulary(b" ", b"w", b"wor", b"d", b"  ")
    assert scoring_id(v, (b"wor", False)) == 2  # type: ignore[arg-type]
    assert scoring_id(v, (b" wd", False)) == 1  # type: ignore[arg-type]
    assert scoring_id(v, (b"  ", False)) == 4  # type: ignore[arg-type]
    assert scoring_id(v, (b" q", False)) is None  # type: ignore[arg-type]
    assert scoring_id(v, EOS) == v.eos_id  # type: ignore[arg-type]


def test_weights_are_made_to_sum_to_one() -> None:
    assert normalised_weights(Settings(weights=(1.0, 3.0)), 2) == (0.25, 0.75)
    assert normalised_weights(Settings(), 4) == (0.25,) * 4
    with pytest.raises(InputError, match="There are 2 weights for 3 models"):
        normalised_weights(Settings(weights=(1.0, 3.0)), 3)


def test_gates() -> None:
    assert not make_ensemble("unite", [A], Settings()).stands(0.99)  # type: ignore[list-item]
    method = make_ensemble("gac", [A], Settings())  # type: ignore[list-item]
    assert method.stands(0.51)
    assert not method.stands(0.5)


def test_sharpening_alone() -> None:
    means: dict[Symbol, float] = {(b"a", False): 0.2, (b"ab", False): 0.3, EOS: 0.15}
    assert heur(means, [(b"a", False), EOS], 0.1)[b"a", False] == pytest.approx(0.5)
    assert geom({EOS: (0.5, 0.0), (b"a", False): (0.25, 0.04)}, (0.5, 0.5)) == {EOS: 0.0, (b"a", False): 1.0}
    assert geom({EOS: (0.5, 0.0)}, (1.0, 0.0)) == {EOS: 1.0}


# -- against plain averages --------------------------------------------------------------------------------------------------


def plain_mean(vocabularies: Sequence[ToyVocabulary], rows: Sequence[Rows], weights: Sequence[float]) -> dict[Symbol, float]:
    """The whole union, string by string."""
    out: dict[Symbol, float] = {}
    for v, r, w in zip(vocabularies, rows, weights, strict=True):
        for data, ids in v.symbols.items():
            out[data, False] = out.get((data, False), 0.0) + w * math.fsum(r.p(0, i) for i in ids)
        out[EOS] = out.get(EOS, 0.0) + w * r.eos_p(0)
    return out


@quick
@given(
    seed=st.integers(0, 999),
    count=st.integers(2, 3),
    scale=st.sampled_from([0.0, 0.5, 2.0, 5.0]),
    top_k=st.sampled_from([1, 3, 10]),
)
def test_gac_leads_the_whole_union(seed: int, count: int, scale: float, top_k: int) -> None:
    """However flat the rows, no string of the union is better than those reported; vocabularies longer than a block search."""
    generator = torch.Generator().manual_seed(seed)
    vocabularies = [toy_vocabulary(seed + m, 600 * (m + 1), eos=m, controls=3, duplicates=9) for m in range(count)]
    rows = [Rows.of(scale * torch.randn(1, v.size, generator=generator), v) for v in vocabularies]  # type: ignore[arg-type]
    fusion = fused("gac", vocabularies, rows, sharpen="none", top_k=top_k)
    expected = plain_mean(vocabularies, rows, [1 / count] * count)
    assert scores(fusion) == pytest.approx(
        {EOS if s[1] else s[0]: expected[s] for s in (c.symbol for c in fusion.candidates)}, rel=1e-5
    )
    best = sorted(expected.values(), reverse=True)[:top_k]
    assert [c.score for c in fusion.candidates][:top_k] == pytest.approx(best, rel=1e-5)
    for r, v in zip(rows, vocabularies, strict=True):
        assert set(top_symbols(r, 0, v, top_k)) <= {c.symbol for c in fusion.candidates}  # type: ignore[arg-type]


@quick
@given(seed=st.integers(0, 999), size=st.integers(1, 5000), count=st.integers(1, 40), levels=st.sampled_from([2, 9, 0]))
def test_leaders_are_the_largest_with_all_that_tie(seed: int, size: int, count: int, levels: int) -> None:
    values = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    values = (values * levels).round() if levels else values
    found, bound = leaders(values, block_maxima(values), min(count, size))
    assert len(found) >= min(count, size)
    assert sorted(found.tolist()) == (values >= bound).nonzero().flatten().tolist()
    assert bound <= float(values.sort(descending=True).values[min(count, size) - 1])


def test_top_strings_are_whole_behind_many_control_tokens() -> None:
    v = ToyVocabulary([b"<|c|>"] * 300 + [bytes([65 + i]) for i in range(26)], control_ids=range(300))
    rows = Rows.of(torch.linspace(9.0, 0.0, 326).view(1, -1), v)  # type: ignore[arg-type]
    assert [s[0] for s in top_symbols(rows, 0, v, 10)] == [bytes([65 + i]) for i in range(10)]  # type: ignore[arg-type]
    assert scores(fused("gac", [v, v], [rows, rows], sharpen="none"))


def test_the_order_of_verifiers_changes_nothing() -> None:
    generator = torch.Generator().manual_seed(1)
    vocabularies = [toy_vocabulary(m, 200) for m in range(3)]
    rows = [Rows.of(2.0 * torch.randn(1, v.size, generator=generator), v) for v in vocabularies]  # type: ignore[arg-type]
    for kind in ("unite", "gac"):
        a = fused(kind, vocabularies, rows, sharpen="none")
        turned = [vocabularies[0], vocabularies[2], vocabularies[1]]
        b = fused(kind, turned, [rows[0], rows[2], rows[1]], sharpen="none")
        assert [(c.symbol, c.score) for c in a.candidates] == [(c.symbol, c.score) for c in b.candidates]


def test_a_union_is_built_once_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    class Counted(Union):
        def __init__(self, vocabularies: Sequence[Vocabulary]) -> None:
            built.append(len(vocabularies))
            super().__init__(vocabularies)

    monkeypatch.setattr(gac, "Union", Counted)
    events = list(engine.run("gac", toy_sessions(3, 3, peak=3.0), Settings(max_new_tokens=20, sharpen="geom"), "p"))
    assert sum(type(event).__name__ == "Ensemble" for event in events) > 3
    assert built == [3]


# -- on real unions ----------------------------------------------------------------------------------------------------------


@cache
def real() -> list[Vocabulary]:
    from tests.test_vocabulary_real import vocabulary as real_vocabulary

    return [real_vocabulary(name) for name in ("smollm2-135m-instruct", "gemma-3-270m", "qwen3")]


@pytest.mark.real
def test_a_union_of_three_models_is_small(capsys: pytest.CaptureFixture[str]) -> None:
    vocabularies = real()
    tracemalloc.start()
    union = Union(vocabularies)
    order, shared = union.in_order, union.shared([0, 1, 2])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    tensors = [*union.maps, *(ids for _, ids in order), *(t for s in shared for t in (s.one, s.several, s.belongs, s.further))]
    nbytes = sum(t.nbytes for t in tensors)
    with capsys.disabled():
        print(f"\nunion of {union.size} columns: {nbytes / 1e6:.1f} MB of tensors, {peak / 1e6:.1f} MB peak of Python")
    assert nbytes + peak < 200e6


@pytest.mark.real
@pytest.mark.parametrize("sharpen", ["heur", "geom", "none"])
def test_fusion_over_the_whole_union_is_quick(sharpen: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Only prints: milliseconds of one fusion over 262k and 49k strings."""
    vocabularies, chosen = real()[:2], Settings(sharpen=sharpen)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    rows = [[Rows.of(4.0 * torch.randn(1, v.size, generator=generator), v) for v in vocabularies] for _ in range(10)]
    ms = {}
    for method in (UniTE(vocabularies, chosen), GaC(vocabularies, chosen)):
        spent = []
        for pair in rows * 3:
            begun = time.perf_counter()
            fusion = method.fuse(pair, [0, 0])
            spent.append((time.perf_counter() - begun) * 1e3)
        ms[type(method).__name__] = median(spent[len(rows) :])
    with capsys.disabled():
        print(f"\n{sharpen}: " + ", ".join(f"{name} {value:.2f} ms" for name, value in ms.items()))
    assert len(fusion.candidates) >= 10
