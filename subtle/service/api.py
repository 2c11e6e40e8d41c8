"""The service: an index over HTTP, for programs. Its OpenAPI document is at `/openapi.json`, to read at `/docs`.

    POST /search                        JSON, or multipart/form-data: a file `clip`, and the JSON as the field `query`
    GET  /moments/{id}                  also .../clip.mp4 and .../thumbnail.jpg
    POST /marks                         which found moments are right and which are wrong
    GET  /health, /metrics              the latter for Prometheus
    POST /mcp                           see `subtle.service.agents`

What is refused is answered with a problem document (RFC 9457). Queries that wait while others are computed are encoded
and searched together.
"""

import asyncio
import hmac
import json
import logging
import re
import shutil
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, UploadFile
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import Message, Receive, Scope, Send

from hf_datasets.footage.files import file_fingerprint
from hf_datasets.video import VideoError
from hf_models.index.search import search_many
from hf_models.index.store import IndexDamagedError, ModelChangedError, quoted
from subtle.index import TOGETHER, Index
from subtle.service.cards import footage_of
from subtle.service.marks import Marks
from subtle.service.media import Footage, Media, plain, why_foreign
from subtle.service.searching import LONGEST_QUERY, Query

PATHS = ("search", "moments", "marks", "health", "metrics", "mcp", "docs", "openapi.json")
"""First parts of the addresses that are the service's; all others are the page's."""
WAITING = 512
"""Most queries that wait; more are told to come back."""
MULTIPART_BYTES = 1_000_000  # beside the clip
KNOWN_CLIENTS = 10_000
CLOSED = {"Connection": "close"}  # or a client would go on sending what nobody wants
LINGER_SECONDS = 5.0
"""How long what a refused client still sends is thrown away. Closed at once, its own system would lose the answer."""
LOG = logging.getLogger("subtle.service")
ShortText = Annotated[str, Field(max_length=4096)]


class Asked(BaseModel):
    """What to look for, and where."""

    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(None, max_length=LONGEST_QUERY, description="What to look for, or what is different.")
    moment_id: ShortText | None = Field(None, description="A moment of the index as the query clip.")
    start_seconds: float | None = Field(None, ge=0, description="Where the clip starts in its video.")
    end_seconds: float | None = Field(None, gt=0, description="Where the clip ends in its video.")
    limit: int = Field(10, ge=1, le=200)
    where: ShortText | None = Field(None, description="Condition in SQL on the moments' columns.")
    folder: ShortText | None = Field(None, description="Only videos below this folder of the index.")
    min_score: float | None = None
    exclude_same_video: bool = False
    more_like: list[ShortText] = Field([], max_length=100, description="Ids of moments that are right.")
    less_like: list[ShortText] = Field([], max_length=100, description="Ids of moments that are wrong.")


class FoundMoment(BaseModel):
    """A moment; `score` is missing where nothing was searched for."""

    moment_id: str
    video: str
    start_seconds: float | None
    end_seconds: float | None
    label: str | None
    text: str | None
    fingerprint: str | None
    score: float | None = None


class Found(BaseModel):
    """What a search found, best first."""

    moments: list[FoundMoment]
    model: str
    seconds: float


class Mark(BaseModel):
    """Whether a found moment is right for a query; None takes a mark back."""

    model_config = ConfigDict(extra="forbid")

    moment_id: ShortText
    is_right: bool | None
    text: str = Field("", max_length=LONGEST_QUERY)
    query_moment_id: ShortText | None = None


class Health(BaseModel):
    """Of the service."""

    status: Literal["ok"]
    moments: int
    model: str


@dataclass
class Waiting:
    """A query that is ready to be encoded.

    Attributes:
        asked: What was asked.
        frames: Of the clip, `(num_frames, 3, height, width)` uint8; None without one.
        own: Fingerprint of the clip's video; None if it may be found.
        answer: Takes the rows that are found.
    """

    asked: Asked
    frames: Any
    own: str | None
    answer: "asyncio.Future[list[dict[str, Any]]]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def kind(self) -> tuple[Any, ...]:
        """What is equal for queries that are encoded and searched together."""
        asked = self.asked
        return self.frames is None, asked.text is None, asked.limit, asked.where, asked.folder, self.own


class Together:
    """Encodes and searches queries, all that came while others were computed at once, so that one alone never waits."""

    def __init__(self, index: Index, sizes: Histogram) -> None:
        self.index, self.sizes = index, sizes
        self.queue: deque[Waiting] = deque()
        self.thread = ThreadPoolExecutor(1, "queries")
        self.runner: asyncio.Task[None] | None = None

    async def ask(self, asked: Asked, frames: Any, own: str | None) -> list[dict[str, Any]]:
        """The rows that a query finds.

        Raises:
            HTTPException: Too many wait.
        """
        if len(self.queue) >= WAITING:
            raise HTTPException(503, "too many queries wait; try again", {"Retry-After": "1"})
        one = Waiting(asked, frames, own)
        self.queue.append(one)
        if self.runner is None or self.runner.done():
            self.runner = asyncio.create_task(self.run())
        return await one.answer

    async def run(self) -> None:
        """Answer until nobody waits."""
        while self.queue:
            await asyncio.sleep(0)  # those that arrived in the same moment
            kinds: dict[tuple[Any, ...], list[Waiting]] = {}
            for one in [self.queue.popleft() for _ in range(min(TOGETHER, len(self.queue)))]:
                if not one.answer.done():  # as of a client that went
                    kinds.setdefault(one.kind, []).append(one)
            for group in kinds.values():
                await self.answer(group)

    async def answer(self, group: list[Waiting]) -> None:
        """Answer queries of one kind; where one of them cannot be, each alone."""
        self.sizes.observe(len(group))
        try:
            found = await asyncio.get_running_loop().run_in_executor(self.thread, self.found, group)
        except Exception as error:
            if len(group) > 1:
                for one in group:
                    await self.answer([one])
            elif not group[0].answer.done():
                group[0].answer.set_exception(error)
            return
        for one, rows in zip(group, found, strict=True):
            if not one.answer.done():
                one.answer.set_result(rows)

    def found(self, group: list[Waiting]) -> list[list[dict[str, Any]]]:
        """The rows of queries of one kind, in one product."""
        index, first = self.index, group[0]
        vectors = self.vectors(group)
        for place, one in enumerate(group):
            if one.asked.more_like or one.asked.less_like:
                has_query = one.frames is not None or one.asked.text is not None
                query = vectors[place] if has_query else None
                vectors[place] = index.judged(query, one.asked.more_like, one.asked.less_like)
        narrowing: dict[str, Any] = {
            "limit": first.asked.limit,
            "where": first.asked.where,
            "folder": first.asked.folder,
        }
        rows = search_many(index.store, index.model, vectors, exclude_fingerprint=first.own, **narrowing)
        least = [-np.inf if one.asked.min_score is None else one.asked.min_score for one in group]
        return [[row for row in some if row["score"] >= score] for some, score in zip(rows, least, strict=True)]

    def vectors(self, group: list[Waiting]) -> np.ndarray:
        """`(Q, D)`; zeros of queries that have only marks."""
        encoder, first = self.index.loaded(), group[0]
        if first.frames is None and first.asked.text is None:
            return np.zeros((len(group), self.index.model.dimensions), np.float32)
        frames = None if first.frames is None else [one.frames for one in group]
        texts = None if first.asked.text is None else [one.asked.text for one in group]
        return np.array(encoder.queries(frames, texts))


class Service:
    """What the routes do.

    Args:
        index: The index, with its model loaded.
        media: Reads videos and keeps uploads.
        marks: Keeps marks; None: they are refused.
        timeout_seconds: Longest time for a request, its upload included.
        log_texts: Write the texts of queries into the log.
    """

    def __init__(
        self, index: Index, media: Media, marks: Marks | None, *, timeout_seconds: float = 60.0, log_texts: bool = False
    ) -> None:
        self.index, self.media, self.marks = index, media, marks
        self.timeout_seconds, self.log_texts = timeout_seconds, log_texts
        self.registry = CollectorRegistry()
        self.requests = Counter("subtle_requests", "Requests", ["route", "status"], registry=self.registry)
        self.seconds = Histogram("subtle_request_seconds", "Seconds of a request", ["route"], registry=self.registry)
        sizes = Histogram(
            "subtle_queries_together", "Queries at once", registry=self.registry, buckets=[1, 2, 4, 8, 16, 32, 64]
        )
        self.together = Together(index, sizes)

    def row(self, moment_id: str) -> dict[str, Any]:
        """A moment of the index.

        Raises:
            HTTPException: There is none.
        """
        if not (rows := self.index.rows(f"moment_id = {quoted(moment_id)}", 1)):
            raise HTTPException(
                404, f"the index has no moment {moment_id[:200]!r}; give the moment_id of one that was found"
            )
        return rows[0]

    def query_of(self, asked: Asked, upload: Path | None) -> tuple[Any, str | None]:
        """The frames of a query's clip, and the fingerprint of its video where that is to be left out.

        Raises:
            HTTPException: There is nothing to look for, or too much.
            ValueError: The clip cannot be used.
        """
        if upload is not None and asked.moment_id is not None:
            raise HTTPException(422, "give a clip or a moment_id, not both")
        if upload is None and asked.moment_id is None:
            if asked.text is None and not asked.more_like:
                raise HTTPException(422, "say what to look for: text, a clip, moment_id or more_like")
            if asked.start_seconds is not None or asked.end_seconds is not None or asked.exclude_same_video:
                raise HTTPException(422, "start_seconds, end_seconds and exclude_same_video are of a clip")
            return None, None
        whole = footage_of(self.row(asked.moment_id or "")) if upload is None else self.media.take(upload)
        start = whole.start_seconds if asked.start_seconds is None else asked.start_seconds
        end = whole.end_seconds if asked.end_seconds is None else asked.end_seconds
        if end is not None and start >= end:
            raise HTTPException(422, f"start_seconds {start:g} and end_seconds {end:g}: it is 0 <= start < end")
        clip = Footage(whole.video, start, end, whole.upload)
        encoder = self.index.loaded()
        frames = self.media.frames(clip, encoder.num_frames, encoder.frame_size)
        return frames, file_fingerprint(self.media.path(clip)) if asked.exclude_same_video else None

    async def search(self, request: Request) -> Found:
        """The moments that fit best, best first."""
        began = time.perf_counter()
        with TemporaryDirectory(prefix="sent-", dir=self.media.folder / "uploads") as folder:
            async with asyncio.timeout(self.timeout_seconds):
                asked, sent = await asked_of(request)
                upload = None
                if sent is not None:
                    upload = Path(folder, re.sub(r"[^\w.-]", "_", Path(sent.filename or "clip").name)[-60:])
                    with upload.open("wb") as file:
                        await run_in_threadpool(shutil.copyfileobj, sent.file, file)
                found = await self.find(asked, upload)
        return Found(moments=found, model=Path(self.index.model.name).name, seconds=time.perf_counter() - began)

    async def find(self, asked: Asked, upload: Path | None = None) -> list[FoundMoment]:
        """What fits a query best, with the clip that was sent."""
        if asked.text is not None:
            asked.text = " ".join(asked.text.split())
            self.index.loaded().check_text(asked.text)
        frames, own = await run_in_threadpool(self.query_of, asked, upload)
        rows = await self.together.ask(asked, frames, own)
        if self.log_texts:
            LOG.info(json.dumps({"text": asked.text, "where": asked.where, "moments": len(rows)}))
        return [FoundMoment(**row) for row in rows]

    def said_of(self, error: BaseException) -> str:
        """What is wrong, for whom asked: without a path of this machine."""
        if isinstance(error, StarletteHTTPException):
            return str(error.detail)
        if isinstance(error, RequestValidationError | ValidationError):
            wrong = list(error.errors())[:5]
            return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the body'}: {one['msg']}" for one in wrong)
        if isinstance(error, TimeoutError):
            return f"this took longer than {self.timeout_seconds:g} s"
        detail = plain(error) if http_status(error) == 422 else f"the index cannot be searched now: {plain(error)}"
        for path in {str(self.index.store.path), str(self.media.folder), str(Path.cwd())}:
            detail = detail.replace(path, "the index")
        return detail

    def clip(self, moment_id: str) -> FileResponse:
        """The clip of a moment."""
        return FileResponse(self.media.made("clip", footage_of(self.row(moment_id)))[0], media_type="video/mp4")

    def thumbnail(self, moment_id: str) -> FileResponse:
        """A picture of a moment."""
        return FileResponse(self.media.made("still", footage_of(self.row(moment_id)))[0], media_type="image/jpeg")

    def moment(self, moment_id: str) -> FoundMoment:
        """A moment."""
        return FoundMoment(**self.row(moment_id))

    def mark(self, mark: Mark) -> Response:
        """Say whether a found moment is right, or take that back."""
        if self.marks is None:
            raise HTTPException(403, "this service keeps no marks")
        query = None
        if mark.query_moment_id is not None:
            clip = footage_of(self.row(mark.query_moment_id))
            query = Query(clip, "", clip.start_seconds, clip.end_seconds)
        self.marks.set(query, mark.text, self.row(mark.moment_id), mark.is_right)
        return Response(status_code=204)

    def health(self) -> Health:
        """Whether the index can be searched."""
        count = self.index.store.moments(self.index.model.key).count_rows()
        return Health(status="ok", moments=count, model=Path(self.index.model.name).name)

    def metrics(self) -> Response:
        """Counts and times, for Prometheus."""
        return Response(generate_latest(self.registry), media_type="text/plain; version=0.0.4")


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """A problem document (RFC 9457)."""
    from http import HTTPStatus

    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


def http_status(error: BaseException) -> int:
    """The HTTP status of an exception of the library."""
    if isinstance(error, IndexDamagedError | ModelChangedError):
        return 503  # until somebody mends the index
    if isinstance(error, TimeoutError):
        return 408
    if isinstance(error, VideoError | ValueError | RequestValidationError):
        return 422
    return 503 if isinstance(error, OSError | RuntimeError) else 500


class Entrance:
    """Lets requests in: those of this machine's own names or with the token, not too large, not too many.

    Args:
        app: The service.
        token: That requests must bear; None: requests for this machine's own names are enough.
        max_bytes: Of a request.
        per_minute: Most requests of a client; None: any number.
        told: Takes method, route, status and seconds of each.
    """

    def __init__(
        self,
        app: Any,
        *,
        token: str | None,
        max_bytes: int,
        per_minute: int | None,
        told: Callable[[str, str, int, float], None],
    ) -> None:
        self.app, self.token, self.max_bytes, self.per_minute, self.told = app, token, max_bytes, per_minute, told
        self.clients: OrderedDict[str, deque[float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102 of ASGI
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, read = time.perf_counter(), 499, 0  # of a client that went
        is_sending, closes = True, False

        async def limited() -> Any:
            nonlocal read, is_sending
            message = await receive()
            read, is_sending = read + len(message.get("body", b"")), message.get("more_body", False)
            if read > self.max_bytes:
                raise HTTPException(413, f"a request may have {self.max_bytes:,} bytes", CLOSED)
            return message

        async def watched(message: Message) -> None:
            nonlocal status, closes
            if message["type"] == "http.response.start":
                status, closes = message["status"], (b"connection", b"close") in message["headers"]
                message["headers"] = [*message["headers"], (b"x-content-type-options", b"nosniff")]
            elif closes and is_sending:
                await send({**message, "more_body": True})  # the whole answer
                with suppress(TimeoutError):
                    async with asyncio.timeout(LINGER_SECONDS):
                        while (await receive()).get("more_body"):
                            pass
                message = {"type": "http.response.body"}
            await send(message)

        try:
            refused = self.refused(scope)
            await (refused or self.app)(scope, limited, watched)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self.told(scope["method"], route, status, time.perf_counter() - began)

    def refused(self, scope: Scope) -> JSONResponse | None:
        """The answer to a request that is not let in."""
        headers = Headers(scope=scope)
        if self.token is None:
            if foreign := why_foreign(headers, "service"):
                return problem(403, foreign)
        elif not hmac.compare_digest(headers.get("authorization", "").encode(), f"Bearer {self.token}".encode()):
            return problem(
                401, "give the token of this service: Authorization: Bearer ...", {"WWW-Authenticate": "Bearer"}
            )
        size = headers.get("content-length", "0")
        if size.isdecimal() and int(size) > self.max_bytes:
            return problem(413, f"a request may have {self.max_bytes:,} bytes", CLOSED)
        if self.per_minute is not None and self.is_too_often((scope.get("client") or ("",))[0]):
            return problem(429, f"{self.per_minute} requests a minute are let in", {"Retry-After": "60"})
        return None

    def is_too_often(self, client: str) -> bool:
        """Count a request of a client."""
        times = self.clients.setdefault(client, deque(maxlen=self.per_minute))
        self.clients.move_to_end(client)
        if len(self.clients) > KNOWN_CLIENTS:
            self.clients.popitem(last=False)
        now = time.monotonic()
        is_full = len(times) == times.maxlen and now - times[0] < 60
        if not is_full:
            times.append(now)
        return is_full


def build_api(service: Service, *, token: str | None = None, per_minute: int | None = None) -> FastAPI:
    """The application."""
    api = FastAPI(title="Subtle", description="Moments of an index of videos.", redoc_url=None)
    refusals: dict[int | str, dict[str, Any]] = {
        status: {"description": what, "content": {"application/problem+json": {}}}
        for status, what in (
            (400, "not JSON"),
            (404, "no such moment"),
            (408, "too slow"),
            (413, "too large"),
            (422, "cannot be"),
            (503, "not now"),
        )
    }

    def told(method: str, route: str, status: int, seconds: float) -> None:
        service.requests.labels(route, status).inc()
        service.seconds.labels(route).observe(seconds)
        LOG.info(
            json.dumps(
                {
                    "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                    "method": method,
                    "route": route,
                    "status": status,
                    "ms": round(1e3 * seconds, 1),
                }
            )
        )

    api.add_middleware(
        Entrance,
        token=token,
        max_bytes=service.media.max_upload_bytes + MULTIPART_BYTES,
        per_minute=per_minute,
        told=told,
    )

    async def failed(_: Request, error: Exception) -> JSONResponse:
        if isinstance(error, StarletteHTTPException):
            return problem(error.status_code, service.said_of(error), dict(error.headers or {}))
        return problem(http_status(error), service.said_of(error), CLOSED if isinstance(error, TimeoutError) else None)

    for kind in (StarletteHTTPException, RequestValidationError, ValueError, OSError, RuntimeError):
        api.add_exception_handler(kind, failed)

    schema = Asked.model_json_schema()
    multipart = {
        "type": "object",
        "required": ["clip"],
        "properties": {
            "clip": {"type": "string", "format": "binary"},
            "query": {"type": "string", "description": "The JSON."},
        },
    }
    content = {"application/json": {"schema": schema}, "multipart/form-data": {"schema": multipart}}

    routes: list[tuple[str, str, Any, dict[str, Any]]] = [
        ("POST", "/search", service.search, {"openapi_extra": {"requestBody": {"required": True, "content": content}}}),
        ("GET", "/moments/{moment_id:path}/clip.mp4", service.clip, {"response_class": FileResponse}),
        ("GET", "/moments/{moment_id:path}/thumbnail.jpg", service.thumbnail, {"response_class": FileResponse}),
        ("GET", "/moments/{moment_id:path}", service.moment, {}),
        ("POST", "/marks", service.mark, {"status_code": 204}),
        ("GET", "/health", service.health, {}),
        ("GET", "/metrics", service.metrics, {"response_class": Response}),
    ]
    for method, path, route, more in routes:
        api.add_api_route(path, route, methods=[method], responses=refusals, **more)
    return api


async def asked_of(request: Request) -> tuple[Asked, UploadFile | None]:
    """What a request asks for, and the clip that it sent.

    Raises:
        HTTPException: It is of another form.
        ValidationError: The JSON is not as it should be.
    """
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return Asked.model_validate_json(await request.body()), None
    form = await request.form(max_files=1, max_fields=1, max_part_size=MULTIPART_BYTES)
    clip, query = form.get("clip"), form.get("query", "{}")
    if not isinstance(clip, UploadFile) or not isinstance(query, str):
        raise HTTPException(422, "give a file as the part clip, and the JSON as the field query")
    return Asked.model_validate_json(query), clip


class Beside:
    """The service and the page in one process: the service takes its own addresses."""

    def __init__(self, app: Any, *, api: Any) -> None:
        self.app, self.api = app, api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102 of ASGI
        is_api = scope["type"] == "http" and scope["path"].lstrip("/").partition("/")[0] in PATHS
        await (self.api if is_api else self.app)(scope, receive, send)
