"""What the tests marked `hostile` did: how often what was tried ended how; tables of it at the end."""

import signal
from collections import Counter
from contextlib import contextmanager

OUTCOMES = ("clear error", "works", "traceback", "hang", "wrong")
"""The last three are faults."""


class HangError(BaseException):
    """The time is up; no handler of `Exception` takes it."""


@contextmanager
def time_limit(seconds):
    def stop(*_):
        raise HangError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Outcomes:
    """How often what was tried ended how; what went wrong with its words."""

    def __init__(self, name):
        self.name, self.counts, self.faults = name, Counter(), []

    def note(self, outcome, fault=""):
        self.counts[outcome] += 1
        self.faults += [f"{outcome}: {fault}"] * (outcome not in OUTCOMES[:2])

    def end(self, record_property):
        """Note the counts for the tables; there is no fault."""
        row = {"what": self.name, "tried": self.counts.total(), **{name: self.counts[name] for name in OUTCOMES}}
        record_property("outcomes", row)
        assert not self.faults, f"{row}\n" + "\n\n".join(self.faults[:10])


def table(rows):
    """Rows of the same names as text."""
    cells = [list(rows[0]), *(list(map(str, row.values())) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def write_tables(terminalreporter):
    """Write them; nothing where no test has one."""
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.getreports(kind) if one.when == "call"]

    def noted(property_name):
        found = [(one, value) for one in reports for name, value in one.user_properties if name == property_name]
        return sorted(found, key=lambda pair: pair[0].nodeid)

    fuzzed = [
        {"test": one.nodeid.removeprefix("tests/"), "inputs": count, "escapes": "0" if one.passed else "1, see above"}
        for one, count in noted("inputs")
    ]
    outcomes, kills = ([row for _, row in noted(name)] for name in ("outcomes", "kills"))
    sections = {
        "inputs": (fuzzed, f"{sum(row['inputs'] for row in fuzzed):,} inputs"),
        "outcomes": (outcomes, f"{sum(row['tried'] for row in outcomes):,} tried"),
        "kills": (kills, f"{sum(row['kills'] for row in kills):,} kills"),
    }
    for title, (rows, total) in sections.items():
        if rows:
            terminalreporter.section(title)
            terminalreporter.write_line(f"{table(rows)}\n{total}")
