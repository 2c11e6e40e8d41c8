"""VERIFIED's rewritten captions, on which its noise evaluator is trained (listings 7 to 9 of the supplement)."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hf_datasets.fig import lexicon
from hf_datasets.fig.parsing import numbered_items
from hf_datasets.fig.tasks import NUM_CANDIDATES, Candidates, PromptedTask, body, check_candidates, numbered
from hf_datasets.generation.task import Message, PromptSet
from hf_datasets.records import Moment, Rejection


@dataclass(frozen=True)
class RewritingTask(PromptedTask):
    """Listings 7 to 9: three rewritten captions, for training the noise evaluator; see `rewriting_tasks`."""

    rewrite: Callable[[str], list[str]] = field(repr=False)

    def messages(self, row: Moment) -> list[Message]:
        """The instructions with the listing's examples, and the caption."""
        return self.ask(original=row.coarse_caption)

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


def rewriting_tasks(prompts: PromptSet = "own") -> dict[str, RewritingTask]:
    """The three rewritings: `positives` (listing 7), `static_negatives` (8) and `dynamic_negatives` (9).

    Example:
        >>> moment = Moment(1, "v", 30.0, 2.0, 9.0, "a person closes the big door.", "", None)
        >>> task = rewriting_tasks()["dynamic_negatives"]
        >>> task.parse(moment, task.write(moment)).captions
        ('a person opens the big door.',)
    """
    rewrites = {
        "positives": lexicon.same_meaning,
        "static_negatives": lexicon.other_things,
        "dynamic_negatives": lexicon.other_actions,
    }
    return {
        kind: RewritingTask(rewrite, name=f"fig-{kind.replace('_', '-')}", prompts=prompts)
        for kind, rewrite in rewrites.items()
    }
