"""What the tests marked `hostile` did, in tables at the end: inputs and escapes, kills and their outcomes."""


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
    names = ("outcomes", "kills", "times", "damage", "folders")
    outcomes, kills, times, damage, folders = ([row for _, row in noted(name)] for name in names)
    sections = {
        "inputs": (fuzzed, f"{sum(row['inputs'] for row in fuzzed):,} inputs"),
        "outcomes": (outcomes, f"{sum(row['tried'] for row in outcomes):,} tried"),
        "model folders": (folders, f"{sum(row['tried'] for row in folders):,} folders"),
        "kills": (kills, f"{sum(row['kills'] for row in kills):,} kills"),
        "damage": (damage, f"{sum(row['tried'] for row in damage):,} tried"),
        "times, which differ from run to run": (times, ""),
    }
    for title, (rows, total) in sections.items():
        if rows:
            terminalreporter.section(title)
            terminalreporter.write_line(f"{table(rows)}\n{total}".rstrip())
