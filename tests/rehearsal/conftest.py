"""The drawn data, once for all files that one process runs."""

import pytest

from tests.rehearsal.drawn_data import draw


@pytest.fixture(scope="session")
def drawn(tmp_path_factory):
    """The folder of the data; tests write into copies, or beside it."""
    return draw(tmp_path_factory.mktemp("drawn"))
