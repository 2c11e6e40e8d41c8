"""Mangled cards: published, or refused in one line that names the file."""

import random
from pathlib import Path

import datasets
import pytest
from mutations import mangled_text
from odd_values import LONG_RUN

from hf_datasets.publishing.cards import card_text
from hf_datasets.publishing.shards import WrittenSplit

COLUMNS = datasets.Features({"n": datasets.Value("int64")})
SPLITS = {("mini", "train"): WrittenSplit(num_rows=3, num_bytes=24, download_size=99, num_shards=1, features=COLUMNS)}
CARD = Path(__file__).parents[2] / "hf_datasets" / "tfcovr" / "README.md"


def fuzz(folder, seed, times):
    original, path, rng = CARD.read_text(encoding="utf-8"), folder / "README.md", random.Random(seed)
    for _ in range(times):
        path.write_bytes(mangled_text(rng, original[: original.index("\n---\n", 4) + 400]))
        path.write_bytes(path.read_bytes() + original[-3000:].encode())
        outcome = published(path)
        assert outcome.startswith("---\n") or (str(path) in outcome and len(outcome.splitlines()) == 1)


def published(card):
    """The card as it would be published, or why it is not."""
    try:
        return card_text(card, SPLITS, provenance={"command": "build"}, rejections=[])
    except ValueError as error:
        return str(error)


def test_a_mangled_card_is_published_or_refused_in_one_line(tmp_path):
    fuzz(tmp_path, "short", 100)


@pytest.mark.hostile
@pytest.mark.timeout(0)
def test_many_mangled_cards_are_published_or_refused_in_one_line(tmp_path, record_property):
    record_property("inputs", LONG_RUN // 8)
    fuzz(tmp_path, "long", LONG_RUN // 8)
