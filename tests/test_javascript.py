"""The page's scripts under TypeScript's eyes: JSDoc types, strict, without an ``any`` that hides something."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TYPESCRIPT = "7.0.2"


@pytest.mark.browser
def test_scripts_are_type_checked() -> None:
    """The compiler comes from npm, once, into its cache."""
    npx = shutil.which("npx")
    if npx is None:
        pytest.skip("type-checking the page's scripts needs npx, which comes with Node")
    command = [npx, "--yes", "-p", f"typescript@{TYPESCRIPT}", "tsc", "-p", "assets/tsconfig.json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_script_turns_its_checks_off() -> None:
    files = [*(ROOT / "assets" / "lens").glob("*.js"), *(ROOT / "assets" / "lens").glob("*.ts")]
    assert len(files) > 10
    for path in files:
        text = path.read_text("utf-8")
        assert re.search(r"@ts-(ignore|nocheck|expect-error)|\{\*\}|\{any\b|<any\b|: any\b|\bany\[\]", text) is None, path.name
