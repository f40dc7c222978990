"""Prints what `uv.lock` and `pyproject.toml` ask for in pip's words, for machines where uv cannot be had. Standard library only."""

import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent


def constraints() -> list[str]:
    """`name==version` of each locked package, with the markers of those that are locked in several versions."""
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    lines = []
    for package in packages:
        if "registry" in package["source"]:
            markers = " or ".join(f"({marker})" for marker in package.get("resolution-markers", ()))
            lines.append(f"{package['name']}=={package['version']}" + (f" ; {markers}" if markers else ""))
    return lines


def development() -> list[str]:
    """The requirements of the group `dev`."""
    return list(tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"])


if __name__ == "__main__":
    print("\n".join(development() if "--development" in sys.argv else constraints()))
