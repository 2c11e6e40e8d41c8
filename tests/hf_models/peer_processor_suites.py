"""Our processors in transformers' common suites; `test_peers.py` runs this file among them."""

import unittest
from pathlib import Path
from unittest import mock

from transformers import AutoTokenizer

import hf_models
from hf_models import AIMVideoProcessor, TFCoVRProcessor, VidCLIPProcessor

from .test_processing_common import ProcessorTesterMixin
from .test_video_processing_common import VideoProcessingTestMixin, prepare_video_inputs

TOKENIZER = Path(hf_models.__file__).parents[1] / "recipes" / "weights" / "miniature-clip"


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


class ProcessorSuite(ProcessorTesterMixin):
    """Of a processor for texts and videos."""

    videos_input_name = "pixel_values"

    @classmethod
    def setUpClass(cls):
        # As of a class of the library: saving one whose code travels along notes so in it, which the suite does not
        # expect.
        stays = mock.patch.object(cls.processor_class, "_auto_class", None)
        stays.start()
        cls.addClassCleanup(stays.stop)
        super().setUpClass()

    @classmethod
    def _setup_tokenizer(cls):
        return AutoTokenizer.from_pretrained(TOKENIZER)

    @classmethod
    def _setup_video_processor(cls):
        return AIMVideoProcessor(size={"height": 20, "width": 20})


class TFCoVRProcessorTest(ProcessorSuite, unittest.TestCase):
    processor_class = TFCoVRProcessor

    @staticmethod
    def prepare_processor_dict():
        return {"number_words": False}


class VidCLIPProcessorTest(ProcessorSuite, unittest.TestCase):
    processor_class = VidCLIPProcessor

    @staticmethod
    def prepare_processor_dict():
        return {"max_text_tokens": 24}
