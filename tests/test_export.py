"""Exported pages: complete, safe, small, and the same each time."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path

import pytest

from app.export import export_html, html_of, items_of
from app.lens import bundle
from safe_core.events import to_dict
from safe_core.types import InputError
from tests.browser.made_traces import long_run, text_run

HOSTILE = "</script><script>alert(1)</script><!-- {{x}} ${y} \u2028 \" ' &amp;"


def data_of(page: str) -> list[dict[str, object]]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    loaded: list[dict[str, object]] = json.loads(match.group(1))
    return loaded


def test_a_page_holds_every_event_unrounded() -> None:
    events = long_run(120, models=3)
    items = data_of(html_of([("SAFE", events)]))
    assert json.loads(gzip.decompress(base64.b64decode(str(items[1]["gz"])))) == [to_dict(event) for event in events]


def test_hostile_text_cannot_end_the_data_or_the_title() -> None:
    page = html_of([(HOSTILE, text_run([HOSTILE.encode()], prompt=HOSTILE))])
    assert page.count("</script>") == 3, "data, bundle, start; nothing else closes a script"
    assert "alert(1)" not in page.replace("\\u003c", "<").split("<body>")[0].split("</title>")[1]
    assert data_of(page)[0]["panes"] == [{"run": "left", "title": HOSTILE}]
    assert "<title>&lt;/script&gt;" in page


def test_a_page_needs_nothing_else() -> None:
    page = html_of([("SAFE", long_run(20))])
    assert bundle() in page
    assert "default-src 'none'" in page
    assert set(re.findall(r"https?://[^\"'\s<]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe|script src|object)", page)


def test_a_thousand_tokens_stay_below_two_megabytes(tmp_path: Path) -> None:
    path = export_html([("UniTE", long_run(1000, "unite", 3)), ("SAFE", long_run(1000, "safe", 3))], tmp_path / "run.html")
    assert path.stat().st_size < 2_000_000


def test_the_same_traces_give_the_same_file() -> None:
    events = long_run(40)
    assert html_of([("a", events), ("b", events)]) == html_of([("a", events), ("b", events)])


def test_panes_are_left_then_right() -> None:
    events = long_run(10)
    items = items_of([("UniTE", events), ("SAFE", events)], "tour")
    assert [item.get("run") for item in items] == [None, "left", "right"]
    assert items[0]["trace"] == "tour"


@pytest.mark.parametrize("count", [0, 3])
def test_other_numbers_of_runs_are_refused(count: int) -> None:
    with pytest.raises(InputError, match="One or two runs"):
        html_of([("run", long_run(5))] * count)


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="could not be written"):
        export_html([("run", long_run(5))], tmp_path / "missing" / "run.html")
