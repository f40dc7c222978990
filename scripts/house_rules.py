"""Checks the shape of the files: docstrings, length, a test for each module; that changelog and version agree. Standard library only."""

import ast
import pathlib
import re
import sys
import tomllib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ("storage", "tracer", "replay", "cli")
LONGEST = 400


def modules(root: pathlib.Path) -> list[pathlib.Path]:
    """The modules of the four packages that say anything."""
    found = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [path for path in found if path.stat().st_size]


def dotted(root: pathlib.Path, path: pathlib.Path) -> str:
    """The import name of a module."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imported(tree: ast.AST) -> Iterator[str]:
    """Every name a file imports, members of modules included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def undocumented(root: pathlib.Path) -> list[str]:
    """Modules without a docstring."""
    return [f"{dotted(root, path)} has no docstring" for path in modules(root) if not ast.get_docstring(ast.parse(path.read_text()))]


def too_long(root: pathlib.Path) -> list[str]:
    """Python files that hold more than one concept, by their length."""
    found = [*modules(root), *sorted((root / "tests").rglob("*.py"))]
    return [
        f"{path.relative_to(root)} has {lines} lines, more than {LONGEST}"
        for path in found
        if (lines := path.read_text().count("\n")) > LONGEST
    ]


def untested(root: pathlib.Path) -> list[str]:
    """Modules that no test file bears the name of, and that no test imports, neither them nor the sub-package they are a part of."""
    tests = sorted((root / "tests").rglob("*.py"))
    names = {path.stem for path in tests}
    seen = {name for path in tests for name in imported(ast.parse(path.read_text()))}
    missing = []
    for path in modules(root):
        name = dotted(root, path)
        inside = name.rpartition(".")[0]
        if f"test_{path.stem}" not in names and name not in seen and not ("." in inside and inside in seen) and path.stem != "__init__":
            missing.append(f"{name} has no test: neither tests/**/test_{path.stem}.py nor an import in another")
    return missing


def unlike_versions(root: pathlib.Path) -> list[str]:
    """The version of the project, when it is not the first one that the changelog names."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    first = re.search(r"^## \[(\d[^\]]*)\]", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    named = first[1] if first else "none"
    return [] if named == version else [f"pyproject.toml says {version}, the newest version in CHANGELOG.md is {named}"]


def broken_rules(root: pathlib.Path) -> list[str]:
    """All that is wrong, one line each."""
    return [*undocumented(root), *too_long(root), *untested(root), *unlike_versions(root)]


if __name__ == "__main__":
    found = broken_rules(ROOT)
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    sys.exit(bool(found))
