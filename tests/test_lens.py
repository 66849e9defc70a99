"""The token view without a browser: its JavaScript tests, the rules of its bundle, and the component's Python side."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from app.lens import ASSETS, BEST, LIVE_CHARS, LIVE_ITEMS, MODULES, PUBLIC, Item, Lens, Shelf, bundle, held_packs, live, pack
from safe_core import events as ev
from safe_core import types
from safe_core.events import to_dict
from safe_core.trace import statistics
from tests.browser.made_traces import long_run

ROOT = Path(__file__).parent.parent
SOURCES = {name: (ASSETS / f"{name}.js").read_text("utf-8") for name in MODULES}
CODE = {name: re.sub(r"/\*.*?\*/|^\s*//.*$", "", source, flags=re.DOTALL | re.MULTILINE) for name, source in SOURCES.items()}


def node(*arguments: str, stdin: str = "") -> str:
    """Runs node and returns what it printed; a failure shows everything it said."""
    program = shutil.which("node")
    if program is None:
        pytest.fail("The tests of the page's JavaScript need node 20 or newer: install it and run them again.")
    done = subprocess.run([program, *arguments], input=stdin, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_javascript_unit_tests() -> None:
    tests = sorted(str(path) for path in (ROOT / "tests" / "js").glob("*.test.js"))
    assert len(tests) >= 3
    report = node("--test", "--test-reporter=tap", *tests)
    assert int(re.search(r"^# pass (\d+)$", report, re.MULTILINE).group(1)) >= 40  # type: ignore[union-attr]


def test_every_module_is_bundled() -> None:
    assert {path.stem for path in ASSETS.glob("*.js")} == set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_no_module_parses_markup_or_text_as_code(name: str) -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|Function\(|ContextualFragment|DOMParser|srcdoc"
    assert re.search(forbidden, SOURCES[name]) is None


@pytest.mark.parametrize("name", MODULES)
def test_no_module_uses_the_network(name: str) -> None:
    addresses = set(re.findall(r"https?://[^\"'\s]+", SOURCES[name]))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert re.search(r"(?<![#\w])fetch\(|XMLHttpRequest|WebSocket|EventSource|sendBeacon|import\(", CODE[name]) is None


def test_imports_and_exports_follow_the_rules_of_the_bundle() -> None:
    seen: set[str] = set()
    for name in MODULES:
        source = SOURCES[name]
        for line in re.findall(r"^import .*$", source, re.MULTILINE):
            match = re.fullmatch(r'import \{ ([\w, ]+) \} from "\./([\w-]+)\.js";', line)
            assert match is not None, f"{name}: {line}"
            assert match.group(2) in seen, f"{name} needs {match.group(2)} before it"
        assert re.search(r"^export (default|\{|\*|let|var)", source, re.MULTILINE) is None
        seen.add(name)


def test_no_two_modules_share_a_top_level_name() -> None:
    names: dict[str, str] = {}
    for module, source in SOURCES.items():
        for name in re.findall(r"^(?:export )?(?:async )?(?:function|class|const|let|var) (\w+)", source, re.MULTILINE):
            assert name not in names, f"{name} stands in {names.get(name)} and in {module}"
            names[name] = module


def test_the_bundle_is_one_valid_script_that_fits_into_a_page() -> None:
    script = bundle()
    assert "</script" not in script.lower()
    assert "<!--" not in script
    assert not re.search(r"^\s*(import|export) ", script, re.MULTILINE)
    node("-e", "new Function(require('fs').readFileSync(0, 'utf8'))", stdin=script)
    assert all(re.search(rf"(function|class) {name}\b", script) for name in PUBLIC)


def test_the_browser_counts_what_the_engine_counts() -> None:
    """The page folds events by itself; its numbers must be those of the trace."""
    for method in ("safe", "unite", "gac", "single"):
        events = long_run(300, method, models=1 if method == "single" else 3, seed=5)  # type: ignore[arg-type]
        program = (
            "import { Run } from './assets/lens/trace-model.js'; import { readFileSync } from 'node:fs';"
            "const run = new Run('left'); for (const event of JSON.parse(readFileSync(0, 'utf8'))) run.push(event);"
            "console.log(JSON.stringify(run.stats()));"
        )
        counted = json.loads(node("--input-type=module", "-e", program, stdin=json.dumps([to_dict(e) for e in events])))
        expected = statistics(events)
        assert counted["tokens"] == expected["tokens"] == 300
        assert counted["windows"] == expected["windows"]
        assert counted["fusions"] == expected["ensembles"]
        assert counted["fusedShare"] == pytest.approx(expected["ensemble_rate"], abs=1e-6)
        assert counted["replaced"] == expected["replaced"]
        assert counted["oov"] == (expected["oov"] if method == "safe" else expected["asked_oov"])
        assert counted["discarded"] == expected["discarded"]
        assert counted["edges"] == expected["edge"]
        assert counted["tokensPerSecond"] == pytest.approx(expected["tokens_per_second"], rel=1e-2)


def test_the_typed_records_of_the_page_are_those_of_the_engine() -> None:
    """types.d.ts mirrors events.py: the same records, the same fields, optional where a default is left out."""
    text = (ASSETS / "types.d.ts").read_text("utf-8").partition("// ---- what the page adds")[0]
    typed = {
        name: {field: bool(mark) for field, mark in re.findall(r"^  (\w+)(\??):", body, re.MULTILINE)}
        for name, body in re.findall(r"^export interface (\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    }
    classes = [kind for kind in vars(ev).values() if isinstance(kind, type)]
    records = [kind for kind in classes if issubclass(kind, ev.Record) and kind is not ev.Record]
    assert set(typed) == {kind.__name__ for kind in records}
    for kind in records:
        fields = {field.name: not field.required for field in msgspec.structs.fields(kind)}
        tag = {"event": False} if kind.__struct_config__.tag is not None else {}
        assert typed[kind.__name__] == tag | fields, kind.__name__
    words = {"Verdict": types.Verdict, "method": types.Method, "sharpen": types.Sharpening, "reason": types.Reason}
    for name, alias in words.items():
        said = re.search(rf"\b{name}(?: =|:) ([^;]+);", text)
        assert said is not None
        assert {word.strip('" ') for word in said.group(1).split("|")} == set(get_args(alias))


def test_packed_events_are_the_events() -> None:
    events = long_run(50)
    assert json.loads(gzip.decompress(base64.b64decode(pack(events)))) == [to_dict(event) for event in events]
    assert pack(events) == pack(events)


def restored(event: Item) -> Item:
    """A live event with what the page puts back into it."""
    for row in event.get("candidates", []):
        row.setdefault("sharpened", row["mean"])
    return event


def test_live_events_lack_only_what_is_never_drawn_or_fetched_when_asked_for() -> None:
    events = long_run(200, "unite", models=3)
    sent = [restored(event) for event in json.loads(live(events))]
    cut = 0
    for event, whole in zip(sent, map(to_dict, events), strict=True):
        for name in ("fed", "forward_ms"):
            whole.pop(name, None)
        for model in whole.get("models", []):
            model["prompt_ids"] = []
        if "candidates" in whole and len(whole["candidates"]) > BEST:
            assert event.pop("of") == len(whole["candidates"])
            whole["candidates"] = whole["candidates"][:BEST]
            cut += 1
        assert event == whole
    assert cut > 100


def test_a_choice_behind_the_best_travels_too() -> None:
    fusion = next(e for e in long_run(50, "unite") if isinstance(e, ev.Ensemble) and len(e.candidates) > BEST + 1)
    last = fusion.candidates[-1]
    (sent,) = json.loads(live([msgspec.structs.replace(fusion, chosen_hex=last.hex)]))
    assert len(sent["candidates"]) == BEST + 1
    assert sent["candidates"][-1]["hex"] == last.hex


def test_as_many_candidates_travel_as_are_shown() -> None:
    assert f"const FEW = {BEST};" in SOURCES["inspector"]


def test_only_the_newest_items_hold_events() -> None:
    events = long_run(60)
    items = [Lens.view([("left", "SAFE")])]
    for event in events:
        items += Lens.items("left", [event])
    sent = Lens().postprocess(items)
    assert [item.get("ref") for item in sent] == [item.get("ref") for item in items]
    assert ["live" in item for item in sent] == [at >= len(sent) - LIVE_ITEMS for at in range(len(sent))]
    assert sent[-1]["live"] == live(events[-1:])
    assert "live" in items[1], "the caller's list stays as it is"
    assert Lens().postprocess(sent) == sent


def test_items_are_small_and_name_what_the_server_holds() -> None:
    events = long_run(200)
    assert len(live(events)) > LIVE_CHARS
    (item,) = Lens.items("left", events)
    assert len(json.dumps(item)) < 100, "a long trace is fetched at once, whole"
    assert held_packs([item["ref"]]) == [pack(events)]
    assert held_packs(["unknown", 7]) == [None, None]  # type: ignore[list-item]
    assert Lens.items("left", []) == []


def test_a_view_names_its_panes_and_is_new_each_time() -> None:
    view = Lens.view([("left", "UniTE"), ("right", "SAFE")], trace="tour")
    assert view["panes"] == [{"run": "left", "title": "UniTE"}, {"run": "right", "title": "SAFE"}]
    assert view["trace"] == "tour"
    assert view["id"] != Lens.view([], None)["id"]


def test_the_shelf_lets_the_oldest_go() -> None:
    shelf = Shelf(limit_bytes=10)
    first, second = shelf.put("aaaaaa"), shelf.put("bbbbbb")
    assert shelf.get([first, second]) == [None, "bbbbbb"]
    third = shelf.put("c" * 50)
    assert shelf.get([second, third]) == [None, "c" * 50], "the newest is held even when it is too large"


def test_the_component_has_a_constant_template_and_a_whole_schema() -> None:
    lens = Lens(can_fork=True)
    assert lens.html_template == '<div class="safe-lens-host"></div>'
    assert lens.css_template == ""
    assert lens.api_info() == {"type": "array", "items": {"type": "object", "additionalProperties": True}}
    assert lens.postprocess(None) == []
    assert lens.props == {"can_fork": True, "link": True}
    assert not (ASSETS.parent.parent / "app" / "lens.pyi").exists()
