"""The generation engine against the bare client, on a loopback server in a process of its own."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import openai

from benchmarks.timing import Ratio, interleave
from hf_datasets.generation.cache import AnswerCache
from hf_datasets.generation.generate import generate
from hf_datasets.generation.openai_chat import Limits, OpenAIChat
from hf_datasets.records import Rejection

REQUESTS = 5000
CONCURRENCY = 64
SERVER = Path(__file__).parents[1] / "tests" / "fixtures" / "chat_server.py"


class Caption:
    """A task as cheap as a task can be, so that the engine's own work is what is measured."""

    name = "caption"
    schema = None

    def messages(self, row: int) -> list[dict[str, str]]:
        """Two short messages."""
        return [{"role": "system", "content": "Write a caption."}, {"role": "user", "content": f"clip {row}"}]

    def parse(self, row: int, answer: str) -> str | Rejection:
        """The answer with its row."""
        return f"{row}: {answer}"

    def write(self, row: int) -> str:
        """What the rule-based generator would write."""
        return f"A man opens door {row}."


async def ask_bare(url: str) -> int:
    """All requests with the client alone: no cache, no retries, no parsing, no order."""
    slots = asyncio.Semaphore(CONCURRENCY)
    task = Caption()
    async with openai.AsyncOpenAI(api_key="none", base_url=url, max_retries=0) as client:

        async def ask(row: int) -> str | None:
            async with slots:
                messages = task.messages(row)
                done = await client.chat.completions.create(model="m", messages=messages, max_completion_tokens=1024)
                return done.choices[0].message.content

        return len(await asyncio.gather(*map(ask, range(REQUESTS))))


def measure() -> Iterator[Ratio]:
    if not SERVER.is_file():
        yield Ratio(
            "the generation engine", "the openai client alone", float("nan"), detail="skipped: needs a checkout"
        )
        return
    server = subprocess.Popen([sys.executable, SERVER], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        with tempfile.TemporaryDirectory() as folder:
            yield from compare(url, Path(folder))
    finally:
        server.communicate()


def compare(url: str, folder: Path) -> Iterator[Ratio]:
    numbers = count()
    limits = Limits(max_concurrency=CONCURRENCY)

    def run_engine(path: Path) -> None:
        with AnswerCache(path) as cache:
            chat = OpenAIChat("m", base_url=url, limits=limits)
            outcomes = sum(isinstance(one, str) for one in generate(Caption(), range(REQUESTS), chat, cache))
        if outcomes != REQUESTS:
            raise RuntimeError(f"{outcomes} of {REQUESTS} requests were answered")

    ways = {
        "bare": lambda: asyncio.run(ask_bare(url)),
        "engine": lambda: run_engine(folder / f"{next(numbers)}.sqlite"),
        "again": lambda: run_engine(folder / "0.sqlite"),
    }
    seconds = interleave({"engine": ways["engine"], "bare": ways["bare"], "again": ways["again"]}, rounds=3)
    rate = {name: REQUESTS / value for name, value in seconds.items()}
    yield Ratio(
        f"throughput of the engine, {REQUESTS:,} requests, {CONCURRENCY} at once",
        "the openai client alone",
        seconds["bare"] / seconds["engine"],
        goal=0.8,
        detail=f"{rate['engine']:,.0f} and {rate['bare']:,.0f} requests/s",
    )
    yield Ratio(
        "a finished build run again from its cache",
        "its first run",
        seconds["engine"] / seconds["again"],
        goal=5.0,
        detail=f"{rate['again']:,.0f} rows/s",
    )
