"""Search your own videos on a page of your browser: choose or upload a clip, trim it, write what is different.

    python recipes/demo.py INDEX
    python recipes/demo.py INDEX --port 8000 --limit 24
    python recipes/demo.py

INDEX is what index.py made; without one the miniature is indexed first. The moments that fit best play side by side,
can be marked as right or wrong (a CSV file that tune.py takes) and exported. The page is at an address that only this
machine reaches, and sends nothing anywhere. `python recipes/publish.py demo` publishes another page, over the miniature
alone, as a Space.
"""

import importlib.util
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.config import first_word_as, option, parse_config, run_recipe
from harness.shared_config import Device

DEFAULT_INDEX = "outputs/index"


@dataclass
class DemoConfig:
    """What to search, and where."""

    index: str | None = option(
        None,
        "Folder that index.py made, the first word, or the address of a bucket; none: outputs/index, where the "
        "miniature's clips are indexed first if nothing is there.",
    )
    video_dir: str | None = option(None, "Folder of the videos; none: where they were indexed.")
    model: str | None = option(None, "Model of the index, by name or key; none: the active one.")
    marks: str | None = option(
        None, "CSV file of the marks; none: marks.csv in the index, of a bucket's in this folder."
    )
    limit: int = option(12, "Most moments to show.")
    port: int | None = option(None, "Port on this machine; none: the first free one from 7860 on.")
    num_workers: int = option(2, "Processes that read videos, each one clip at a time.")
    timeout_seconds: float = option(60.0, "Longest wait for one clip; an upload that takes longer is refused.")
    trust_remote_code: bool = option(False, "Run the code that the model's folder or repository holds.")
    device: Device = option("auto", "Where to compute; auto: on the GPU where there is one.")

    def __post_init__(self) -> None:
        """Refuse what no machine has."""
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError(f"--port {self.port}: a port is a number from 1 to 65535")
        counts = {name: getattr(self, name) for name in ("limit", "num_workers")}
        if wrong := [name for name, value in counts.items() if value < 1]:
            raise ValueError(f"--{wrong[0]} must be at least 1, not {counts[wrong[0]]}")
        if not self.timeout_seconds > 0:
            raise ValueError(f"--timeout_seconds must be positive, not {self.timeout_seconds:g}")


if __name__ == "__main__":  # before the imports below, which take seconds
    sys.argv[1:] = first_word_as("index", sys.argv[1:])
    CONFIG = parse_config(DemoConfig, __doc__)

import index as index_recipe

from hf_datasets.video.shared_memory import PixelFolder
from hf_models.index.store import IndexedModel, MomentIndex
from indexing.roots import root_of


def index_of(config: DemoConfig) -> MomentIndex:
    """The index that is named, or that of the miniature, which is made where it is missing or not finished."""
    if config.index is None and not (Path(DEFAULT_INDEX) / "results.json").is_file():
        print(f"no index is named and {DEFAULT_INDEX} is not there: indexing the miniature first, a few minutes")
        index_recipe.run(index_recipe.IndexConfig(output=DEFAULT_INDEX))
    return MomentIndex(config.index or DEFAULT_INDEX)


def videos_of(config: DemoConfig, index: MomentIndex, model: IndexedModel) -> Path:
    """The folder of the videos."""
    root = root_of(index, model, config.video_dir)
    if not root.is_dir():
        raise OSError(f"{root} is not a folder; give the one that holds the videos of the index as --video_dir")
    return root.resolve()


def videos_in(index: MomentIndex, model: IndexedModel) -> str:
    """How many videos have moments, and how many could not be read."""
    states = [row["status"] for row in index.files(model.key).values()]
    unread = len(states) - states.count("indexed")
    return f"{len(states) - unread:,} videos" + (f" ({unread:,} more cannot be read)" if unread else "")


def marks_of(config: DemoConfig, index: MomentIndex) -> Path:
    """Where the marks are kept."""
    if config.marks is not None:
        return Path(config.marks).expanduser().absolute()
    return Path("marks.csv" if "://" in index.path else f"{index.path}/marks.csv").absolute()


def main(config: DemoConfig) -> None:
    if importlib.util.find_spec("gradio") is None:
        raise SystemExit("gradio is not installed; run: pip install 'subtle-video[demo]'")
    index = index_of(config)
    model = index.find(config.model)
    root = videos_of(config, index, model)
    own = PixelFolder(in_memory=False)  # of a page that was killed, copies and uploads are removed now
    try:
        os.environ |= {"GRADIO_TEMP_DIR": f"{own.path}/sent", "GRADIO_ANALYTICS_ENABLED": "False"}
        from demo_page.marks import Marks  # the page imports gradio, which reads the environment
        from demo_page.media import Media
        from demo_page.page import Page, build_page, launch
        from demo_page.searching import IndexSearch
        from indexing.models import load_again

        marks = Marks(marks_of(config, index))
        encoder = load_again(model, config.device, trust_remote_code=config.trust_remote_code)
        limits = {"num_workers": config.num_workers, "timeout_seconds": config.timeout_seconds}
        media = Media(root, own.path, **limits)
        try:
            search = IndexSearch(index, model, encoder, media)
            page = Page(search, marks, limit=config.limit)
            count = index.moments(model.key).count_rows()
            note = f"{count:,} moments of {videos_in(index, model)} in {root.name}, found by {Path(model.name).name}"
            blocks = build_page(page, title="Search your videos", note=note)
            try:
                launch(blocks, page, port=config.port)
            except OSError as error:
                taken = f"port {config.port} is" if config.port else "the ports from 7860 on are"
                raise OSError(f"{taken} taken on this machine; name another with --port") from error
            print(f"{count:,} moments at {blocks.local_url} (only on this machine); end with Ctrl-C", flush=True)
            for name in ("SIGTERM", "SIGHUP"):  # so that copies and uploads are removed
                if hasattr(signal, name):
                    signal.signal(getattr(signal, name), lambda *_: sys.exit(0))
            blocks.block_thread()
        finally:
            media.close()
    finally:
        own.remove()


if __name__ == "__main__":
    sys.exit(run_recipe(main, CONFIG))
