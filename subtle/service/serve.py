"""Search your own videos on a page of your browser: choose or upload a clip, trim it, write what is different."""

import importlib.util
import logging
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from hf_datasets.footage.files import path_of_video
from hf_datasets.video.shared_memory import PixelFolder
from hf_models.index.store import IndexedModel, MomentIndex
from subtle.footage import index as index_recipe
from subtle.footage.options import IndexConfig
from subtle.footage.roots import root_of
from subtle.service.media import HOSTS
from subtle.service.options import DEFAULT_INDEX, ServeConfig


def served_index(config: ServeConfig) -> MomentIndex:
    """The index that is named, or that of the miniature, which is made where it is missing or not finished."""
    if config.index is None and not (Path(DEFAULT_INDEX) / "results.json").is_file():
        print(f"no index is named and {DEFAULT_INDEX} is not there: indexing the miniature first, a few minutes")
        index_recipe.run(IndexConfig(output=DEFAULT_INDEX))
    return MomentIndex(config.index or DEFAULT_INDEX)


def video_folder(config: ServeConfig, index: MomentIndex, model: IndexedModel) -> Path:
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


def marks_of(config: ServeConfig, index: MomentIndex) -> Path:
    """Where the marks are kept."""
    if config.marks is not None:
        return Path(config.marks).expanduser().absolute()
    return Path("marks.csv" if "://" in index.path else f"{index.path}/marks.csv").absolute()


def token_of(config: ServeConfig) -> str | None:
    """The token that requests must bear.

    Raises:
        ValueError: There is none, and others could reach the service.
    """
    token = os.environ.get("SUBTLE_TOKEN") or None
    if config.host not in HOSTS and token is None:
        raise ValueError(
            f"--host {config.host} lets others in: set the environment variable SUBTLE_TOKEN to a long secret, which "
            "their requests must bear"
        )
    return token


def main(config: ServeConfig) -> None:
    if missing := [name for name in ("gradio", "mcp", "prometheus_client") if importlib.util.find_spec(name) is None]:
        raise SystemExit(f"{missing[0]} is not installed; run: pip install 'subtle-video[page]'")
    token = token_of(config)
    index = served_index(config)
    model = index.find(config.model)
    root = video_folder(config, index, model)
    own = PixelFolder(in_memory=False)  # of a page that was killed, copies and uploads are removed now
    try:
        os.environ |= {"GRADIO_TEMP_DIR": f"{own.path}/sent", "GRADIO_ANALYTICS_ENABLED": "False"}
        from starlette.middleware import Middleware

        from subtle.index import Index
        from subtle.service.agents import Agents
        from subtle.service.api import LOG, Beside, Service, build_api
        from subtle.service.export_process import export_archive
        from subtle.service.index_search import IndexSearch
        from subtle.service.marks import Marks
        from subtle.service.media import Media
        from subtle.service.page import Page, build_page, launch  # imports gradio, which reads the environment

        marks = Marks(marks_of(config, index))
        opened = Index(index.path, model=model.key, device=config.device, trust_remote_code=config.trust_remote_code)
        opened.loaded()  # refused before the videos are looked at
        limits: dict[str, Any] = {"num_workers": config.num_workers, "timeout_seconds": config.timeout_seconds}
        media, log = Media(partial(path_of_video, root), own.path, **limits), logging.StreamHandler()
        try:
            service = Service(opened, media, marks, timeout_seconds=config.timeout_seconds, log_texts=config.log_texts)
            api = build_api(service, token=token, per_minute=config.requests_per_minute)
            api.add_route("/mcp", Agents(service))  # type: ignore[arg-type]  # Starlette takes applications, too
            LOG.setLevel(logging.INFO)
            LOG.addHandler(log)
            if config.host not in HOSTS:
                import uvicorn

                uvicorn.run(
                    api, host=config.host, port=config.port or 7860, log_level="warning", timeout_graceful_shutdown=10
                )
                return
            search = IndexSearch(opened, media)
            page = Page(search, marks=marks, export=partial(export_archive, root=root), limit=config.limit)
            count = index.moments(model.key).count_rows()
            note = f"{count:,} moments of {videos_in(index, model)} in {root.name}, found by {Path(model.name).name}"
            blocks = build_page(page, title="Search your videos", note=note)
            try:
                launch(blocks, page, port=config.port, beside=[Middleware(Beside, api=api)])
            except OSError as error:
                taken = f"port {config.port} is" if config.port else "the ports from 7860 on are"
                raise OSError(f"{taken} taken on this machine; name another with --port") from error
            print(
                f"{count:,} moments at {blocks.local_url} (only on this machine), for programs at "
                f"{blocks.local_url}docs; end with Ctrl-C",
                flush=True,
            )
            for name in ("SIGTERM", "SIGHUP"):  # so that copies and uploads are removed
                if hasattr(signal, name):
                    signal.signal(getattr(signal, name), lambda *_: sys.exit(0))
            blocks.block_thread()
        finally:
            LOG.removeHandler(log)  # its stream may be gone when this process logs again
            media.close()
    finally:
        own.remove()
