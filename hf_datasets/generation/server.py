"""What comes back from a server, which may send anything: a bounded response, the completion in it, or an error."""

import asyncio
import re
import zlib
from collections.abc import Callable
from typing import Any

import httpx2
import openai
from openai import DefaultAsyncHttpxClient

from hf_datasets.generation.chat import Answer
from hf_datasets.generation.prices import BYTES_PER_TOKEN, Price, message_tokens, text_tokens
from hf_datasets.generation.task import Message

MAX_RESPONSE_BYTES = 16_000_000
MAX_FILE_BYTES = 1_000_000_000
"""Of a file of batch answers: enough for 50,000 of them."""
GZIP = zlib.MAX_WBITS | 16
SLACK_TOKENS = 20_000
"""The most that a chat template, an image or hidden reasoning may add to the tokens of the texts."""
MAX_CONTEXT_TOKENS = 10_000_000
"""More than any model reads or writes at once."""
REASON_CHARACTERS = 100
OPTIONAL_FIELDS = ("response_format", "temperature", "seed", "max_completion_tokens")
"""The optional parameters of a request; the token limit is then sent under its older name."""
HINTS = {
    401: "the API key is wrong or missing: set the environment variable that holds it",
    402: "the account is empty: add credit",
    403: "this key may not use this model: choose another model or key",
    404: "the server does not know this model or address: check --model and --base_url",
}
QUOTA_CODES = {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"}
GATEWAY_ERRORS = {502, 504, *range(520, 525)}
"""What stands between, not the server, gave up: the answer may have been written."""
REFUSALS = {400, 413, 422}
CONTEXT_WORDS = "context length|context window|maximum context|prompt is too long"


class ResponseTooLongError(openai.APIError):
    """A response body that is longer than any answer can be."""

    def __init__(self, request: httpx2.Request, limit: int) -> None:
        super().__init__(f"the response is longer than {limit:,} bytes", request, body=None)


class BoundedClient(DefaultAsyncHttpxClient):
    """OpenAI's HTTP client; a response beyond a limit is closed, so that no server can fill the memory."""

    def __init__(self, **options: Any) -> None:
        super().__init__(headers={"Accept-Encoding": "gzip"}, **options)

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """The response, read whole unless `stream` is set.

        Raises:
            ResponseTooLongError: Its body, unpacked, is longer than `MAX_RESPONSE_BYTES`, that of a file than
                `MAX_FILE_BYTES`.
            httpx2.DecodingError: It cannot be unpacked.
        """
        response = await super().send(request, stream=True, **options)
        if stream:
            return response
        limit = MAX_FILE_BYTES if request.url.path.endswith("/content") else MAX_RESPONSE_BYTES
        is_packed = response.headers.get("content-encoding") == "gzip"
        unpacker = zlib.decompressobj(GZIP)
        body, received = bytearray(), 0
        try:
            async for part in response.aiter_raw():
                received += len(part)
                body += unpacker.decompress(part, limit + 1 - len(body)) if is_packed else part
                if max(received, len(body)) > limit:
                    raise ResponseTooLongError(request, limit)
        except zlib.error as error:
            raise httpx2.DecodingError(str(error), request=request) from error
        finally:
            await response.aclose()
        body_headers = {"content-encoding", "content-length", "transfer-encoding"}
        headers = [(name, value) for name, value in response.headers.multi_items() if name not in body_headers]
        return httpx2.Response(
            response.status_code,
            headers=headers,
            content=bytes(body),
            request=response.request,
            extensions=response.extensions,
            history=response.history,
        )


def read_completion(
    response: Any,
    messages: list[Message] | None,
    *,
    price: Price | None = None,
    clean: Callable[[str], str] = str,
) -> Answer:
    """The answer in a chat completion. Usage that is missing or impossible is estimated from the texts.

    Args:
        response: The parsed JSON of any type.
        messages: The request; None where it is not known any more.
        price: Decides the tokens of an image, where they have to be estimated.
        clean: Applied to each text of the server.

    Raises:
        ValueError: It is not a chat completion; the message names the field.

    Example:
        >>> choice = {"message": {"content": "A man."}, "finish_reason": "stop"}
        >>> request = [{"role": "user", "content": "Describe it."}]
        >>> read_completion({"choices": [choice], "usage": {"prompt_tokens": -5, "completion_tokens": 3}}, request)
        Answer(text='A man.', input_tokens=7, output_tokens=3, finish_reason='stop')
    """
    choice = _first_choice(response)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise ValueError("the choice holds no message")
    refusal = _string_field(message, "refusal")
    if not refusal and "content" not in message:
        raise ValueError("the message holds no content")
    text = clean(refusal or _string_field(message, "content"))
    reason = clean(_string_field(choice, "finish_reason"))[:REASON_CHARACTERS]
    usage = response.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    estimate = text_tokens(text)
    written = _plausible(usage.get("completion_tokens"), estimate, estimate * BYTES_PER_TOKEN + SLACK_TOKENS)
    return Answer(
        text=text,
        input_tokens=_input_tokens(usage, messages, price),
        output_tokens=estimate if written is None else written,
        finish_reason="refusal" if refusal else reason or "stop",
    )


def _first_choice(response: Any) -> dict[str, Any]:
    choices = response.get("choices") if isinstance(response, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ValueError("there is no list of choices")
    return choices[0]


def _string_field(values: dict[str, Any], name: str) -> str:
    value = values.get(name)
    if not isinstance(value, str | None):
        raise ValueError(f"{name} is of type {type(value).__name__}, not a string")
    return value or ""


def _input_tokens(usage: dict[str, Any], messages: list[Message] | None, price: Price | None) -> int:
    reported = usage.get("prompt_tokens")
    if messages is None:
        return _plausible(reported, 0, MAX_CONTEXT_TOKENS) or 0
    texts = message_tokens(messages, price, images=False)
    images = sum(not isinstance(message["content"], str) and len(message["content"]) for message in messages)
    counted = _plausible(reported, texts, texts * BYTES_PER_TOKEN + SLACK_TOKENS * (1 + images))
    return message_tokens(messages, price) if counted is None else counted


def _plausible(reported: Any, estimate: int, most: int) -> int | None:
    """The reported tokens if they are plausible: at least a quarter of the estimate, and at most `most`."""
    is_number = isinstance(reported, int | float) and not isinstance(reported, bool)
    return int(reported) if is_number and estimate / BYTES_PER_TOKEN <= reported <= most else None


class MalformedResponseError(Exception):
    """A response that is not a chat completion; `raw` is its body."""

    def __init__(self, raw: str) -> None:
        super().__init__("the response is not a chat completion")
        self.raw = raw


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in {408, 409, 429} or error.status_code >= 500
    return isinstance(error, (openai.APIConnectionError, asyncio.TimeoutError, MalformedResponseError))


def may_be_charged(error: BaseException) -> bool:
    """Whether the server may have charged a request that ended so: it was sent, and its answer was lost on the way."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in GATEWAY_ERRORS
    if isinstance(error, openai.APIConnectionError):
        return not isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
    return isinstance(error, asyncio.CancelledError | ResponseTooLongError)


def hint_for(error: openai.APIStatusError) -> str | None:
    """What the user has to do before any request can succeed; None where other requests may succeed."""
    if error.code in QUOTA_CODES or str(error.type) in QUOTA_CODES:  # the server decides its type
        return "the quota of this account is used up: add credit or raise its limit, then run again"
    if error.code == "context_length_exceeded" or (
        error.status_code in REFUSALS and _mentions(error.message, CONTEXT_WORDS)
    ):
        return "a request is longer than the model's context: choose a model with a longer one or shorter rows"
    return HINTS.get(error.status_code)


def rejected_option(status_code: int, message: str, param: str | None, body: dict[str, Any]) -> str | None:
    """The optional part of the request that the server rejects, if the error names one."""
    if status_code not in REFUSALS:
        return None
    named = [option for option in OPTIONAL_FIELDS if option in body and (param == option or _mentions(message, option))]
    return named[0] if named else None


def retry_after_seconds(error: BaseException | None) -> float:
    """The seconds in the `Retry-After` header, 0 where there is none."""
    if not isinstance(error, openai.APIStatusError):
        return 0.0
    try:
        return float(error.response.headers.get("retry-after", 0))
    except ValueError:
        return 0.0


def _mentions(message: str, words: str) -> bool:
    return re.search(rf"\b({words})\b", message, re.IGNORECASE) is not None
