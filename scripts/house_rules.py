"""Checks the shape of the files (docstrings, length) and that changelog and version agree; with --tested FILE, that no module hides.

Standard library only.
"""

import ast
import json
import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ("storage", "tracer", "replay", "cli")
LONGEST, LONGEST_TEST = 400, 500
REACHED = 70
"""The least share of any one module that tests reach, percent."""


def modules(root: pathlib.Path) -> list[pathlib.Path]:
    """The modules of the four packages that say anything."""
    found = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [path for path in found if path.stat().st_size]


def dotted(root: pathlib.Path, path: pathlib.Path) -> str:
    """The import name of a module."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def undocumented(root: pathlib.Path) -> list[str]:
    """Modules without a docstring."""
    return [f"{dotted(root, path)} has no docstring" for path in modules(root) if not ast.get_docstring(ast.parse(path.read_text()))]


def too_long(root: pathlib.Path) -> list[str]:
    """Python files that hold more than one concept, by their length."""
    limits = [(path, LONGEST) for path in modules(root)] + [(path, LONGEST_TEST) for path in sorted((root / "tests").rglob("*.py"))]
    lengths = [(path, path.read_text().count("\n"), limit) for path, limit in limits]
    return [f"{path.relative_to(root)} has {lines} lines, more than {limit}" for path, lines, limit in lengths if lines > limit]


def untested(root: pathlib.Path, measured: pathlib.Path) -> list[str]:
    """Modules that the tests hardly reach, by coverage's own JSON: a floor for the whole lets a single one hide."""
    files = json.loads(measured.read_text())["files"]
    shares = {str(path.relative_to(root)): files.get(str(path.relative_to(root)), {}).get("summary", {}) for path in modules(root)}
    return [
        f"{name}: {share.get('percent_covered', 0):.0f} % of it is tested, less than {REACHED} %"
        for name, share in shares.items()
        if share.get("percent_covered", 0) < REACHED
    ]


def unlike_versions(root: pathlib.Path) -> list[str]:
    """The version of the project, when it is not the first one that the changelog names."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    first = re.search(r"^## \[(\d[^\]]*)\]", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    named = first[1] if first else "none"
    return [] if named == version else [f"pyproject.toml says {version}, the newest version in CHANGELOG.md is {named}"]


def broken_rules(root: pathlib.Path) -> list[str]:
    """All that is wrong, one line each."""
    return [*undocumented(root), *too_long(root), *unlike_versions(root)]


if __name__ == "__main__":
    found = untested(ROOT, pathlib.Path(sys.argv[2])) if sys.argv[1:2] == ["--tested"] else broken_rules(ROOT)
    print("\n".join(found), file=sys.stderr, end="\n" if found else "")
    sys.exit(bool(found))
