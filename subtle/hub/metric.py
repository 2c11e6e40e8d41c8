"""The Space of a metric: its page, and the script that `evaluate.load("ORG/NAME")` fetches."""

import shutil
from pathlib import Path

import metrics
from subtle.hub.publication import Publication


def prepare(name: str, repo_id: str, folder: Path) -> Publication:
    """Copy a metric's folder as a Space; it needs nothing of this project to run or to be loaded.

    Args:
        name: One of `metrics.METRICS`.
        repo_id: `ORG/NAME`; evaluate looks for a script of that NAME, so it must be the metric's.
        folder: Where to write; it is made.

    Returns:
        The Space.

    Raises:
        ValueError: There is no such metric, or the Space has another name.
    """
    source = Path(metrics.space(name))
    if repo_id.partition("/")[2] != name:
        raise ValueError(
            f"evaluate.load({repo_id!r}) would look for {repo_id.partition('/')[2]}.py; "
            f"publish the metric as {repo_id.partition('/')[0]}/{name}"
        )
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__init__.py", "__pycache__"))
    for path in (folder / "README.md", folder / f"{name}.py"):  # the bare name needs `import metrics`
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(f'evaluate.load("{name}")', f'evaluate.load("{repo_id}")'), encoding="utf-8")
    return Publication("space", repo_id, folder)
