"""Reading a chat completion: each field is checked, because a server may send anything."""

from collections.abc import Callable
from typing import Any

from hf_datasets.generation.chat import Answer
from hf_datasets.generation.prices import BYTES_PER_TOKEN, Price, message_tokens, text_tokens
from hf_datasets.generation.task import Message

SLACK_TOKENS = 20_000
"""The most that a chat template, an image or hidden reasoning may add to the tokens of the texts."""
MAX_CONTEXT_TOKENS = 10_000_000
"""More than any model reads or writes at once."""
REASON_CHARACTERS = 100


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
    choice = _first(response)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise ValueError("the choice holds no message")
    refusal = _text(message, "refusal")
    if not refusal and "content" not in message:
        raise ValueError("the message holds no content")
    text = clean(refusal or _text(message, "content"))
    reason = clean(_text(choice, "finish_reason"))[:REASON_CHARACTERS]
    usage = response.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return Answer(
        text=text,
        input_tokens=_input_tokens(usage, messages, price),
        output_tokens=_output_tokens(usage, text),
        finish_reason="refusal" if refusal else reason or "stop",
    )


def _first(response: Any) -> dict[str, Any]:
    choices = response.get("choices") if isinstance(response, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ValueError("there is no list of choices")
    return choices[0]


def _text(values: dict[str, Any], name: str) -> str:
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


def _output_tokens(usage: dict[str, Any], text: str) -> int:
    texts = text_tokens(text)
    counted = _plausible(usage.get("completion_tokens"), texts, texts * BYTES_PER_TOKEN + SLACK_TOKENS)
    return texts if counted is None else counted


def _plausible(reported: Any, estimate: int, most: int) -> int | None:
    """The reported tokens if they are plausible: at least a quarter of the estimate, and at most `most`."""
    is_number = isinstance(reported, int | float) and not isinstance(reported, bool)
    return int(reported) if is_number and estimate / BYTES_PER_TOKEN <= reported <= most else None
