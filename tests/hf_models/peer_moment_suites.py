"""XML, ReLoCLNet and HERO in transformers' common suites; `test_peers.py` runs this file among them."""

import unittest

import torch

from hf_models import (
    HEROConfig,
    HEROForMomentRetrieval,
    ReLoCLNetConfig,
    ReLoCLNetForMomentRetrieval,
    XMLConfig,
    XMLForMomentRetrieval,
)

from .peer_attention import ComparesAttention
from .test_configuration_common import ConfigTester
from .test_modeling_common import ModelTesterMixin, floats_tensor, ids_tensor


class MomentModelTester:
    """Sizes and inputs that the suite asks for."""

    is_training = True
    batch_size = 2
    query_length = 5
    seq_length = 7
    hidden_size = 32
    num_attention_heads = 4
    num_hidden_states_types = 2  # of the videos and of the queries
    sizes = {"video_feature_size": 12, "hidden_size": 32, "num_attention_heads": 4}  # noqa: RUF012
    certain = {"hidden_dropout": 0.0, "input_dropout": 0.0}  # noqa: RUF012 (the suite compares two runs)

    def __init__(self, config_class, num_hidden_layers, **fields):
        self.config_class = config_class
        self.num_hidden_layers = num_hidden_layers  # of the video
        self.fields = {**self.sizes, **self.certain, **fields}

    def get_config(self):
        return self.config_class(**self.fields)

    def prepare_config_and_inputs_for_common(self):
        config = self.get_config()
        query_mask = torch.ones(self.batch_size, self.query_length, dtype=torch.long)
        query_mask[-1, -2:] = 0
        video_mask = torch.ones(self.batch_size, self.seq_length, dtype=torch.long)
        video_mask[-1, -1:] = 0
        if config.query_feature_size is None:
            query = ids_tensor([self.batch_size, self.query_length], config.vocab_size - 2) + 2
        else:
            query = floats_tensor([self.batch_size, self.query_length, config.query_feature_size])
        inputs = {"query_features": query, "query_mask": query_mask, "video_mask": video_mask}
        shape = [self.batch_size, self.seq_length, config.video_feature_size]
        inputs["video_features"] = floats_tensor(shape)
        if config.subtitle_feature_size is not None:
            inputs["subtitle_features"] = floats_tensor([*shape[:2], config.subtitle_feature_size])
        return config, inputs


class MomentSuite(ComparesAttention, ModelTesterMixin):
    """What the three have in common."""

    additional_model_inputs = ["query_mask", "video_features", "video_mask", "subtitle_features"]  # noqa: RUF012
    test_can_init_all_missing_weights_before_2023 = True  # which the suite takes every foreign class for
    test_resize_embeddings = False  # they read features, but for HERO, whose tokens are not where the suite looks

    @staticmethod
    def compared(output):
        return output.start_logits.masked_fill(output.start_logits < -1e9, 0)  # padding; it would widen tolerances

    def setUp(self):
        super().setUp()
        self.config_tester = ConfigTester(
            self,
            config_class=self.model_tester.config_class,
            has_text_modality=False,
            common_properties=["hidden_size", "num_attention_heads"],
            **self.model_tester.fields,
        )

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels:
            inputs["start_positions"] = torch.tensor([1, 2])
            inputs["end_positions"] = torch.tensor([3, 4])
        return inputs

    def test_config(self):
        self.config_tester.run_common_tests()


class XMLTest(MomentSuite, unittest.TestCase):
    """With subtitles, whose layers attend to each other."""

    all_model_classes = (XMLForMomentRetrieval,)
    model_tester = MomentModelTester(XMLConfig, num_hidden_layers=6, query_feature_size=10, subtitle_feature_size=9)


class ReLoCLNetTest(MomentSuite, unittest.TestCase):
    """Of video only."""

    all_model_classes = (ReLoCLNetForMomentRetrieval,)
    model_tester = MomentModelTester(ReLoCLNetConfig, num_hidden_layers=4, query_feature_size=10)


class HEROTest(MomentSuite, unittest.TestCase):
    """Of video only, with queries of tokens."""

    all_model_classes = (HEROForMomentRetrieval,)
    model_tester = MomentModelTester(
        HEROConfig,
        num_hidden_layers=2,
        num_cross_modal_layers=1,
        num_temporal_layers=1,
        intermediate_size=37,
        vocab_size=50,
        max_position_embeddings=40,
        span_loss_probability=1.0,
    )
    model_tester.encoder_seq_length = 8  # the first layers read a token of text behind the clips
