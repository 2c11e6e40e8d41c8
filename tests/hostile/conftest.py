"""Tiny data for every recipe, and one table of all kills at the end."""

from tests.hostile.kill_harness import table
from tests.recipes.conftest import caches, embedded, tiny, tiny_comp
from tests.recipes.test_embed_moments import moments
from tests.recipes.test_vcmr import data as moment_features

__all__ = ["caches", "embedded", "moment_features", "moments", "tiny", "tiny_comp"]


def pytest_terminal_summary(terminalreporter):
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)]
    rows = [value for report in reports for name, value in report.user_properties if name == "kills"]
    if rows:
        terminalreporter.section("kills")
        terminalreporter.write_line(table(rows))
