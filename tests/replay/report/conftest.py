"""The made-up facts that every format is tried on, made once."""

import pytest
import report_facts

from replay.report.facts import Facts


@pytest.fixture(scope="session")
def two_runs() -> Facts:
    """Run 1, and run 2 that is slower and reuses less."""
    return report_facts.made()
