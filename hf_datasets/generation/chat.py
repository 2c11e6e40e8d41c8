"""What a chat client is: requests to it, the answers or errors that come back, and the keys that name requests."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Protocol

from hf_datasets.generation.prices import Meter
from hf_datasets.generation.task import Message, Task


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a task about one row."""

    task: Task[Any, Any]
    row: Any
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: its text as received, its tokens, and why it ended (`stop`, `length`, `refusal`, ...)."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str = "stop"


class NoAnswerError(Exception):
    """One request got no answer within its limits; its row is rejected and the others go on.

    Args:
        reason: Why, in words for a report.
        raw: What the server sent, empty if nothing.
        passing: Whether the same request may get an answer in a later run.
    """

    def __init__(self, reason: str, raw: str = "", *, passing: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.raw = raw
        self.passing = passing


class GenerationStoppedError(Exception):
    """No further request can succeed (key, quota, budget, context length); the answers so far are kept."""


class Chat(Protocol):
    """A client that answers requests.

    `model` and `sampling` decide the answers together with the messages, so they are part of the cache key.
    `window` is the number of rows in progress at once; `keeps_answers` says whether answers are cached.
    """

    model: str
    sampling: dict[str, Any]
    window: int
    keeps_answers: bool
    meter: Meter

    async def answer(self, request: Request) -> Answer:
        """The answer; raises NoAnswerError for this request alone, GenerationStoppedError for the run."""
        ...


def without_images(messages: list[Message]) -> list[Message]:
    """The messages with each image replaced by the hash of its data, which makes a short key."""
    return [
        message
        if isinstance(message["content"], str)
        else message | {"content": [_hashed(part) for part in message["content"]]}
        for message in messages
    ]


def _hashed(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") != "image_url":
        return part
    image = part["image_url"]
    return part | {"image_url": image | {"url": "sha256:" + hashlib.sha256(image["url"].encode()).hexdigest()}}


def request_key(request: Request, chat: Chat) -> str:
    """The SHA-256 that names a request: its messages, schema, image hashes, the model and its sampling.

    It depends on no code of this project, so cached answers stay valid as long as the request stays the same.
    """
    schema = request.task.schema
    content = {
        "messages": without_images(request.messages),
        "schema": schema.model_json_schema() if schema else None,
        "model": chat.model,
        "sampling": chat.sampling,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
