"""VERIFIED's rewritten captions, on which its noise evaluator is trained (listings 7 to 9 of the supplement)."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import BaseModel

from hf_datasets.fig import lexicon
from hf_datasets.fig.parsing import numbered_items
from hf_datasets.fig.prompts import DYNAMIC_NEGATIVES_PROMPT, POSITIVES_PROMPT, STATIC_NEGATIVES_PROMPT
from hf_datasets.fig.tasks import NUM_CANDIDATES, Candidates, as_data, body, check_candidates, numbered
from hf_datasets.generation.task import Message
from hf_datasets.records import Moment, Rejection


@dataclass(frozen=True)
class RewritingTask:
    """Listings 7 to 9: three rewritten captions, for training the noise evaluator; see `rewriting_tasks`."""

    name: str
    prompt: str
    rewrite: Callable[[str], list[str]] = field(repr=False)
    schema: type[BaseModel] | None = None

    def messages(self, row: Moment) -> list[Message]:
        """The instructions with the listing's examples, and the caption as data."""
        content = as_data(original=row.coarse_caption)
        return [{"role": "system", "content": self.prompt}, {"role": "user", "content": content}]

    def parse(self, row: Moment, answer: str) -> Candidates | Rejection:
        """The numbered candidates that differ from the original."""
        return check_candidates(row, numbered_items(answer), answer)

    def write(self, row: Moment) -> str:
        """The rule-based generator's candidates.

        Raises:
            ValueError: No word of the caption is in the word lists.
        """
        candidates = self.rewrite(body(row.coarse_caption))
        if not candidates:
            raise ValueError("the word lists know no word of the caption")
        return numbered([f"{candidate}." for candidate in candidates[:NUM_CANDIDATES]])


def rewriting_tasks() -> dict[str, RewritingTask]:
    """The three rewritings: `positives` (listing 7), `static_negatives` (8) and `dynamic_negatives` (9).

    Example:
        >>> moment = Moment(1, "v", 30.0, 2.0, 9.0, "a person closes the big door.", "", None)
        >>> task = rewriting_tasks()["dynamic_negatives"]
        >>> task.parse(moment, task.write(moment)).captions
        ('a person opens the big door.',)
    """
    return {
        "positives": RewritingTask("fig-positives", POSITIVES_PROMPT, lexicon.same_meaning),
        "static_negatives": RewritingTask("fig-static-negatives", STATIC_NEGATIVES_PROMPT, lexicon.other_things),
        "dynamic_negatives": RewritingTask("fig-dynamic-negatives", DYNAMIC_NEGATIVES_PROMPT, lexicon.other_actions),
    }
