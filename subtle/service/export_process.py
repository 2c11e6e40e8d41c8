"""A process that exports moments: a video that hangs or brings down the decoder costs the time limit, not the page.

Reads JSON (`found`, `root`, `folder`, `exact`) from the standard input and writes why moments were left out.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EXPORT_SECONDS = 300.0


def export_archive(found: Sequence[dict[str, Any]], folder: Path, *, root: Path) -> tuple[Path, list[str]]:
    """Export moments into a new ZIP file beside `folder`, which is made and removed; and why moments were left out.

    Raises:
        ValueError: It took too long, or nothing could be exported.
    """
    asked = {"found": list(found), "root": str(root), "folder": str(folder)}
    # The process imports what this one does, wherever that was found.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "subtle.service.export_process"],
            input=json.dumps(asked, default=str),
            capture_output=True,
            text=True,
            timeout=EXPORT_SECONDS,
            env=environment,
            check=False,
        )
        if done.returncode:
            raise ValueError(f"the export ended with an error: {(done.stderr.strip().splitlines() or ['none'])[-1]}")
        failures: list[str] = json.loads(done.stdout.splitlines()[-1])
        if len(failures) == len(found):
            raise ValueError(f"none of the moments can be exported; the first: {failures[0]}")
        return Path(shutil.make_archive(str(folder), "zip", folder)), failures
    except subprocess.TimeoutExpired:
        raise ValueError(f"the export took more than {EXPORT_SECONDS:.0f} s; export fewer moments") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    from subtle.footage.exporting import export

    asked = json.load(sys.stdin)
    failures = export(asked["found"], asked["root"], Path(asked["folder"]), exact=False)
    sys.stdout.write(f"{json.dumps([' '.join(reason.split()) for reason in failures])}\n")


if __name__ == "__main__":
    main()
