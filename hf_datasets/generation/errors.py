"""What an error of the server means: stop with a hint, go on without an option, or try again."""

import asyncio
import re
from typing import Any

import httpx2
import openai

from hf_datasets.generation.http_client import ResponseTooLongError

OPTIONAL = ("response_format", "temperature", "seed", "max_completion_tokens")
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
    named = [option for option in OPTIONAL if option in body and (param == option or _mentions(message, option))]
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
