"""The direction of the arrows between modules, read off their imports; and what drawing code may never call."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
UNSAFE_DRAWING = re.compile(r"innerHTML|insertAdjacentHTML|outerHTML|document\.write")

MAY_IMPORT = {
    "safe_core.types": set(),
    "safe_core.events": {"safe_core.types"},
    "safe_core.vocabulary": {"safe_core.types"},
    "safe_core.reading": {"safe_core.types", "safe_core.vocabulary"},
    "safe_core.model": {"safe_core.types", "safe_core.vocabulary"},
    "safe_core.zoo": {"safe_core.types"},
    "safe_core.verify": {"safe_core.types", "safe_core.events", "safe_core.reading", "safe_core.vocabulary"},
    "safe_core.trace": {"safe_core.types", "safe_core.events"},
}
"""Modules and packages of the engine and all of this project that they may know besides themselves. The rest of the engine is
built on top of these."""

ENSEMBLE_MAY_IMPORT = {"safe_core.types", "safe_core.vocabulary", "safe_core.model", "safe_core.ensemble"}
LOADS_TORCH = {"torch", "transformers"} | {f"safe_core.{part}" for part in ("api", "engine", "model", "state", "ensemble")}


def modules(package: str) -> dict[str, Path]:
    """Every module of a package by its dotted name."""
    found = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def known_modules() -> set[str]:
    return {*modules("safe_core"), *modules("app")}


def imports(path: Path, *, at_import_time: bool = False) -> set[str]:
    """Dotted names a file imports, ``from safe_core import x`` counted as ``safe_core.x`` where that is a module.

    ``at_import_time`` leaves out what stands in functions and under ``if TYPE_CHECKING``.
    """
    assert path.exists()
    known = known_modules()
    found: set[str] = set()
    for node in _statements(ast.parse(path.read_text(encoding="utf-8")), at_import_time):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively; name the package."
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in names if name in known}
            if node.module and any(name not in known for name in names):
                found.add(node.module)
    return found


def _statements(tree: ast.AST, at_import_time: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if at_import_time and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if at_import_time and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _statements(node, at_import_time)


def within(name: str, packages: set[str]) -> bool:
    """Whether a dotted name is one of these modules or lies below one of them."""
    return any(name == package or name.startswith(package + ".") for package in packages)


def users_of(package: str, library: str) -> set[str]:
    return {name for name, path in modules(package).items() if any(within(i, {library}) for i in imports(path))}


def ours(path: Path) -> set[str]:
    return {name for name in imports(path) if within(name, {"safe_core", "app"})}


def loaded_by(statement: str) -> set[str]:
    """Modules in memory after a statement ran in a fresh interpreter."""
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_walk_sees_imports_wherever_they_stand() -> None:
    path = ROOT / "safe_core" / "zoo" / "pretrained.py"
    found, early = imports(path), imports(path, at_import_time=True)
    assert {"torch", "transformers", "safe_core.types"} <= found
    assert "safe_core.types" in early
    assert not {"torch", "transformers"} & early
    assert "safe_core.zoo" in imports(ROOT / "safe_core" / "api.py")


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_the_arrows_of_the_engine(name: str) -> None:
    parts = {part: path for part, path in modules("safe_core").items() if within(part, {name})}
    assert parts
    for part, path in parts.items():
        assert all(within(i, MAY_IMPORT[name] | {name}) for i in ours(path)), part


def test_an_ensemble_knows_rows_and_vocabularies_alone() -> None:
    parts = {name: path for name, path in modules("safe_core").items() if within(name, {"safe_core.ensemble"})}
    assert parts
    for name, path in parts.items():
        assert all(within(i, ENSEMBLE_MAY_IMPORT) for i in ours(path)), name


def test_the_engine_never_looks_up_to_the_page() -> None:
    for name, path in modules("safe_core").items():
        assert not any(within(i, {"app", "gradio"}) for i in imports(path)), name
        if not within(name, {"safe_core.benchmarks"}):
            assert not any(within(i, {"safe_core.benchmarks"}) for i in imports(path)), name


def test_drawing_libraries_are_the_reports_and_loaded_only_when_it_draws() -> None:
    for library in ("plotly", "pandas"):
        users = users_of("safe_core", library)
        assert users, "the report draws"
        assert {name for name in users if not within(name, {"safe_core.benchmarks.report"})} == set()
    for name, path in modules("safe_core").items():
        assert not any(within(i, {"plotly", "pandas"}) for i in imports(path, at_import_time=True)), name
    assert not {"plotly", "pandas"} & loaded_by("from safe_core.benchmarks import report")


def test_the_report_is_the_pages_only_benchmark() -> None:
    users = users_of("app", "safe_core.benchmarks")
    assert users == {"app.report"}
    assert {i for i in imports(modules("app")["app.report"]) if within(i, {"safe_core.benchmarks"})} == {
        "safe_core.benchmarks.report"
    }


def test_libraries_have_their_rooms() -> None:
    def outside(library: str, rooms: set[str]) -> set[str]:
        return {name for name in users_of("safe_core", library) if not within(name, rooms | {"safe_core.benchmarks"})}

    assert not outside("torch", {"safe_core.model", "safe_core.zoo", "safe_core.ensemble"})
    assert not outside("transformers", {"safe_core.model", "safe_core.zoo"})
    assert not outside("tokenizers", {"safe_core.vocabulary", "safe_core.zoo"})
    assert users_of("safe_core", "torch")


@pytest.mark.parametrize("name", ["safe_core", "safe_core.trace", "safe_core.events", "safe_core.zoo", "safe_core.vocabulary"])
def test_a_trace_is_read_without_torch(name: str) -> None:
    assert not {"torch", "transformers", "gradio", "pandas"} & loaded_by(f"import {name}")


def test_the_page_shows_traces_without_torch() -> None:
    """All of ``app`` but the module that runs models, and what imports it, loads no model code as it is imported."""
    for name, path in modules("app").items():
        if name != "app.session":
            early = {i for i in imports(path, at_import_time=True) if within(i, LOADS_TORCH)}
            assert not early, f"{name} imports {early}"


@pytest.mark.parametrize("name", ["app.charts", "app.tables"])
def test_folds_over_traces_know_no_page(name: str) -> None:
    assert not any(within(i, {"gradio", "torch", "transformers"}) for i in imports(modules("app")[name]))
    assert not {"torch", "gradio"} & loaded_by(f"import {name}")


def test_texts_are_never_drawn_as_markup() -> None:
    """Model output reaches the page through ``textContent`` alone."""
    drawing = {".js", ".py", ".html"}
    files = [path for folder in ("assets", "app", "safe_core") for path in (ROOT / folder).rglob("*") if path.suffix in drawing]
    assert files
    for path in files:
        found = UNSAFE_DRAWING.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path.relative_to(ROOT)} uses {found and found.group()}"
