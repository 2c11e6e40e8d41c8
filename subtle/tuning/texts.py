"""Whether the base's text encoder reads the texts of the changes as a whole."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
from transformers import AutoTokenizer
from transformers.utils import logging

from hf_models.tfcovr.processing_tfcovr import MAX_TOKENS


def texts_of(dataset: Path) -> list[str]:
    """All texts of a dataset that `build.py tfcovr` wrote."""
    found = pl.read_parquet(dataset / "own" / "*.parquet", columns=["modification_text"])
    return sorted(set(found["modification_text"]))


def cut_texts(base: str, texts: Sequence[str]) -> str | None:
    """How many texts are longer than the text encoder reads, and what to do; None where there is none."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    most = min(MAX_TOKENS, tokenizer.model_max_length)
    logging.set_verbosity_error()  # it warns of the first long one
    lengths = [len(tokens) for tokens in tokenizer(list(texts))["input_ids"]]
    cut = sum(length > most for length in lengths)
    if not cut:
        return None
    read = tokenizer(list(texts), truncation=True, max_length=most)["input_ids"]
    same = len(texts) - len(set(map(tuple, read)))
    alike = f", and {same} of them then read like another" if same else ""
    return (
        f"{cut} of {len(texts)} texts are longer than the {most} tokens that {Path(base).name} reads (the longest has "
        f"{max(lengths)}): their end is cut{alike}; shorten the labels in a column description, or give a --base that "
        "knows their language"
    )
