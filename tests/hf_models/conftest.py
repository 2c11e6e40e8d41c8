"""Leave out what only runs inside the libraries' own suites; a small processor of TF-CoVR, a CLIP and clips for AIM."""

import pytest
import torch
from small_aim import FRAMES, clip_tower
from transformers import BertTokenizerFast

from hf_models import AIMVideoProcessor, TFCoVRProcessor

collect_ignore_glob = ["peer_*.py"]

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "show", "with", "two", "and", "a", "half", "turns", "2", "."]


@pytest.fixture
def processor(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = BertTokenizerFast(str(tmp_path / "vocab.txt"))
    video = AIMVideoProcessor(size={"height": 8, "width": 8}, do_center_crop=False, num_frames=4)
    return TFCoVRProcessor(video_processor=video, tokenizer=tokenizer)


@pytest.fixture
def clip():
    """A vision tower to which an AIM of `small_aim` fits."""
    return clip_tower()


@pytest.fixture
def pixel_values():
    return torch.randn(2, FRAMES, 3, 16, 16, generator=torch.Generator().manual_seed(0))
