"""A request to a chat client, the answer or error that comes back, and the key that names the request."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Protocol

from hf_datasets.generation.prices import Meter
from hf_datasets.generation.task import Message, Task


@dataclass(frozen=True, slots=True)
class Request:
    """One question of a task about one row."""

    task: Task[Any, Any]
    row: Any
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the text as it was, its price in tokens, and why it ended (`stop`, `length`, `refusal`, ...)."""

    text: str
    input_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str = "stop"


class NoAnswerError(Exception):
    """One request found no answer within its bounds; its row is rejected and the others go on.

    Args:
        reason: Why, in words for a report.
        raw: What the server sent, as far as it sent something.
        passing: Whether the same request may find an answer in a later run.
    """

    def __init__(self, reason: str, raw: str = "", *, passing: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.raw = raw
        self.passing = passing


class GenerationStoppedError(Exception):
    """No further request makes sense (key, quota, budget, context length); what was answered is kept."""


class Chat(Protocol):
    """A client that answers requests.

    `model` and `sampling` are what the answers depend on beside the messages, so they enter the cache key.
    `window` is how many rows may be under way at once; `keeps_answers` whether its answers are worth a cache.
    """

    model: str
    sampling: dict[str, Any]
    window: int
    keeps_answers: bool
    meter: Meter

    async def answer(self, request: Request) -> Answer:
        """The answer; raises NoAnswerError for this request alone, GenerationStoppedError for all."""
        ...


def without_images(messages: list[Message]) -> list[Message]:
    """The messages with each image replaced by the hash of its data: short, and as good a key."""
    return [
        message
        if isinstance(message["content"], str)
        else message | {"content": [_hashed(p) for p in message["content"]]}
        for message in messages
    ]


def _hashed(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") != "image_url":
        return part
    image = part["image_url"]
    return part | {"image_url": image | {"url": "sha256:" + hashlib.sha256(image["url"].encode()).hexdigest()}}


def request_key(request: Request, chat: Chat) -> str:
    """The SHA-256 that names a request: its messages, schema, image hashes, the model and its sampling.

    Nothing of this project's code is in it, so answers survive an edit that leaves the question as it was.
    """
    schema = request.task.schema
    asked = {
        "messages": without_images(request.messages),
        "schema": schema.model_json_schema() if schema else None,
        "model": chat.model,
        "sampling": chat.sampling,
    }
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
