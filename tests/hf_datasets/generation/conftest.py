"""An answer cache for the tests of this folder."""

import pytest

from hf_datasets.generation.cache import AnswerCache


@pytest.fixture
def cache(tmp_path):
    with AnswerCache(tmp_path / "answers.sqlite") as opened:
        yield opened
