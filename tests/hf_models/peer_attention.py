"""Make the suite's comparison of eager attention and SDPA cover every attention of a model, and check that it does."""

import functools
from unittest import mock

import pytest
import torch

from .test_modeling_common import _test_eager_matches_sdpa_inference

ABOUT_ATTENTION = ("sdpa", "flash", "attn_implementation", "set_attention_dynamically")


def fill_zeros(model):
    """Give adapters that start at zero an effect, so that a change of their inputs shows in the output."""
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_meta and not parameter.any():
                parameter.normal_(std=0.2)


def compared_by(model_class, select):
    """The class, with one output under a name by which the suite compares models."""

    class Compared(model_class):
        _auto_class = None  # its code does not travel with saved weights

        def __init__(self, config):
            super().__init__(config)
            fill_zeros(self)

        @functools.wraps(model_class.forward)
        def forward(self, *args, **inputs):
            return {"logits_per_text": select(super().forward(*args, **inputs))}

    Compared.__name__ = model_class.__name__
    return Compared


class ComparesAttention:
    """For a test class of models that declare SDPA."""

    maps_in_towers = False  # else attention maps are beside the other outputs, where the suite looks for them

    @staticmethod
    def compared(output):
        """The output to compare, which must depend on every attention."""
        raise NotImplementedError

    def setUp(self):
        super().setUp()
        about_attention = any(word in self._testMethodName for word in ABOUT_ATTENTION)
        self.has_attentions = about_attention or not self.maps_in_towers
        if "eager_matches_sdpa" in self._testMethodName or "sdpa_that_is_wrong" in self._testMethodName:
            self.all_model_classes = tuple(compared_by(one, self.compared) for one in self.all_model_classes)

    def compare(self, wrong=None):
        """Run the suite's comparison, where the attention of this number is wrong, and count both kinds' calls."""
        sdpa, softmax = torch.nn.functional.scaled_dot_product_attention, torch.nn.functional.softmax
        calls = {"sdpa": 0, "eager": 0}

        def counted_sdpa(*args, **options):
            calls["sdpa"] += 1
            read = sdpa(*args, **options)
            if calls["sdpa"] - 1 != wrong:
                return read
            # Neither a shift nor a factor, which a normalization would take back.
            return read + 10 * torch.linspace(0, 1, read.shape[-1], device=read.device) ** 2

        def counted_softmax(*args, **options):
            calls["eager"] += 1
            return softmax(*args, **options)

        with (
            mock.patch("torch.nn.functional.scaled_dot_product_attention", counted_sdpa),
            mock.patch("torch.nn.functional.softmax", counted_softmax),
        ):
            _test_eager_matches_sdpa_inference(self, "", "fp32", "left", False, False, False)
        return calls

    def test_an_sdpa_that_is_wrong_in_any_attention_fails_the_comparison(self):
        calls = self.compare()
        assert calls["sdpa"] == calls["eager"] > 0  # else one of the models ran the other's code
        for wrong in range(calls["sdpa"]):
            with pytest.raises(ValueError, match="mean relative difference"):
                self.compare(wrong)
