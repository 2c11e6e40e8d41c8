"""The cost of requests: tokens of messages, dollars of tokens, and the meter that adds them up."""

import base64
import hashlib
import io
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from hf_datasets.generation.task import Message, text_part

BYTES_PER_TOKEN = 4
"""UTF-8 bytes per token, the usual rule for English; captions have 4.2 to 4.6, so this overestimates the cost."""
MESSAGE_TOKENS = 4
"""Tokens that frame one chat message."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens, tokens per image, and the date of the price."""

    model: str
    input_usd: float
    output_usd: float
    image_base: int = 85
    image_tile: int = 170
    as_of: str = "given by the user"

    def usd(self, input_tokens: float, output_tokens: float) -> float:
        """Dollars for that many tokens."""
        return (input_tokens * self.input_usd + output_tokens * self.output_usd) / 1e6


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_name("prices.json").read_text(encoding="utf-8"))
    return table


def price_of(model: str, *, batch: bool = False) -> Price | None:
    """The listed price of a model, dated versions and provider prefixes included; None where it is not listed.

    Args:
        model: A name such as `gpt-4o`, `gpt-4o-2024-08-06` or `openai/gpt-4o`.
        batch: Whether the requests go through the Batch API, at half the price.

    Example:
        >>> price_of("gpt-4o-2024-08-06").usd(1_000_000, 0)
        2.5
        >>> price_of("a-local-model") is None
        True
    """
    name = model.rsplit("/", 1)[-1]
    dated = [listed for listed in _table()["models"] if name == listed or _is_version_of(name, listed)]
    if not dated:
        return None
    entry = _table()["models"][max(dated, key=len)]
    factor = _table()["batch_factor"] if batch else 1.0
    return Price(
        model=model,
        input_usd=entry["input"] * factor,
        output_usd=entry["output"] * factor,
        image_base=entry["image_base"],
        image_tile=entry["image_tile"],
        as_of=_table()["as_of"],
    )


def _is_version_of(name: str, listed: str) -> bool:
    rest = name.removeprefix(listed)
    return rest != name and rest.startswith("-") and rest[1:5].isdigit()


def num_bytes(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text.encode("utf-8", errors="replace"))


def text_tokens(text: str) -> int:
    """Estimated tokens of a text: its UTF-8 bytes over four, rounded up."""
    return math.ceil(num_bytes(text) / BYTES_PER_TOKEN)


def image_tokens(url: str, price: Price | None) -> int:
    """Estimated tokens of an image by the tile rule: within 2048 pixels, short side 768, then 512-pixel tiles."""
    base, tile = (price.image_base, price.image_tile) if price else (85, 170)
    try:
        with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
            width, height = image.size
    except (OSError, ValueError):
        return base + 4 * tile  # an address, or data in an unknown format: assume a square of 768 pixels
    scale = min(1.0, 2048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    return base + tile * math.ceil(width * scale / 512) * math.ceil(height * scale / 512)


def message_tokens(
    messages: list[Message],
    price: Price | None = None,
    count: Callable[[str], int] = text_tokens,
    *,
    images: bool = True,
) -> int:
    """Input tokens of a conversation, images included by estimate, unless they are left out, and texts by `count`.

    Example:
        >>> message_tokens([{"role": "user", "content": "Describe it."}])
        7
    """
    total = 0
    for message in messages:
        content = message["content"]
        parts: list[dict[str, Any]] = [text_part(content)] if isinstance(content, str) else content
        total += MESSAGE_TOKENS
        for part in parts:
            if part["type"] == "image_url":
                total += image_tokens(part["image_url"]["url"], price) if images else 0
            else:
                total += count(part["text"])
    return total


@dataclass(slots=True)
class Meter:
    """Counts of a run so far: requests sent, answers found in the cache, tokens, prompts.

    `lost_usd` is what requests cost at most whose answers did not arrive whole: the server may have charged them.
    `unanswered` counts the rows whose request got no answer but may get one later, such as when the server is down.
    `prompts` holds, by task and SHA-256, the text of every set of instructions that was used.
    """

    price: Price | None = None
    requests: int = 0
    cached: int = 0
    unanswered: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    lost_usd: float = 0.0
    prompts: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def usd(self) -> float | None:
        """Dollars spent in this run; None where the model has no price."""
        return self.price.usd(self.input_tokens, self.output_tokens) + self.lost_usd if self.price else None

    def note_prompt(self, task_name: str, messages: list[Message], template: str = "") -> None:
        """Record a task's instructions: its system messages, or the template that a row fills in."""
        text = template or "\n".join(str(message["content"]) for message in messages if message["role"] == "system")
        known = self.prompts.setdefault(task_name, {})
        if text not in known.values():
            known[hashlib.sha256(text.encode()).hexdigest()] = text
