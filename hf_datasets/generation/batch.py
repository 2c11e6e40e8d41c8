"""The Batch API as a mode of the same client: half the price, answers within a day, resumable after a kill."""

import asyncio
import json
import re
import tempfile
from typing import Any

import openai

from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.chat import Answer, GenerationStoppedError, NoAnswerError, Request, event_loop
from hf_datasets.generation.faults import CURES, MalformedResponseError, rejected_option
from hf_datasets.generation.openai_chat import OpenAIChat

URL = "/v1/chat/completions"
MAX_BYTES = 190_000_000
"""Of the 200 MB that one batch file may hold."""
MAX_REQUESTS = 50_000
CUSTOM_ID = re.compile(r'"custom_id"\s*:\s*"([0-9a-f]{64})"')
ENDED = {"completed", "expired", "cancelled", "failed"}


class OpenAIBatchChat(OpenAIChat):
    """A chat model asked through OpenAI's Batch API.

    `generate` hands over a window of rows at a time; what the cache lacks goes into one batch, whose answers
    enter the cache by their `custom_id`, which is the request's key. A batch is written down in the cache before
    it is made, so a killed run waits for the batch it had sent instead of paying for another.

    It is made as an `OpenAIChat`; `window` (rows per batch) and `poll_seconds` may be set afterwards.
    """

    batch = True
    poll_seconds = 30.0

    def __init__(self, model: str, **options: Any) -> None:
        super().__init__(model, **options)
        self.window = 10_000
        self._patient = self._client.with_options(max_retries=5)

    def recover(self, cache: AnswerCache) -> None:
        """Wait for the batches that an earlier run sent and did not live to read."""
        self._wait_for(self._recover(cache))

    def fill(self, requests: dict[str, Request], cache: AnswerCache) -> dict[str, NoAnswerError]:
        """Bring the answers to these requests into the cache, as far as the server gives them.

        Args:
            requests: What to ask, by cache key.
            cache: Where the answers go.

        Returns:
            For each request without an answer, why, by key. It raises GenerationStoppedError on a wrong key, an
            empty account or budget, or a batch that the server refused as a whole.
        """
        return self._wait_for(self._fill(requests, cache))

    async def answer(self, request: Request) -> Answer:
        """Nothing: what a batch answers is in the cache.

        Raises:
            NoAnswerError: Always.
        """
        raise NoAnswerError(f"the batches gave no answer to this request of {request.task.name}")

    def _wait_for(self, coroutine: Any) -> Any:
        future = asyncio.run_coroutine_threadsafe(coroutine, event_loop())
        try:
            return future.result()
        finally:
            future.cancel()

    async def _recover(self, cache: AnswerCache) -> None:
        for fingerprint, batch_id in cache.open_batches(self.endpoint):
            name = batch_id or await self._find(fingerprint)
            if name:
                await self._collect(fingerprint, name, {}, cache)
            else:
                cache.end_batch(fingerprint)

    async def _fill(self, requests: dict[str, Request], cache: AnswerCache) -> dict[str, NoAnswerError]:
        errors: dict[str, NoAnswerError] = {}
        waiting = dict(requests)
        while waiting:
            sent = self._affordable(waiting)
            fingerprint = cache.plan_batch(self.endpoint, list(sent))
            batch_id = await self._send(sent, fingerprint)
            cache.name_batch(fingerprint, batch_id)
            errors |= await self._collect(fingerprint, batch_id, sent, cache)
            waiting = {key: request for key, request in waiting.items() if key not in sent}
        return errors

    def _affordable(self, requests: dict[str, Request]) -> dict[str, Request]:
        """The first requests that fit into one file and, at worst, into the budget.

        Raises:
            GenerationStoppedError: Not even one does.
        """
        limit = self._limits.max_usd
        fitting: dict[str, Request] = {}
        usd, size = self.meter.usd or 0.0, 0
        for key, request in requests.items():
            usd += self.worst_usd(request)
            size += len(json.dumps(self.body(request))) + 200
            full = size > MAX_BYTES or len(fitting) == MAX_REQUESTS
            if (limit is not None and usd > limit) or (full and fitting):
                break
            fitting[key] = request
        if not fitting:
            raise GenerationStoppedError(f"the budget of ${limit:g} is used up: ${self.meter.usd:.4f} spent")
        return fitting

    async def _send(self, requests: dict[str, Request], fingerprint: str) -> str:
        with tempfile.TemporaryFile() as lines:
            for key, request in requests.items():
                entry = {"custom_id": key, "method": "POST", "url": URL, "body": self.body(request)}
                lines.write(json.dumps(entry).encode() + b"\n")
            lines.seek(0)
            file = await self._call(
                self._patient.files.create, file=("requests.jsonl", lines), purpose="batch"
            )
        batch = await self._call(
            self._client.batches.create,  # Never sent twice: a second one would be paid for.
            input_file_id=file.id,
            endpoint=URL,
            completion_window="24h",
            metadata={"fingerprint": fingerprint},
        )
        return batch.id

    async def _find(self, fingerprint: str) -> str | None:
        """The batch that was made just before its name could be written down, if it was."""
        page = await self._call(self._patient.batches.list, limit=100)
        found = [batch.id for batch in page.data if (batch.metadata or {}).get("fingerprint") == fingerprint]
        return found[0] if found else None

    async def _collect(
        self, fingerprint: str, batch_id: str, requests: dict[str, Request], cache: AnswerCache
    ) -> dict[str, NoAnswerError]:
        while (batch := await self._call(self._patient.batches.retrieve, batch_id)).status not in ENDED:
            await asyncio.sleep(self.poll_seconds)
        if batch.status == "failed":
            cache.end_batch(fingerprint)
            causes = "; ".join(str(error.message) for error in (batch.errors and batch.errors.data) or [])
            raise GenerationStoppedError(
                f"the server refused batch {batch_id}: {self.redact(causes) or 'no reason given'}"
            )
        errors: dict[str, NoAnswerError] = {}
        for file_id in (batch.output_file_id, batch.error_file_id):
            if file_id:
                content = await self._call(self._patient.files.content, file_id)
                for line in content.content.decode("utf-8", errors="replace").splitlines():
                    self._take(line, requests, cache, errors)
        cache.end_batch(fingerprint)
        return errors

    def _take(
        self, line: str, requests: dict[str, Request], cache: AnswerCache, errors: dict[str, NoAnswerError]
    ) -> None:
        """Keep one line's answer, found by its `custom_id` even where the rest of the line is broken."""
        named = CUSTOM_ID.search(line)
        if not named:
            return
        request = requests.get(named[1])
        try:
            answer = self._answer_in(line, self.body(request) if request else {})
        except NoAnswerError as error:
            errors[named[1]] = error
        else:
            self.spend(answer)
            cache.put(named[1], answer, self.model, request)

    def _answer_in(self, line: str, body: dict[str, Any]) -> Answer:
        try:
            entry = json.loads(line)
            response = entry.get("response") or {}
            status = response.get("status_code")
            if status == 200:
                return self.read(json.dumps(response["body"]).encode())
            cause = entry.get("error") or (response.get("body") or {}).get("error") or {}
            message, param = str(cause.get("message")), cause.get("param")
        except (ValueError, LookupError, AttributeError, MalformedResponseError):
            raise NoAnswerError("the line of the batch's answer is broken", self.redact(line)) from None
        option = rejected_option(status, message, param, body)
        if option:
            self._refused_options.add(option)  # The next batch goes without.
        raise NoAnswerError(f"the batch answered with status {status}", self.redact(message))

    async def _call(self, function: Any, *args: Any, **options: Any) -> Any:
        """A call of the files or batches API.

        Raises:
            GenerationStoppedError: It failed for good; with the cure.
        """
        try:
            return await function(*args, **options)
        except openai.APIError as error:
            remedy = CURES.get(
                getattr(error, "status_code", 0), "try again later; nothing that was answered is lost"
            )
            raise GenerationStoppedError(f"{remedy} ({self.redact(error.message)[:300]})") from None
