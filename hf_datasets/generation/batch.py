"""The Batch API as a mode of the same client: half the price, answers within a day, resumable after a kill."""

import asyncio
import json
import re
import tempfile
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import openai
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.chat import Answer, GenerationStoppedError, NoAnswerError, Request
from hf_datasets.generation.event_loop import Result, event_loop, result_of
from hf_datasets.generation.openai_chat import OpenAIChat
from hf_datasets.generation.server import HINTS, MalformedResponseError, rejected_option

URL = "/v1/chat/completions"
MAX_BATCH_BYTES = 190_000_000
"""Of the 200 MB that one batch file may hold."""
MAX_REQUESTS = 50_000
QUEUE_FULL = "token_limit_exceeded"
"""The code of a batch that exceeds, with those that are under way, the tokens that an account may have in line."""
CUSTOM_ID = re.compile(r'"custom_id"\s*:\s*"([0-9a-f]{64})"')
ENDED = {"completed", "expired", "cancelled", "failed"}
READINGS = 5
"""How often a response about files and batches may be unreadable before the run stops."""

FORMAT_ERRORS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What reading a response raises that breaks the format of the API."""


class UnreadableError(GenerationStoppedError):
    """The server's response about a file or batch breaks the format of the API."""


class _QueueFullError(GenerationStoppedError):
    """The server takes a batch only after others have ended."""


class OpenAIBatchChat(OpenAIChat):
    """A chat model behind OpenAI's Batch API.

    `generate` passes windows of rows, several at a time; requests of one that the cache cannot answer go into one
    batch, whose answers enter the cache by their `custom_id`, which is the request's key. A batch is recorded in the
    cache before it is created, so that a run that was killed waits for the batch it had sent instead of paying for
    another. Where the server has no room in line for a batch, it is sent again when another one has ended.

    The arguments are those of `OpenAIChat`; `window` (rows per batch) and `poll_seconds` may be set afterwards.
    """

    batch = True
    max_bytes = MAX_BATCH_BYTES
    poll_seconds = 30.0

    def __init__(self, model: str, **options: Any) -> None:
        super().__init__(model, **options)
        self.window = 10_000
        self._patient = self._client.with_options(max_retries=5)
        self._turn = asyncio.Lock()
        self._num_ended = 0

    def recover(self, cache: AnswerCache) -> None:
        """Wait for the batches that an earlier run sent and was killed before reading."""
        future = asyncio.run_coroutine_threadsafe(self._recover(cache), event_loop())
        try:
            result_of(future)
        finally:
            future.cancel()

    def fill(self, requests: dict[str, Request], cache: AnswerCache) -> "Future[dict[str, NoAnswerError]]":
        """Write the answers to these requests to the cache, as far as the server gives them; several may be under way.

        Args:
            requests: The requests by cache key.
            cache: Where the answers are written.

        Returns:
            For each request without an answer, why, by key. Its result raises GenerationStoppedError on a wrong key,
            an empty account or budget, or a batch that the server refused as a whole.
        """
        return asyncio.run_coroutine_threadsafe(self._fill(requests, cache), event_loop())

    def body_bytes(self, request: Request) -> int:
        """How long the line of a request is in the file of a batch, about."""
        return len(json.dumps(self.body(request))) + 200

    async def answer(self, request: Request) -> Answer:
        """No answer: the answers of a batch are in the cache.

        Raises:
            NoAnswerError: Always.
        """
        raise NoAnswerError(f"the batches gave no answer to this request of {request.task.name}")

    async def _recover(self, cache: AnswerCache) -> None:
        for fingerprint, batch_id in cache.open_batches(self.endpoint):
            name = batch_id or await self._find(fingerprint)
            if name:
                await self._collect(fingerprint, name, {}, cache)
            else:
                self._end(fingerprint, cache)

    async def _fill(self, requests: dict[str, Request], cache: AnswerCache) -> dict[str, NoAnswerError]:
        errors: dict[str, NoAnswerError] = {}
        waiting = dict(requests)
        while waiting:
            batches: list[tuple[dict[str, Request], asyncio.Task[dict[str, NoAnswerError]]]] = []
            ended = self._num_ended
            try:
                async with self._turn:  # the first rows get what a budget allows
                    while waiting:
                        while not (sent := self._affordable(waiting)):
                            await self._one_settled(self.used_up(self.worst_usd(next(iter(waiting.values())))))
                        batches.append((sent, self._start_batch(sent, cache)))
                        waiting = {key: request for key, request in waiting.items() if key not in sent}
                refused = None
                for sent, batch in batches:
                    try:
                        errors |= await batch
                    except _QueueFullError as full:
                        waiting, refused = waiting | sent, full
            finally:
                for _, batch in batches:
                    batch.cancel()
            if refused and ended == self._num_ended:  # else there is room by now
                await self._one_settled(str(refused))
        return errors

    def _start_batch(self, sent: dict[str, Request], cache: AnswerCache) -> "asyncio.Task[dict[str, NoAnswerError]]":
        """Record what a batch may cost, and send it; the task ends when its answers are in the cache."""
        fingerprint = cache.plan_batch(self.endpoint, list(sent))
        usd = sum(map(self.worst_usd, sent.values()))
        if self._budget:  # counts it from here on, also after a kill
            cache.note_spending(fingerprint, self._budget[1], usd)
            usd = 0.0
        self._under_way += 1
        self._reserved_usd += usd

        async def answered() -> dict[str, NoAnswerError]:
            batch_id = await self._send(sent, fingerprint)
            cache.name_batch(fingerprint, batch_id)
            errors = await self._collect(fingerprint, batch_id, sent, cache)
            self._num_ended += 1
            return errors

        task = asyncio.get_running_loop().create_task(answered())
        task.add_done_callback(lambda _: self._release(usd))
        return task

    async def _one_settled(self, message: str) -> None:
        # Waits until a batch that is under way has ended; where there is none, the message ends the run.
        if not self._under_way:
            raise GenerationStoppedError(message)
        await self._settled.wait()

    def _affordable(self, requests: dict[str, Request]) -> dict[str, Request]:
        """The first requests that fit into one file and, at their highest cost, into what is left of the budget."""
        limit = self._limits.max_usd
        fitting: dict[str, Request] = {}
        usd, size = self.spent_usd + self._reserved_usd, 0
        for key, request in requests.items():
            usd += self.worst_usd(request)
            size += self.body_bytes(request)
            full = size > MAX_BATCH_BYTES or len(fitting) == MAX_REQUESTS
            if (limit is not None and usd > limit) or (full and fitting):
                break
            fitting[key] = request
        return fitting

    async def _send(self, requests: dict[str, Request], fingerprint: str) -> str:
        with tempfile.TemporaryFile() as lines:
            for key, request in requests.items():
                entry = {"custom_id": key, "method": "POST", "url": URL, "body": self.body(request)}
                lines.write(json.dumps(entry).encode() + b"\n")
            lines.seek(0)
            file_id = await self._call(
                lambda file: _string(file.id),
                self._patient.files.create,
                file=("requests.jsonl", lines),
                purpose="batch",
            )
        try:
            return await self._call(
                lambda batch: _string(batch.id),
                self._client.batches.create,  # never sent twice: the second batch would be charged, too
                input_file_id=file_id,
                endpoint=URL,
                completion_window="24h",
                metadata={"fingerprint": fingerprint},
            )
        except UnreadableError:
            found = await self._find(fingerprint)
            if found is None:
                raise
            return found

    async def _find(self, fingerprint: str) -> str | None:
        """The id of a batch that was created just before a run was killed, None where there is none."""
        named = await self._call(
            lambda page: [(_string(batch.id), batch.metadata or {}) for batch in page.data],
            self._patient.batches.list,
            limit=100,
            readings=READINGS,
        )
        found = [batch_id for batch_id, metadata in named if dict(metadata).get("fingerprint") == fingerprint]
        return found[0] if found else None

    async def _collect(
        self, fingerprint: str, batch_id: str, requests: dict[str, Request], cache: AnswerCache
    ) -> dict[str, NoAnswerError]:
        status, file_ids, causes, codes = await self._end_of(batch_id)
        if status == "failed":
            self._end(fingerprint, cache)
            is_full = any(code == QUEUE_FULL for code in codes)
            error = _QueueFullError if is_full else GenerationStoppedError
            raise error(f"the server refused batch {batch_id}: {causes or 'no reason given'}")
        open_keys = set(cache.batch_keys(fingerprint))
        errors: dict[str, NoAnswerError] = {}
        for file_id in file_ids:
            content = await self._call(
                lambda response: response.content, self._patient.files.content, file_id, readings=READINGS
            )
            for line in content.decode("utf-8", errors="replace").split("\n"):
                self._take(line, open_keys, requests, cache, errors)
        self._end(fingerprint, cache)
        return errors

    def _end(self, fingerprint: str, cache: AnswerCache) -> None:
        self.note_spending()  # first: after a kill in between it counts twice rather than not at all
        cache.end_batch(fingerprint, self._budget[1] if self._budget else "")

    async def _end_of(self, batch_id: str) -> tuple[str, list[str], str, list[str]]:
        """The final status of a batch, the files of its answers and errors, and the reasons and codes of a failure."""
        while True:
            found = await self._call(self._read_batch, self._patient.batches.retrieve, batch_id, readings=READINGS)
            if found[0] in ENDED:
                return found
            await asyncio.sleep(self.poll_seconds)

    def _read_batch(self, batch: Any) -> tuple[str, list[str], str, list[str]]:
        file_ids = [_string(file_id) for file_id in (batch.output_file_id, batch.error_file_id) if file_id]
        causes = (batch.errors and batch.errors.data) or []
        reasons = self.redact("; ".join(str(error.message) for error in causes))
        return _string(batch.status), file_ids, reasons, [str(error.code) for error in causes]

    def _take(
        self,
        line: str,
        open_keys: set[str],
        requests: dict[str, Request],
        cache: AnswerCache,
        errors: dict[str, NoAnswerError],
    ) -> None:
        """Keep one line's answer, found by its `custom_id` even where the rest of the line is broken.

        Each request is answered once; lines of other requests are ignored.
        """
        named = CUSTOM_ID.search(line)
        if not named or named[1] not in open_keys:
            return
        request = requests.get(named[1])
        open_keys.discard(named[1])
        try:
            answer = self._answer_in(line, request)
        except NoAnswerError as error:
            errors[named[1]] = error
        else:
            cache.put(named[1], answer, self.model, request)

    def _answer_in(self, line: str, request: Request | None) -> Answer:
        try:
            entry = json.loads(line)
            response = entry.get("response") or {}
            status, body = response.get("status_code"), response.get("body")
            if status == 200:
                return self.read(json.dumps(body), request)
            cause = entry.get("error") or (body or {}).get("error") or {}
            message, param = self.redact(str(cause.get("message"))), cause.get("param")
        except MalformedResponseError as error:
            raise NoAnswerError("the answer in the batch is not a chat completion", error.raw) from None
        except (ValueError, LookupError, AttributeError, RecursionError):
            self.lose(request)
            raise NoAnswerError("the line of the batch output is broken", self.redact(line)) from None
        if not isinstance(status, int):
            raise NoAnswerError("the batch answered without a status", self.redact(line))
        option = rejected_option(status, message, param, self.body(request) if request else {})
        if option:
            self._refused_options.add(option)  # the next batch is sent without it
        raise NoAnswerError(f"the batch answered with status {status}", message, passing=status >= 500)

    async def _call(
        self,
        read: Callable[[Any], Result],
        function: Callable[..., Awaitable[Any]],
        *args: Any,
        readings: int = 1,
        **options: Any,
    ) -> Result:
        # What `read` finds in the response to a call of the files or batches API; it is called up to `readings` times.
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(FORMAT_ERRORS),
            stop=stop_after_attempt(readings),
            wait=wait_fixed(self.poll_seconds),
            reraise=True,
        )

        async def attempt() -> Result:
            return read(await function(*args, **options))

        try:
            return await retrying(attempt)
        except openai.APIError as error:
            hint = HINTS.get(getattr(error, "status_code", 0), "try again later; no answer is lost")
            raise GenerationStoppedError(f"{hint} ({self.redact(error.message)[:300]})") from None
        except FORMAT_ERRORS:
            raise UnreadableError(
                f"the responses of {self.endpoint} about files and batches cannot be read; does it have a Batch API? "
                "No answer is lost"
            ) from None


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {type(value).__name__}")
    return value
