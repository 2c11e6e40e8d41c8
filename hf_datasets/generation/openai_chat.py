"""The client for every OpenAI-compatible endpoint: OpenAI itself, vLLM, `transformers serve`, Gemini's."""

import asyncio
import json
import logging
import os
import secrets
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import httpx2
import openai
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_random_exponential

from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.chat import Answer, GenerationStoppedError, NoAnswerError, Request
from hf_datasets.generation.event_loop import event_loop
from hf_datasets.generation.prices import Meter, Price, message_tokens, num_bytes, price_of
from hf_datasets.generation.server import (
    BoundedClient,
    MalformedResponseError,
    ResponseTooLongError,
    hint_for,
    is_transient,
    may_be_charged,
    read_completion,
    rejected_option,
    retry_after_seconds,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters. None leaves a parameter out of the request."""

    temperature: float | None = 0.0
    max_output_tokens: int = 1024
    seed: int | None = None

    def options(self) -> dict[str, Any]:
        """The parameters under the names that the endpoint reads."""
        options = {
            "temperature": self.temperature,
            "max_completion_tokens": self.max_output_tokens,
            "seed": self.seed,
        }
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Limits:
    """Rate limits, budget and retries of a client. None is no limit.

    `max_tries` bounds how often one request is sent; `max_failures` how many consecutive requests may get no answer
    before the run stops. `max_usd` is for one client, or for all that `share_budget`.
    """

    max_concurrency: int = 8
    requests_per_minute: float | None = None
    max_usd: float | None = None
    timeout_seconds: float = 120.0
    max_tries: int = 6
    max_wait_seconds: float = 60.0
    max_failures: int = 50

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; it must be above zero")


class Pace:
    """Spreads requests evenly over time, so that no window of a minute holds more than the limit allows."""

    def __init__(self, per_minute: float | None) -> None:
        self._seconds_apart = 60 / per_minute if per_minute else 0.0
        self._free_at = 0.0

    async def wait(self) -> None:
        """Wait until the next request may be sent."""
        if not self._seconds_apart:
            return
        now = asyncio.get_running_loop().time()
        start = max(self._free_at, now)
        self._free_at = start + self._seconds_apart
        await asyncio.sleep(start - now)


class OpenAIChat:
    """A chat model behind an OpenAI-compatible endpoint.

    Structured output is requested where the task has a schema, until the server rejects it; the same holds for
    `temperature`, `seed` and the name of the token limit. Rate limits, server errors, time-outs and broken responses
    are retried with backoff; a wrong key, an empty account, an unknown model and a request beyond the context length
    end the run.

    Args:
        model: The name of the model on the server.
        base_url: The endpoint, such as `http://localhost:8000/v1`; None is OpenAI's.
        api_key: None takes it from `OPENAI_API_KEY`. Only the HTTP client stores it.
        sampling: The sampling parameters.
        limits: Concurrency, rates, budget, retries.
        price: Dollars per token where the built-in table does not list the model.

    Raises:
        ValueError: A budget is set and the model has no price.

    Example:
        >>> OpenAIChat("gpt-4o", api_key="k", limits=Limits(max_usd=5.0)).meter.usd
        0.0
    """

    keeps_answers = True
    batch = False

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        sampling: Sampling = Sampling(),
        limits: Limits = Limits(),
        price: Price | None = None,
    ) -> None:
        self.model = model
        self.sampling = sampling.options()
        self.window = max(64, 4 * limits.max_concurrency)
        self.meter = Meter(price or price_of(model, batch=self.batch))
        if limits.max_usd is not None and self.meter.price is None:
            raise ValueError(f"no price is listed for {model!r}, so a budget cannot be kept; give its price per token")
        key = api_key or os.environ.get("OPENAI_API_KEY") or ("none" if base_url else None)
        if key is None:
            raise GenerationStoppedError("no API key: set the environment variable OPENAI_API_KEY")
        self._client = openai.AsyncOpenAI(
            api_key=key,
            base_url=base_url,
            max_retries=0,
            timeout=limits.timeout_seconds,
            http_client=BoundedClient(timeout=limits.timeout_seconds),
        )
        weakref.finalize(self, _close, self._client)
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.max_concurrency)
        self._requests = Pace(limits.requests_per_minute)
        self._refused_options: set[str] = set()
        self._stopped: GenerationStoppedError | None = None
        self._failures = 0
        self._under_way = 0
        self._reserved_usd = 0.0
        self._settled = asyncio.Event()
        self._budget: tuple[AnswerCache, str] | None = None
        self._spender = secrets.token_hex(16)

    @property
    def endpoint(self) -> str:
        """Where requests go, without any user name or password in the address."""
        return str(self._client.base_url.copy_with(userinfo=b""))

    def share_budget(self, cache: AnswerCache, name: str) -> None:
        """Let one `max_usd` hold for all clients that share it, in whatever process, also one that was killed.

        The cache holds what each has cost at most, before a request is sent: a killed run cannot tell afterwards.
        """
        self._budget = cache, name

    async def answer(self, request: Request) -> Answer:
        """The model's answer.

        Raises:
            NoAnswerError: This request got none within `max_tries`.
            GenerationStoppedError: No request can get an answer, or the budget is used up.
        """
        async with self._slots:
            try:
                answer = await self._try(request)
            except NoAnswerError:
                self._failures += 1
                if self._failures >= self._limits.max_failures:
                    self._stop(f"{self._failures} requests in a row got no answer from {self.endpoint}; is it up?")
                raise
            self._failures = 0
            return answer

    @contextmanager
    def sending_nothing(self) -> Iterator[None]:
        """Send no further request inside this context; those already sent may still get their answer."""
        before = self._stopped
        self._stopped = before or GenerationStoppedError("the run was interrupted")
        try:
            yield
        finally:
            self._stopped = before

    def body(self, request: Request) -> dict[str, Any]:
        """The JSON body of a request, without the options that the server has rejected."""
        body = {"model": self.model, "messages": request.messages, **self.sampling}
        schema = request.task.schema
        if schema:
            named = {"name": schema.__name__, "schema": schema.model_json_schema(), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        if "max_completion_tokens" in self._refused_options:
            body["max_tokens"] = body["max_completion_tokens"]
        return {name: value for name, value in body.items() if name not in self._refused_options}

    def read(self, text: str, request: Request | None) -> Answer:
        """The answer in a response body to this request; its tokens are counted, and the API key is removed from it.

        Args:
            text: The body.
            request: None where it is not known any more.

        Raises:
            MalformedResponseError: The body is not a chat completion; the request is counted at its highest cost.
        """
        messages = request.messages if request else None
        try:
            answer = read_completion(json.loads(text), messages, price=self.meter.price, clean=self.redact)
        except (ValueError, RecursionError) as error:
            self.lose(request)
            raise MalformedResponseError(self.redact(text)) from error
        self.meter.requests += 1
        self.meter.input_tokens += answer.input_tokens
        self.meter.output_tokens += answer.output_tokens
        return answer

    def redact(self, text: str) -> str:
        """The text without the API key and without characters that UTF-8 cannot encode."""
        clean = text.encode("utf-8", errors="replace").decode()
        return clean.replace(self._client.api_key, "[API key]") if len(self._client.api_key) > 4 else clean

    def worst_usd(self, request: Request | None) -> float:
        """Dollars that this request costs at most; 0 where there is no price.

        No tokenizer makes more tokens of a text than it has bytes, and the answer ends at its token limit. None is a
        request that is not known any more, of which the answer alone is counted.
        """
        if not self.meter.price:
            return 0.0
        schema = json.dumps(request.task.schema.model_json_schema()) if request and request.task.schema else ""
        tokens = message_tokens(request.messages, self.meter.price, num_bytes) if request else 0
        return self.meter.price.usd(tokens + num_bytes(schema), self.sampling["max_completion_tokens"])

    def lose(self, request: Request | None) -> None:
        """Count a request at its highest cost: the server may have charged it, and its answer did not arrive whole."""
        self.meter.requests += 1
        self.meter.lost_usd += self.worst_usd(request)

    async def _try(self, request: Request) -> Answer:
        retrying = AsyncRetrying(
            retry=retry_if_exception(is_transient),
            stop=stop_after_attempt(self._limits.max_tries),
            wait=self._wait_seconds,
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    usd = await self._reserve(request)  # for each try, as a broken answer may cost as much
                    try:
                        await self._requests.wait()
                        return await asyncio.wait_for(self._ask(request), self._limits.timeout_seconds)
                    finally:
                        self._release(usd)
        except ResponseTooLongError as error:
            raise NoAnswerError(error.message) from None
        except (TimeoutError, openai.APIError, MalformedResponseError) as error:
            reason = f"no answer after {self._limits.max_tries} tries: {type(error).__name__}"
            raw = getattr(error, "raw", "")
            raise NoAnswerError(reason, raw, passing=not raw) from None
        except UnicodeEncodeError:
            raise NoAnswerError("the request holds a character that UTF-8 cannot encode") from None
        raise AssertionError("tenacity ends by returning or raising")

    def _wait_seconds(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        backoff = wait_random_exponential(multiplier=0.5, max=self._limits.max_wait_seconds)(state)
        return min(max(backoff, retry_after_seconds(error)), self._limits.max_wait_seconds)

    async def _ask(self, request: Request) -> Answer:
        while True:
            if self._stopped:
                raise self._stopped
            body = self.body(request)
            try:
                # The typed method would walk every message and build a model of the answer, a sixth of the time.
                response = await self._client.post("/chat/completions", cast_to=httpx2.Response, body=body)
                return self.read(response.content.decode("utf-8", errors="replace"), request)
            except BaseException as error:  # also where it is canceled, after its time or by the end of the run
                if may_be_charged(error):
                    self.lose(request)
                if not isinstance(error, openai.APIStatusError):
                    raise
                self.face(error, body)

    def face(self, error: openai.APIStatusError, body: dict[str, Any]) -> None:
        """Handle an error of the server; returns only where the request should be sent once more.

        Raises:
            GenerationStoppedError: No request can succeed.
            NoAnswerError: This request cannot.
            openai.APIStatusError: The error is transient.
        """
        hint = hint_for(error)
        if hint:
            self._stop(f"{hint} (the server at {self.endpoint} said: {self.redact(error.message)[:300]})")
        if is_transient(error):
            raise error
        option = rejected_option(error.status_code, error.message, error.param, body)
        if option is None:
            reason = f"the server refused the request with status {error.status_code}"
            raise NoAnswerError(reason, self.redact(error.message)) from None
        if option not in self._refused_options:
            logger.warning("The server does not accept %s; continuing without it.", option)
        self._refused_options.add(option)

    def _stop(self, message: str) -> NoReturn:
        self._stopped = self._stopped or GenerationStoppedError(message)
        raise self._stopped from None

    async def _reserve(self, request: Request) -> float:
        """Reserve the highest cost of the request; waits while the reservations of other requests exceed the budget."""
        limit = self._limits.max_usd
        usd = 0.0 if limit is None else self.worst_usd(request)
        while limit is not None and self.spent_usd + self._reserved_usd + usd > limit:
            if self._stopped:
                raise self._stopped
            if not self._under_way:
                self._stop(self.used_up(usd))
            await self._settled.wait()
        if limit is not None:
            self.note_spending(self._reserved_usd + usd)
        self._under_way += 1
        self._reserved_usd += usd
        return usd

    def _release(self, usd: float) -> None:
        self._under_way -= 1
        self._reserved_usd = self._reserved_usd - usd if self._under_way else 0.0
        self._settled.set()
        self._settled.clear()  # those who waited go on, and who waits from here on waits for the next one
        if not self._under_way and self._limits.max_usd is not None:
            self.note_spending()

    @property
    def spent_usd(self) -> float:
        """Dollars that count against the budget: of this client, and of those that share it."""
        others = self._budget[0].spent(self._budget[1], besides=self._spender) if self._budget else 0.0
        return (self.meter.usd or 0.0) + others

    def used_up(self, usd: float) -> str:
        """The words of a budget that is not enough for a request of at most so many dollars."""
        own, spent = self.meter.usd or 0.0, self.spent_usd
        earlier = f", ${spent - own:.4f} of it by other runs that share it" if spent > own else ""
        return (
            f"the budget of ${self._limits.max_usd:g} is used up: ${spent:.4f} spent{earlier}, next up to ${usd:.4f}; "
            "raise it to go on"
        )

    def note_spending(self, reserved_usd: float = 0.0) -> None:
        """Record what this client has cost so far, and what is being sent may cost."""
        if self._budget:
            cache, name = self._budget
            cache.note_spending(self._spender, name, (self.meter.usd or 0.0) + reserved_usd)


def _close(client: openai.AsyncOpenAI) -> None:
    """Close the connections on the event loop, which opened them."""
    asyncio.run_coroutine_threadsafe(client.close(), event_loop())
