"""What pages leave on disk: found again, cut off, damaged, old."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from app.desks import Shown
from app.keep import LASTS_S, MOST, Keep, Kept, Run, ended, private_folder
from app.orders import Order
from safe_core import trace
from safe_core.events import End, Event
from safe_core.types import Settings
from tests.browser.made_traces import long_run

PAGE = "0" * 32
ORDER = Order("Why?", ("UniTE", "SAFE"), "one", ("two",), Settings(n="auto", stop=("\n",), weights=(0.5, 0.5)))


def begun(keep: Keep, page: str = PAGE, events: list[Event] | None = None) -> list[Event]:
    """A page with one run."""
    made = long_run(20) if events is None else events
    keep.begin(page, Kept(runs=[Run(key="left", title="SAFE", order=ORDER)], form={"prompt": "<b>"}))
    keep.add(page, "left", made)
    return made


def test_a_run_comes_back_whole(tmp_path: Path) -> None:
    keep = Keep(tmp_path)
    events = begun(keep)
    found = Keep(tmp_path).find(PAGE)
    assert found is not None
    assert (found.cut, found.kept.form) == (False, {"prompt": "<b>"})
    assert found.shown == [Shown("left", "SAFE", events, ORDER)]


def test_a_line_that_was_being_written_is_left_out(tmp_path: Path) -> None:
    keep = Keep(tmp_path)
    events = long_run(20)[:-1]
    begun(keep, events=events)
    file = tmp_path / PAGE / "left.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    found = keep.find(PAGE)
    assert found is not None
    assert found.cut
    assert list(found.shown[0].events[:-1]) == events[:-1]
    assert isinstance(found.shown[0].events[-1], End)


def test_a_run_that_was_cut_off_gets_an_end_that_counts_right() -> None:
    whole = long_run(30)
    last = ended(whole[:-1])[-1]
    assert isinstance(last, End)
    assert last.reason == "cancelled"
    assert last.stats["tokens"] == trace.statistics(whole)["tokens"] == 30
    assert ended(whole) == whole
    assert ended([]) == []


@pytest.mark.parametrize("name", ["", "..", "../../etc", "0" * 31, "0" * 33, "G" * 32, "/" + "0" * 31])
def test_a_name_that_is_none_touches_nothing(tmp_path: Path, name: str) -> None:
    keep = Keep(tmp_path / "root")
    keep.begin(name, Kept(name="x"))
    keep.add(name, "left", long_run(5))
    assert keep.find(name) is None
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"runs": [{"key": "../x", "title": ""}]}', b'{"runs": 3}'])
def test_damage_is_as_if_nothing_was_there(tmp_path: Path, content: bytes) -> None:
    keep = Keep(tmp_path)
    begun(keep)
    (tmp_path / PAGE / "page.json").write_bytes(content)
    assert keep.find(PAGE) is None


def test_a_disk_that_takes_nothing_stops_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    keep = Keep(tmp_path / "file")
    begun(keep)
    assert keep.find(PAGE) is None


def test_what_is_old_or_too_much_goes(tmp_path: Path) -> None:
    keep = Keep(tmp_path)
    for number in range(MOST + 3):
        begun(keep, f"{number:032x}", long_run(3))
        os.utime(tmp_path / f"{number:032x}", (time.time() - number,) * 2)
    old = time.time() - LASTS_S - 60
    os.utime(tmp_path / f"{0:032x}", (old, old))
    (tmp_path / "not ours").mkdir()
    begun(Keep(tmp_path), "f" * 32, long_run(3))
    left = {path.name for path in tmp_path.iterdir()}
    assert f"{0:032x}" not in left
    assert f"{MOST + 2:032x}" not in left
    assert {"not ours", "f" * 32, f"{1:032x}"} <= left


def test_the_folder_is_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    begun(Keep(private_folder()))
    (root,) = tmp_path.iterdir()
    assert root.stat().st_mode & 0o077 == 0
    assert (root / PAGE).stat().st_mode & 0o077 == 0


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    keep = Keep(None)
    begun(keep)
    assert keep.find(PAGE) is None
    assert list(tmp_path.iterdir()) == []
