"""A saved small model of each family, made once for all tests of encoders."""

import pytest
import torch
from small_encoders import FAMILIES, save_small

from hf_models.encoders import load_encoder


@pytest.fixture(scope="package")
def folder_of(tmp_path_factory):
    """`folder_of(make)` is the folder with the model that `make` of `small_encoders` makes."""
    root, saved = tmp_path_factory.mktemp("encoders"), {}

    def folder(make):
        if make not in saved:
            saved[make] = save_small(make, root / make.__name__)
        return saved[make]

    return folder


@pytest.fixture(scope="package")
def encoder_of(folder_of):
    """`encoder_of(make)` is its encoder, of 4 frames; `options` as of `load_encoder`."""
    loaded = {}

    def encoder(make, **options):
        key = (make, tuple(options.items()))
        if key not in loaded:
            loaded[key] = load_encoder(folder_of(make), num_frames=4, options=options)
        return loaded[key]

    return encoder


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.inference_mode():
        yield


@pytest.fixture(params=FAMILIES, ids=lambda make: make.__name__)
def family(request):
    """Each family in turn."""
    return request.param
