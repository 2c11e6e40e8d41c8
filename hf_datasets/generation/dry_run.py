"""An estimate of the requests and the cost of a run: the same pipeline with a client that only counts."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from tokenizers import Tokenizer

from hf_datasets.generation.chat import Answer, NoAnswerError, Request
from hf_datasets.generation.generate import QUOTED_CHARACTERS
from hf_datasets.generation.openai_chat import Sampling
from hf_datasets.generation.prices import BYTES_PER_TOKEN, Meter, Price, message_tokens, text_tokens

REPAIR_TOKENS = 40
"""Tokens of the request to answer again."""


class DryRun:
    """A client that counts requests and tokens; the rule-based generator answers, so that later steps are counted, too.

    It uses no network and writes nothing to the cache; answers already in the cache are used and cost nothing.
    `meter` holds the low estimate: one answer per row, as short as that of the rule-based generator. `high` holds an
    upper bound that only images can exceed: `max_answers` requests per row, each answer at its token limit.

    Args:
        model: As for `OpenAIChat`.
        sampling: As for `OpenAIChat`.
        price: Dollars per token; None leaves the dollars out.
        max_answers: As for `generate`.

    Example:
        >>> from hf_datasets.generation.prices import price_of
        >>> DryRun("gpt-4o", Sampling(), price=price_of("gpt-4o")).tokenizer
        'estimate: UTF-8 bytes / 4'
    """

    window = 64
    keeps_answers = False

    def __init__(self, model: str, sampling: Sampling, *, price: Price | None, max_answers: int = 2) -> None:
        self.model = model
        self.sampling = sampling.options()
        self.meter = Meter(price)
        self.high = Meter(price)
        self._max_answers = max_answers
        self._written: Counter[str] = Counter()
        self._written_tokens: Counter[str] = Counter()
        self.tokenizer, self._count = tokenizer_of(model)

    async def answer(self, request: Request) -> Answer:
        """The rule-based generator's answer, counted as if a server had sent it.

        Raises:
            NoAnswerError: The rule-based generator has none; the request is counted nevertheless, with an answer as
                long as those before it on average.
        """
        prompt_tokens = message_tokens(request.messages, self.meter.price, self._count)
        limit = self.sampling["max_completion_tokens"]
        again = min(limit, QUOTED_CHARACTERS // BYTES_PER_TOKEN) + REPAIR_TOKENS
        self.meter.requests += 1
        self.meter.input_tokens += prompt_tokens
        self.high.requests += self._max_answers
        self.high.input_tokens += sum(prompt_tokens + number * again for number in range(self._max_answers))
        self.high.output_tokens += self._max_answers * limit
        try:
            text = request.task.write(request.row)
        except ValueError as error:
            written = self._written[request.task.name]
            self.meter.output_tokens += self._written_tokens[request.task.name] // written if written else 0
            raise NoAnswerError(f"the rule-based generator has no answer ({error})") from None
        tokens = self._count(text)
        self._written[request.task.name] += 1
        self._written_tokens[request.task.name] += tokens
        self.meter.output_tokens += tokens
        return Answer(text)


def tokenizer_of(model: str) -> tuple[str, Callable[[str], int]]:
    """How tokens are counted for a model: with its own tokenizer where this machine has it, else by an estimate.

    Args:
        model: A folder, a name on the Hub, of which only the local cache is searched, or any other name.

    Returns:
        A description of the count, and the function that counts.
    """
    file = Path(model) / "tokenizer.json"
    found = str(file) if file.is_file() else None
    if found is None and model.count("/") == 1 and not model.startswith("/"):
        found = try_to_load_from_cache(model, "tokenizer.json")
    if not isinstance(found, str):
        return f"estimate: UTF-8 bytes / {BYTES_PER_TOKEN}", text_tokens
    tokenizer = Tokenizer.from_file(found)
    return f"the tokenizer of {model}", lambda text: len(tokenizer.encode(text).ids)
