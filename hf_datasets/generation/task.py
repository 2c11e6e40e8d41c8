"""The protocol of a generation task: messages of a row, a schema of the answer, a parser, a rule-based generator."""

from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from pydantic import BaseModel

from hf_datasets.records import Rejection

Row_contra = TypeVar("Row_contra", contravariant=True)
Record_co = TypeVar("Record_co", covariant=True)

PromptSet = Literal["own", "paper"]
"""Whose prompts ask: this project's, or those that the papers print."""
Message = dict[str, Any]
"""One chat message in the OpenAI form: `role`, and `content` as text or as a list of content parts."""


def text_part(text: str) -> dict[str, Any]:
    """A text as a content part of a message."""
    return {"type": "text", "text": text}


@runtime_checkable
class Task(Protocol[Row_contra, Record_co]):
    """One step in which a chat model or the rule-based generator turns a row into a record."""

    @property
    def name(self) -> str:
        """What identifies the task in caches, cards and logs."""
        ...

    @property
    def schema(self) -> type[BaseModel] | None:
        """The schema for structured output; None asks for free text."""
        ...

    def messages(self, row: Row_contra) -> list[Message]:
        """The messages that ask for this row's record."""
        ...

    def parse(self, row: Row_contra, answer: str) -> Record_co | Rejection:
        """The validated record in `answer`, or its rejection. No answer may raise an error."""
        ...

    def write(self, row: Row_contra) -> str:
        """The rule-based generator's answer, in the form that `parse` reads."""
        ...
