"""What the page shows of videos: small copies, pictures and uploads, made by reader processes under a time limit.

Everything that a browser may fetch has an unguessable id, and nothing else is served. Copies lie in a folder of the
page's own, the oldest of which are removed.
"""

import hashlib
import hmac
import queue
import secrets
import shutil
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from PIL import Image, ImageOps
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from torch import Tensor

from hf_datasets.video import VideoError
from hf_datasets.video.pool import VideoFailure, VideoReaderPool, VideoRequest
from hf_datasets.video.spans import read_spans, timeline_of

MAX_CLIP_SECONDS = 60.0
"""Of a moment, so much is shown."""
KEPT_BYTES = 1_000_000_000
"""Of copies and uploads; those that nobody used for longest go first."""
KEPT_IDS = 20_000
HOSTS = {"127.0.0.1", "localhost"}
"""Names of this machine for itself."""
PICTURES = {"strip": (12, 48, 64), "still": (1, 120, 120), "poster": (1, 320, 240)}
"""How many frames, and the width and height of each; a poster is not cut."""
MEDIA_FOLDER = "media"


@dataclass(frozen=True)
class Footage:
    """A stretch of a video, or of an upload.

    Attributes:
        video: Its name, as `Media.path_of` takes it, or the name of an upload.
        start_seconds: Where it starts.
        end_seconds: Where it ends.
        upload: The file of an upload.
    """

    video: str
    start_seconds: float
    end_seconds: float
    upload: Path | None = None


class Media:
    """Makes and serves what the page shows.

    Args:
        path_of: Gives the file of a video; nothing else is opened.
        folder: Where copies and uploads are kept; the page's own.
        num_workers: Reader processes.
        timeout_seconds: How long one of them may take for one clip.
        max_upload_seconds: Longer uploads are refused.
        max_upload_bytes: And larger ones.
    """

    def __init__(
        self,
        path_of: Callable[[str], Path],
        folder: Path,
        *,
        num_workers: int = 2,
        timeout_seconds: float = 60.0,
        max_upload_seconds: float = 60.0,
        max_upload_bytes: int = 100_000_000,
    ) -> None:
        self.path_of, self.folder = path_of, folder
        self.max_upload_seconds, self.max_upload_bytes = max_upload_seconds, max_upload_bytes
        for name in ("copies", "uploads", "files"):
            (folder / name).mkdir(parents=True)
        self.secret = secrets.token_bytes()
        self.known: OrderedDict[str, tuple[str, Footage] | tuple[Path, str]] = OrderedDict()
        self.kept: OrderedDict[Path, int] = OrderedDict()
        self.spans: dict[Path, tuple[float, float]] = {}
        self.lock, self.locks = Lock(), [Lock() for _ in range(64)]
        self.pools: queue.LifoQueue[VideoReaderPool] = queue.LifoQueue()  # the last one is warm
        for _ in range(num_workers):
            self.pools.put(VideoReaderPool(1, num_workers=1, timeout_seconds=timeout_seconds, reader=read_spans))

    def read(self, footage: Footage, **task: Any) -> Any:
        """What a reader process answers; for the task see `read_spans`.

        Raises:
            VideoError: The file is gone or cannot be read; the message names it without its folder.
        """
        path = self.path(footage)
        request = VideoRequest("clip", path, footage.start_seconds, footage.end_seconds, task)
        pool = self.pools.get()  # no other thread uses it
        try:
            ((_, read),) = pool.read([request])
        finally:
            pool.quarantine.clear()  # the file may be put back
            self.pools.put(pool)
        if isinstance(read, VideoFailure):
            raise VideoError(read.reason.replace(str(path), footage.video))
        return read

    def path(self, footage: Footage) -> Path:
        """The file.

        Raises:
            VideoError: It is not there any more.
        """
        if footage.upload is None:
            return self.path_of(footage.video)
        if not footage.upload.is_file():
            raise VideoError(f"{footage.video} is not kept any more; upload it again")
        self.keep(footage.upload)
        return footage.upload

    def frames(self, footage: Footage, number: int, size: Any, *, display: bool = False) -> Tensor:
        """What a model reads of a clip, or to `display` a person sees, `(number, 3, height, width)` uint8."""
        frames: Tensor = self.read(footage, num_frames=number, size=size, display=display).frames
        return frames

    def address(self, kind: str, footage: Footage) -> str:
        """Where the page finds a copy of kind "clip" or one of `PICTURES`; it is made when it is first fetched."""
        digest = hmac.new(self.secret, repr((kind, footage)).encode(), hashlib.sha256).hexdigest()[:40]
        return self.remember(digest, (kind, footage))

    def offer(self, path: Path, name: str) -> str:
        """Where the page finds a file to download."""
        return self.remember(secrets.token_hex(20), (path, name))

    def remember(self, token: str, what: Any) -> str:
        """Where the page finds it."""
        with self.lock:
            self.known[token] = what
            self.known.move_to_end(token)
            while len(self.known) > KEPT_IDS:
                self.known.popitem(last=False)
        return f"{MEDIA_FOLDER}/{token}"

    async def serve(self, request: Request) -> Response:
        """Answer a request for an id; a message in words where there is nothing to show."""
        what = self.known.get(request.path_params["token"])
        try:
            if what is None:
                raise VideoError("this address is not known any more; search again")
            if isinstance(what[0], Path):
                path, headers = what[0], {"Cache-Control": "no-store"}
                response: Callable[..., Response] = partial(FileResponse, filename=str(what[1]))
            else:
                path = (await run_in_threadpool(self.made, *what))[0]
                headers, response = {"Cache-Control": "private, max-age=3600"}, FileResponse
            if not path.is_file():
                raise VideoError("this file is not kept any more; make it again")
        except (VideoError, OSError) as error:
            return PlainTextResponse(plain(error), 404, {"Cache-Control": "no-store"})
        return response(path, headers=headers | {"X-Content-Type-Options": "nosniff"})

    def made(self, kind: str, footage: Footage) -> tuple[Path, float, float]:
        """A copy, and where it begins and ends in its video; made if it is not kept.

        Raises:
            VideoError: It cannot be made.
        """
        token = self.address(kind, footage).rpartition("/")[2]
        path = self.folder / "copies" / f"{token}.{'mp4' if kind == 'clip' else 'jpg'}"
        with self.locks[int(token[:8], 16) % len(self.locks)]:
            if not path.is_file() or path not in self.spans:
                draft = path.with_name(f"draft-{secrets.token_hex(8)}{path.suffix}")
                try:
                    span = self.write(kind, footage, draft)
                    draft.replace(path)
                finally:
                    draft.unlink(missing_ok=True)
                self.spans[path] = span
            span = self.spans[path]
        self.keep(path)
        return path, *span

    def write(self, kind: str, footage: Footage, path: Path) -> tuple[float, float]:
        """A playing copy, or frames from begin to end side by side; where it begins and ends in its video."""
        if kind == "clip":
            begin, end = self.read(footage, preview=str(path)).timestamps_seconds
            return begin, end
        number, width, height = PICTURES[kind]
        picture = Image.new("RGB", (number * width, height))
        for place, frame in enumerate(self.frames(footage, number, height, display=True)):
            image = Image.fromarray(frame.permute(1, 2, 0).contiguous().numpy())
            fit = ImageOps.pad if kind == "poster" else ImageOps.fit
            picture.paste(fit(image, (width, height)), (place * width, 0))
        picture.save(path, "JPEG", quality=82)
        return footage.start_seconds, footage.end_seconds

    def keep(self, path: Path) -> None:
        """Remember that a copy or an upload is used, and remove those that nobody used for long."""
        with self.lock:
            self.kept[path] = path.stat().st_size if path.is_file() else 0
            self.kept.move_to_end(path)
            while sum(self.kept.values()) > KEPT_BYTES and len(self.kept) > 1:
                oldest, _ = self.kept.popitem(last=False)
                oldest.unlink(missing_ok=True)
                self.spans.pop(oldest, None)

    def take(self, sent: Path) -> Footage:
        """Take a visitor's file, if it is a video within the limits; all of it.

        Raises:
            ValueError: It is too large or too long, no video or damaged, or it takes too long to read.
        """
        name = sent.name[-60:]
        megabytes = sent.stat().st_size / 1e6
        if megabytes > self.max_upload_bytes / 1e6:
            raise ValueError(f"{name} has {megabytes:.0f} MB; give at most {self.max_upload_bytes / 1e6:.0f} MB")
        ending = "".join(filter(str.isalnum, sent.suffix))[:8] or "video"
        path = self.folder / "uploads" / f"{secrets.token_hex(16)}.{ending}"
        shutil.copyfile(sent, path)  # who sends the same file at the same time has the same path
        try:
            seconds = timeline_of(self.read(Footage(name, 0.0, 0.0, path), find="timeline")).end_seconds
            if seconds > self.max_upload_seconds:
                most = f"{self.max_upload_seconds:.0f} s, the part that matters"
                raise ValueError(f"{name} has {seconds:.0f} s; give at most {most}")
        except (VideoError, ValueError, OSError) as error:
            path.unlink(missing_ok=True)
            with self.lock:
                self.kept.pop(path, None)
            if not isinstance(error, VideoError):
                raise
            why = "takes too long to read" if "no frames within" in str(error) else "is not a video, or it is damaged"
            raise ValueError(f"{name} {why}; choose an MP4, WebM or MOV file") from error
        return Footage(name, 0.0, seconds, path)

    def close(self) -> None:
        """End the reader processes."""
        while not self.pools.empty():
            self.pools.get().close()


def why_foreign(headers: Headers, what: str) -> str:
    """Why a request to what is for this machine alone is refused, or nothing."""
    host = headers.get("host", "")
    if host.rpartition(":")[0] not in HOSTS and host not in HOSTS:
        return f"this {what} is for this machine alone"  # a foreign page whose name was made to point here
    is_own = headers.get("origin", f"http://{host}") == f"http://{host}"
    return "" if is_own else f"this {what} takes no requests of other pages"


def plain(error: BaseException) -> str:
    """An error as one line; of one that the operating system gives, without the file's path."""
    return " ".join((getattr(error, "strerror", None) or str(error)).split()).rstrip(".")
