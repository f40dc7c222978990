"""The report as JSON: the facts as they are."""

import json

from replay.report.facts import Facts


def render(facts: Facts) -> str:
    """One document."""
    return json.dumps(facts, ensure_ascii=False, indent=1) + "\n"
