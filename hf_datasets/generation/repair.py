"""JSON of requests and answers: data as an object; an object in a code fence or slightly broken, and a text in it."""

import json
from typing import Any

from json_repair import repair_json

FENCE = "```"
MAX_BRACKETS = 200
"""An answer has a handful; repairing a text with many takes seconds."""


def as_data(**values: Any) -> str:
    """Values as a JSON object, so that a model takes captions as data and not as instructions.

    Example:
        >>> as_data(caption="A man runs.", seconds=2.5)
        '{"caption": "A man runs.", "seconds": 2.5}'
    """
    return json.dumps(values, ensure_ascii=False)


def without_fence(text: str) -> str:
    r"""The contents of the first code fence of a text, or the whole text where it has none.

    Example:
        >>> without_fence("Sure:\n```json\n{}\n```"), without_fence(" plain ")
        ('{}', 'plain')
    """
    _, fence, rest = text.partition(FENCE)
    inside, end, _ = rest.partition(FENCE)
    return (inside.removeprefix("json") if fence and end else text).strip()


def read_object(text: str) -> dict[str, Any] | None:
    r"""The JSON object in an answer, fenced, among other words or slightly broken; None where there is none.

    Example:
        >>> read_object('Sure: {"a": "b" "c": "d",}')
        {'a': 'b', 'c': 'd'}
        >>> read_object("no object") is None, read_object("{" * 10_000) is None
        (True, True)
    """
    start = text.find("{")
    if start < 0 or sum(map(text.count, "{[(")) > MAX_BRACKETS:
        return None
    try:
        found = repair_json(text[start:], return_objects=True)
    except Exception:  # json_repair fails on some texts: nesting too deep, a fence where a key is expected
        return None
    return found if isinstance(found, dict) else None


def read_text(answer: str, name: str) -> str | None:
    """The text under a name in an answer's JSON, see `read_object`; None where there is none.

    Example:
        >>> read_text('{"caption": " Split jump. "}', "caption"), read_text('{"caption": 3}', "caption")
        ('Split jump.', None)
    """
    value = (read_object(without_fence(answer)) or {}).get(name)
    return value.strip() if isinstance(value, str) else None
