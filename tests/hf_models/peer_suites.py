"""Our classes in transformers' common suites; `test_peers.py` copies this file among them and runs it there."""

import unittest

import torch
from transformers import AutoModelForVideoClassification

from hf_models import (
    AIMConfig,
    AIMForVideoClassification,
    AIMModel,
    AIMVideoProcessor,
    VidCLIPConfig,
    VidCLIPModel,
)

from .test_configuration_common import ConfigTester
from .test_modeling_common import ModelTesterMixin, floats_tensor, ids_tensor
from .test_video_processing_common import VideoProcessingTestMixin, prepare_video_inputs


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


class AIMModelTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (AIMModel, AIMForVideoClassification)
    test_resize_embeddings = False

    def setUp(self):
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


for name in dir(ModelTesterMixin):
    if name.startswith("test_"):
        needs_loss = name.startswith("test_training")
        setattr(AIMModelTest if needs_loss else AIMTrainingTest, name, None)


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
        )

    def prepare_config_and_inputs_for_common(self):
        shape = [self.batch_size, self.num_frames, self.num_channels, self.image_size, self.image_size]
        input_ids = ids_tensor([self.batch_size, self.seq_length], self.vocab_size - 2)
        input_ids[:, -1] = self.vocab_size - 1
        inputs = {"pixel_values": floats_tensor(shape), "input_ids": input_ids}
        return self.get_config(), inputs | {"attention_mask": torch.ones_like(input_ids)}


class VidCLIPModelTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (VidCLIPModel,)
    additional_model_inputs = ["input_ids", "attention_mask"]  # noqa: RUF012
    test_resize_embeddings = False
    has_attentions = False  # they are in the outputs of its towers; test_vidclip_library.py tests them
    _is_composite = True

    def setUp(self):
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


class AIMVideoProcessorTester:
    """Sizes and inputs that the suite asks for."""

    batch_size = 3
    num_frames = 8
    num_channels = 3
    min_resolution = 30
    max_resolution = 80
    crop = 18

    def prepare_video_inputs(self, equal_resolution=False, return_tensors="pil"):
        return prepare_video_inputs(
            batch_size=self.batch_size,
            num_frames=self.num_frames,
            num_channels=self.num_channels,
            min_resolution=self.min_resolution,
            max_resolution=self.max_resolution,
            equal_resolution=equal_resolution,
            return_tensors=return_tensors,
        )

    def expected_output_video_shape(self, _):
        return self.num_frames, self.num_channels, self.crop, self.crop


class AIMVideoProcessorTest(VideoProcessingTestMixin, unittest.TestCase):
    fast_video_processing_class = AIMVideoProcessor
    input_name = "pixel_values"
    test_cast_dtype = True

    def setUp(self):
        super().setUp()
        self.video_processor_tester = AIMVideoProcessorTester()

    @property
    def video_processor_dict(self):
        return {
            "do_resize": True,
            "size": {"shortest_edge": 20},
            "do_center_crop": True,
            "crop_size": {"height": 18, "width": 18},
            "do_normalize": True,
            "num_frames": 8,
            "do_convert_rgb": True,
        }
