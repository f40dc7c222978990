"""The rules for the files themselves: each finds what it is for, and the project keeps them."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


def script(name: str) -> ModuleType:
    """A program of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


house_rules = script("house_rules")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project that keeps every rule."""
    for folder in ("storage", "tracer/wire", "replay", "cli", "tests/storage"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "storage/__init__.py").touch()
    (tmp_path / "storage/schema.py").write_text('"""Tables."""\n')
    (tmp_path / "tests/storage/test_schema.py").write_text('"""Tests."""\n')
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-01-02\n\n## [1.1.0] - 2025-01-02\n")
    return tmp_path


def test_a_project_that_keeps_the_rules_is_clean(project: Path) -> None:
    """Nothing is found where nothing is wrong."""
    assert house_rules.broken_rules(project) == []


def test_a_module_without_a_docstring_is_found(project: Path) -> None:
    """Every module says what it is for."""
    (project / "storage/schema.py").write_text("x = 1\n")
    assert house_rules.broken_rules(project) == ["storage.schema has no docstring"]


def test_a_long_file_is_found(project: Path) -> None:
    """More than 400 lines are more than one concept; a file of tests may have 500."""
    (project / "storage/schema.py").write_text('"""Tables."""\n' + "x = 1\n" * 400)
    (project / "tests/storage/test_schema.py").write_text("x = 1\n" * 501)
    assert house_rules.broken_rules(project) == [
        "storage/schema.py has 401 lines, more than 400",
        "tests/storage/test_schema.py has 501 lines, more than 500",
    ]


def test_a_module_that_tests_hardly_reach_is_found(project: Path) -> None:
    """The floor for the whole project cannot hide one module, nor one that was never imported."""
    (project / "replay/plan.py").write_text('"""Plans."""\n')
    measured = project / "coverage.json"
    measured.write_text('{"files": {"storage/schema.py": {"summary": {"percent_covered": 69.4}}}}')
    assert house_rules.untested(project, measured) == [
        "storage/schema.py: 69 % of it is tested, less than 70 %",
        "replay/plan.py: 0 % of it is tested, less than 70 %",
    ]
    both = {name: {"summary": {"percent_covered": 95.0}} for name in ("storage/schema.py", "replay/plan.py")}
    measured.write_text(json.dumps({"files": both}))
    assert house_rules.untested(project, measured) == []


def test_a_version_the_changelog_does_not_know_is_found(project: Path) -> None:
    """A release that nobody described does not leave the house."""
    (project / "pyproject.toml").write_text('[project]\nversion = "1.3.0"\n')
    assert house_rules.broken_rules(project) == ["pyproject.toml says 1.3.0, the newest version in CHANGELOG.md is 1.2.0"]


def test_locked_versions_are_pips_constraints() -> None:
    """Where uv cannot be had, pip installs the same versions: every package of the lock file but the project itself."""
    locked = script("locked_versions")
    lines = locked.constraints()
    assert any(line.startswith("mitmproxy==12.3") for line in lines)
    assert not any(line.startswith("playhead==") for line in lines)
    assert any(line.startswith("pytest") for line in locked.development())


def test_the_references_are_as_the_code_says() -> None:
    """docs/reference/cli.md and metrics.md are what `scripts/fix` would write now."""
    assert script("generated_documents").stale() == []
