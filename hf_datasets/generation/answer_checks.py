"""Checks of an answer that hold for every task: empty, truncated, refused, echoed, in another language."""

import re
from functools import cache

from py3langid.langid import MODEL_FILE, LanguageIdentifier

from hf_datasets.generation.chat import Answer
from hf_datasets.generation.task import Message

LONGEST_ANSWER = 20_000
ECHO_CHARACTERS = 80
"""An answer that repeats this many characters of the instructions, word for word, is an echo."""
ENGLISH = 0.002
"""Minimum probability of English. Of 15,790 real captions, down to two words, none is below 0.005; sentences of three
words or more in ten other languages are all below 0.001."""
REFUSAL = re.compile(
    r"\W*(i\W?m sorry|sorry,|i apologi[sz]e|i can(?:no|\W)t (?:help|assist|comply|provide|do)|i am unable|"
    r"i\W?m (?:unable|not able)|as an ai\b|i won\Wt)",
    re.IGNORECASE,
)
ENDINGS = {
    "length": "truncated: the answer reached the token limit",
    "content_filter": "withheld by the server's content filter",
    "refusal": "refused by the model",
}
EMPTY, REPEATED = "empty answer", "the answer repeats the prompt"


def rejection_reason(messages: list[Message], answer: Answer) -> str | None:
    """Why no task can use this answer, or None.

    Example:
        >>> rejection_reason([], Answer("I'm sorry, I can't help with that."))
        'refused by the model'
        >>> rejection_reason([], Answer("A man opens a door.")) is None
        True
    """
    text = answer.text.strip()
    if answer.finish_reason in ENDINGS:
        return ENDINGS[answer.finish_reason]
    if not text:
        return EMPTY
    if len(text) > LONGEST_ANSWER:
        return f"too long: more than {LONGEST_ANSWER} characters"
    if REFUSAL.match(text):
        return ENDINGS["refusal"]
    if _echoes(messages, text):
        return REPEATED
    return None


def is_about_reply(reason: str) -> bool:
    """Whether a rejection's reason is one of `rejection_reason`: there was a reply, but not one that a task can use.

    Example:
        >>> is_about_reply("empty answer"), is_about_reply("the batch answered without a status")
        (True, False)
    """
    return reason in {*ENDINGS.values(), EMPTY, REPEATED} or reason.startswith("too long: ")


def _echoes(messages: list[Message], text: str) -> bool:
    """Whether the instructions come back; the data of a request may, as where a caption needs no change."""
    instructions = [message["content"] for message in messages if message["role"] == "system"]
    openings = (" ".join(str(content).split())[:ECHO_CHARACTERS] for content in instructions)
    words = " ".join(text.split())
    return any(opening in words for opening in openings if len(opening) == ECHO_CHARACTERS)


@cache
def _identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def is_foreign(text: str) -> bool:
    """Whether a text is certainly not English: mostly not in Latin letters, or its probability of English is too low.

    Example:
        >>> is_foreign("Un homme ouvre la porte dans la cuisine."), is_foreign("A man opens the kitchen door.")
        (True, False)
    """
    letters = [character for character in text if character.isalpha()]
    if sum(character.isascii() for character in letters) < len(letters) / 2:
        return True
    probabilities: dict[str, float] = dict(_identifier().rank(text))
    return probabilities["en"] < ENGLISH
