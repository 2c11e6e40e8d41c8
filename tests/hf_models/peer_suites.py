"""AIM, VidCLIP and TF-CoVR in transformers' common suites; `test_peers.py` runs this file among them."""

import unittest

import torch
from transformers import AutoModelForVideoClassification, BertConfig

from hf_models import (
    AIMConfig,
    AIMForVideoClassification,
    AIMModel,
    FactoredCoVRConfig,
    FactoredCoVRForComposedRetrieval,
    TFCoVRConfig,
    TFCoVRForComposedRetrieval,
    VidCLIPConfig,
    VidCLIPMatcher,
    VidCLIPMatcherConfig,
    VidCLIPModel,
)

from .peer_attention import ComparesAttention
from .test_configuration_common import ConfigTester
from .test_modeling_common import ModelTesterMixin, floats_tensor, ids_tensor


class AIMModelTester:
    """Sizes and inputs that the suite asks for."""

    is_training = True
    batch_size = 2
    num_frames = 4
    num_labels = 3
    image_size = 16
    patch_size = 8
    num_channels = 3
    seq_length = 5
    hidden_size = 32
    num_hidden_layers = 2
    num_attention_heads = 4

    def get_config(self):
        return AIMConfig(
            num_frames=self.num_frames,
            image_size=self.image_size,
            patch_size=self.patch_size,
            hidden_size=self.hidden_size,
            intermediate_size=37,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            num_labels=self.num_labels,
            drop_path_rate=0.0,
            classifier_dropout=0.0,
        )

    def prepare_config_and_inputs_for_common(self):
        shape = [self.batch_size, self.num_frames, self.num_channels, self.image_size, self.image_size]
        return self.get_config(), {"pixel_values": floats_tensor(shape)}


class AIMModelTest(ComparesAttention, ModelTesterMixin, unittest.TestCase):
    all_model_classes = (AIMModel, AIMForVideoClassification)
    test_can_init_all_missing_weights_before_2023 = True  # which the suite takes every foreign class for
    test_resize_embeddings = False

    @staticmethod
    def compared(output):
        return output["logits" if "logits" in output else "pooler_output"]

    def setUp(self):
        super().setUp()
        self.model_tester = AIMModelTester()
        sizes = {"hidden_size": 32, "num_attention_heads": 4}
        self.config_tester = ConfigTester(self, config_class=AIMConfig, has_text_modality=False, **sizes)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        # The suite knows the library's classes by name; ours is not in its list.
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels and model_class is AutoModelForVideoClassification._model_mapping[AIMConfig]:
            inputs["labels"] = torch.arange(self.model_tester.batch_size)
        return inputs

    def test_config(self):
        self.config_tester.run_common_tests()

    def test_model_get_set_embeddings(self):
        # As in the library's own tests of CLIP: what embeds a picture is a convolution.
        for model_class in self.all_model_classes:
            model = model_class(self.model_tester.get_config())
            assert isinstance(model.get_input_embeddings(), torch.nn.Conv2d)


class AIMTrainingTest(AIMModelTest):
    """The tests that need a loss, which an encoder does not have: for the classifier alone."""

    all_model_classes = (AIMForVideoClassification,)


for name in dir(AIMModelTest):
    if name.startswith("test_") and callable(getattr(AIMModelTest, name)):  # the others are switches
        needs_loss = name.startswith("test_training")
        setattr(AIMModelTest if needs_loss else AIMTrainingTest, name, None)


class RecurrentAIMTester(AIMModelTester):
    """The same with an order of frames and labels that share factors."""

    def get_config(self):
        config = super().get_config().to_dict()
        return AIMConfig(**config | {"temporal_pooling": "gru", "label_factors": [["a"], ["b"], ["a", "b"]]})


class RecurrentAIMTest(AIMModelTest):
    def setUp(self):
        super().setUp()
        self.model_tester = RecurrentAIMTester()


class VidCLIPModelTester:
    """Sizes and inputs that the suite asks for."""

    is_training = True
    batch_size = 2
    num_frames = 3
    image_size = 16
    num_channels = 3
    seq_length = 7
    vocab_size = 50
    small = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4}  # noqa: RUF012

    def get_config(self):
        text = {"vocab_size": self.vocab_size, "eos_token_id": 49, "bos_token_id": 48, "pad_token_id": 0}
        return VidCLIPConfig(
            vision_config={**self.small, "image_size": self.image_size, "patch_size": 8},
            text_config={**self.small, **text, "max_position_embeddings": 16},
            projection_dim=24,
            num_frames=self.num_frames,
            num_pooler_queries=5,
            loss="clip",  # the one that needs no negatives
            logit_scale_init_value=0.0,  # the suite's tolerances are for values of this size
        )

    def prepare_config_and_inputs_for_common(self):
        shape = [self.batch_size, self.num_frames, self.num_channels, self.image_size, self.image_size]
        input_ids = ids_tensor([self.batch_size, self.seq_length], self.vocab_size - 2)
        input_ids[:, -1] = self.vocab_size - 1
        inputs = {"pixel_values": floats_tensor(shape), "input_ids": input_ids}
        return self.get_config(), inputs | {"attention_mask": torch.ones_like(input_ids)}


class VidCLIPModelTest(ComparesAttention, ModelTesterMixin, unittest.TestCase):
    all_model_classes = (VidCLIPModel,)
    additional_model_inputs = ["input_ids", "attention_mask"]  # noqa: RUF012
    test_can_init_all_missing_weights_before_2023 = True
    maps_in_towers = True
    _is_composite = True

    @staticmethod
    def compared(output):
        return output.logits_per_text

    def setUp(self):
        super().setUp()
        self.model_tester = VidCLIPModelTester()
        sizes = {"projection_dim": 24, "num_frames": 4}
        self.config_tester = ConfigTester(
            self, config_class=VidCLIPConfig, has_text_modality=False, common_properties=[], **sizes
        )

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels:
            inputs["return_loss"] = True
        return inputs

    def _video_features_prepare_config_and_inputs(self):
        config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
        return config, {"pixel_values": inputs["pixel_values"]}

    def test_config(self):
        self.config_tester.run_common_tests()


class VidCLIPMatcherTester(VidCLIPModelTester):
    """The same with a head, whose objectives take groups of texts rather than labels."""

    is_training = False

    def get_config(self):
        return VidCLIPMatcherConfig(vidclip_config=super().get_config(), num_matching_layers=1)


class VidCLIPMatcherTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (VidCLIPMatcher,)
    additional_model_inputs = ["input_ids", "attention_mask"]  # noqa: RUF012
    test_can_init_all_missing_weights_before_2023 = True
    test_resize_embeddings = False
    has_attentions = False  # attention maps are in the outputs of the towers
    _is_composite = True

    def setUp(self):
        super().setUp()
        self.model_tester = VidCLIPMatcherTester()
        self.config_tester = ConfigTester(
            self,
            config_class=VidCLIPMatcherConfig,
            has_text_modality=False,
            common_properties=[],
            num_matching_layers=3,
        )

    def test_config(self):
        self.config_tester.run_common_tests()


class TFCoVRModelTester:
    """Sizes and inputs that the suite asks for."""

    is_training = True
    batch_size = 2
    num_frames = 3
    image_size = 16
    num_channels = 3
    seq_length = 7
    vocab_size = 50
    small = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4}  # noqa: RUF012

    def get_config(self):
        sizes = {"image_size": self.image_size, "patch_size": 8, "num_frames": self.num_frames}
        certain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return TFCoVRConfig(
            vision_config=AIMConfig(**self.small, **sizes, drop_path_rate=0.0),
            text_config=BertConfig(**self.small, **certain, vocab_size=self.vocab_size),
            projection_dim=24,
            fusion_hidden_dim=16,
            fusion_dropout=0.0,
            temperature=1.0,  # the suite's tolerances are for values of this size
        )

    def prepare_config_and_inputs_for_common(self):
        shape = [self.batch_size, self.num_frames, self.num_channels, self.image_size, self.image_size]
        inputs = {"pixel_values": floats_tensor(shape), "target_pixel_values": floats_tensor(shape)}
        inputs["input_ids"] = ids_tensor([self.batch_size, self.seq_length], self.vocab_size)
        return self.get_config(), inputs | {"attention_mask": torch.ones_like(inputs["input_ids"])}


class TFCoVRModelTest(ComparesAttention, ModelTesterMixin, unittest.TestCase):
    all_model_classes = (TFCoVRForComposedRetrieval,)
    additional_model_inputs = ["input_ids", "attention_mask", "target_pixel_values"]  # noqa: RUF012
    test_can_init_all_missing_weights_before_2023 = True
    maps_in_towers = True
    _is_composite = True

    @staticmethod
    def compared(output):
        return output.logits_per_query

    def setUp(self):
        super().setUp()
        self.model_tester = TFCoVRModelTester()
        sizes = {"projection_dim": 24, "fusion_hidden_dim": 16}
        self.config_tester = ConfigTester(
            self, config_class=TFCoVRConfig, has_text_modality=False, common_properties=[], **sizes
        )

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels:
            inputs["return_loss"] = True
        return inputs

    def test_config(self):
        self.config_tester.run_common_tests()


class FactoredCoVRTester(TFCoVRModelTester):
    """The same between labels."""

    def get_config(self):
        config = super().get_config().to_dict() | {"id2label": {0: "a", 1: "b", 2: "c"}}
        config["vision_config"] |= {"temporal_pooling": "gru"}
        del config["model_type"], config["label2id"]
        return FactoredCoVRConfig(**config, label_factors=[["a"], ["b"], ["a", "b"]])

    def prepare_config_and_inputs_for_common(self):
        config, inputs = super().prepare_config_and_inputs_for_common()
        return config, inputs | {"target_labels": torch.arange(self.batch_size)}


class FactoredCoVRTest(TFCoVRModelTest):
    all_model_classes = (FactoredCoVRForComposedRetrieval,)

    @staticmethod
    def compared(output):
        return torch.cat([output.query_embeds, output.target_embeds])

    def setUp(self):
        super().setUp()
        self.model_tester = FactoredCoVRTester()
        sizes = {"fused_dim": 24, "fusion_hidden_dim": 16}
        self.config_tester = ConfigTester(
            self, config_class=FactoredCoVRConfig, has_text_modality=False, common_properties=[], **sizes
        )
