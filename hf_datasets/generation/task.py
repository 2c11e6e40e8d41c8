"""What a generation task is: messages from a row, a schema for the answer, a parser, a rule-based generator."""

from typing import Any, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel

from hf_datasets.records import Rejection

Row = TypeVar("Row", contravariant=True)
Record = TypeVar("Record", covariant=True)

Message = dict[str, Any]
"""One chat message in the OpenAI form: `role`, and `content` as text or as a list of content parts."""


@runtime_checkable
class Task(Protocol[Row, Record]):
    """One step in which a writer, a chat model or the rule-based one, turns a row into a record.

    `name` identifies the task in caches, cards and logs. `schema` is what a server with structured output must
    keep to; None asks for free text.
    """

    name: str
    schema: type[BaseModel] | None

    def messages(self, row: Row) -> list[Message]:
        """The conversation that asks for this row's record."""
        ...

    def parse(self, row: Row, answer: str) -> Record | Rejection:
        """The validated record in `answer`, or why there is none. Never raises on what a writer wrote."""
        ...

    def write(self, row: Row) -> str:
        """The rule-based generator's answer, in the form that `parse` reads."""
        ...
