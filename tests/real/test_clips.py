"""EfficientNet-Lite0, trained on ImageNet, and XML on its features, on real clips."""

import numpy as np
import pytest
import real_clips
import torch

from hf_datasets.video import read_frames
from hf_models.moments.feature_encoders import ClipEncoder
from subtle.embedding.embed_moments import run as embed
from subtle.embedding.options import EmbedMomentsConfig
from subtle.train.options import VCMRConfig
from subtle.train.vcmr import run as train

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

DATA = {"dataset": "charades_fig", "dataset_config": "release"}


def frame(name, seconds):
    return read_frames(real_clips.clip(name), 1, start_seconds=seconds, end_seconds=seconds + 0.04).frames


def test_the_converted_encoder_classifies_what_is_in_the_clips(image_encoder, clips):
    from timm.data import ImageNetInfo
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    model = AutoModelForImageClassification.from_pretrained(image_encoder).eval()
    processor, names = AutoImageProcessor.from_pretrained(image_encoder), ImageNetInfo().label_descriptions()
    seen = {}
    for name, seconds in (("bikes", 2.84), ("bikes", 6.6), ("carphone_pristine", 0.6)):
        pixels = processor(images=list(frame(name, seconds)), return_tensors="pt")
        with torch.inference_mode():
            best = model(**pixels).logits[0].topk(5).indices.tolist()
        seen[name, seconds] = [names[number] for number in best]
    assert any("cab" in name for name in seen["bikes", 2.84])
    assert any("bike" in name for name in seen["bikes", 6.6])
    assert any("bow tie" in name or "suit" in name for name in seen["carphone_pristine", 0.6])


def test_its_features_are_those_of_its_authors_own_module(image_encoder, clips):
    from real_weights import image_encoder_weights

    authors = pytest.importorskip("efficientnet_lite_pytorch", reason="of the extra real").EfficientNet
    theirs = authors.from_name("efficientnet-lite0")
    theirs.load_state_dict(image_encoder_weights())
    encoder = ClipEncoder(image_encoder, frames_per_clip=1)
    pictures = torch.stack([frame("bikes", 2.84), frame("bigbuckbunny", 1.0)[..., :272, :640]])
    pixels = encoder.processor(images=list(pictures[:, 0]), return_tensors="pt")["pixel_values"]
    with torch.inference_mode():
        expected = theirs.eval().extract_features(pixels).mean((2, 3))
    torch.testing.assert_close(encoder(pictures), expected, rtol=1e-3, atol=1e-4)


@pytest.fixture(scope="module")
def features(image_encoder, sentence_encoder, clips, tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    found = embed(
        EmbedMomentsConfig(
            **DATA, data_dir=clips, video_dir=clips, vision_model=image_encoder, text_model=sentence_encoder,
            clip_seconds=0.25, frames_per_clip=1, num_workers=0, device="cpu", output_dir=str(folder),
        )
    )  # fmt: skip
    assert (found["videos"], found["encoded"], found["failures"]) == (3, 3, {})
    return str(folder)


def test_features_of_a_shot_are_more_alike_than_features_of_two(features):
    from hf_models.feature_store import open_features

    store = open_features(features, "video")
    vectors = torch.nn.functional.normalize(torch.as_tensor(np.asarray(store["bikes"])), dim=-1)
    shots = np.searchsorted(np.array(real_clips.BIKES_CUTS) / 25, (np.arange(len(vectors)) + 0.5) * 0.25)
    alike = (vectors @ vectors.T).numpy()
    same = shots[:, None] == shots[None]
    assert alike[same & ~np.eye(len(shots), dtype=bool)].mean() > alike[~same].mean() + 0.2


@pytest.mark.parametrize(("granularity", "at_least", "at_most"), [("fine", 12, 13), ("coarse", 8, 9)])
def test_xml_memorizes_moments_that_captions_tell_apart(features, clips, tmp_path, granularity, at_least, at_most):
    """Of the 13 coarse captions 9 are different: of two moments with one caption, only one can be found first."""
    config = VCMRConfig(
        **DATA, data_dir=clips, features=features, granularity=granularity, preset="miniature", max_clips=12,
        validation_split="train", epochs=120, patience=120, batch_size=13, device="cpu",
        output_dir=str(tmp_path),
    )  # fmt: skip
    found = train(config)
    assert at_least <= round(13 * found["vcmr_recall@1_iou@0.5"]) <= at_most
    assert found["vcmr_recall@10_iou@0.5"] == 1
