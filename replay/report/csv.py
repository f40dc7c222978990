"""The report as CSV: one row for every exchange, a column for every figure. Unknown is empty."""

import csv
import io
from typing import Any

from replay.report.facts import Facts

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render(facts: Facts) -> str:
    """All subjects in one table, `subject` in front; only a head where there is nothing."""
    rows = [{"subject": subject["id"], **_flat(row)} for subject in facts["subjects"] for row in subject["rows"]]
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else ["subject", "exchange"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _flat(row: Facts) -> Facts:
    place = row["at"] or {}
    cells = {name: value for name, value in row.items() if name != "at"} | {"at_path": place.get("path"), "at_token": place.get("token")}
    return {name: _cell(value) for name, value in cells.items()}


def _cell(value: Any) -> Any:
    """Captured text must not become a formula in whoever's spreadsheet."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
