"""Encoders of moments: each family gives one vector for a moment and for a query, and says what it depends on."""

import json
import shutil
from functools import reduce

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from hf_models.moment_encoders import PairMomentEncoder, check_num_frames, key_of, load_moment_encoder
from hf_models.query_texts import files_of_model

CLIP = "recipes/weights/miniature-clip"


@pytest.fixture(scope="module")
def clip():
    return load_moment_encoder(CLIP, num_frames=4)


def frames(seed, number=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (number, 4, 3, 64, 64), dtype=torch.uint8, generator=generator)


def test_a_batch_keeps_everything_but_its_frames(clip):
    made = clip({"moment_id": ["a", "b"], "frames": list(frames(0, 2))})
    assert made["moment_id"] == ["a", "b"]
    assert "frames" not in made
    assert made["vector"].dtype == np.float32
    assert np.linalg.norm(made["vector"], axis=1) == pytest.approx([1, 1], abs=1e-5)


def test_an_image_models_moment_is_the_mean_of_its_frames(clip):
    (moment,) = frames(1)
    batch = clip.processor.image_processor(list(moment), return_tensors="pt")
    with torch.inference_mode():
        each = F.normalize(clip.model.get_image_features(**batch).pooler_output, dim=-1)
    expected = F.normalize(each.mean(0), dim=-1)
    assert clip({"frames": [moment]})["vector"][0] == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_clip_with_a_text_is_between_them(clip):
    (moment,) = frames(2)
    halves = clip.query(moment), clip.query(text="a dive")
    both = clip.query(moment, "a dive")
    assert both == pytest.approx((halves[0] + halves[1]) / np.linalg.norm(halves[0] + halves[1]), abs=1e-5)


def test_what_is_made_depends_on_weights_frames_and_nothing_else(clip):
    assert clip.made_by == load_moment_encoder(CLIP, num_frames=4).made_by
    other = load_moment_encoder(CLIP, num_frames=5).made_by
    assert key_of(other) != key_of(clip.made_by)
    changed = {name for name in other if other[name] != clip.made_by[name]}
    assert changed == {"sampler"}
    assert {"encoder", "weights", "processor", "tokenizer", "frame_size"} <= other.keys()


@pytest.mark.parametrize(
    ("given", "message"),
    [({}, "give a clip, a text or both"), ({"text": " "}, "is empty"), ({"text": "dive " * 500}, "shorten it")],
)
def test_a_query_that_cannot_be_is_named(clip, given, message):
    with pytest.raises(ValueError, match=message):
        clip.query(**given)


def test_x_clip_has_no_vectors_of_texts():
    class XCLIPEncoder:
        model, processor, num_frames = None, object(), 4

    with pytest.raises(ValueError, match="no vector to search by"):
        PairMomentEncoder(XCLIPEncoder())


def test_another_number_of_frames_than_a_model_takes_is_refused():
    with pytest.raises(ValueError, match="takes 8 frames, not 4"):
        check_num_frames("aim", 8, 4)
    check_num_frames("aim", 8, None)


def test_the_files_of_a_model_are_known_by_size_and_time(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"123")
    (tmp_path / ".hidden.json").write_text("{}")
    before = files_of_model(str(tmp_path))
    assert before["model.safetensors"][0] == 3
    assert list(before) == ["model.safetensors"]
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    assert files_of_model(str(tmp_path)) != before
    assert files_of_model("openai/clip-vit-base-patch32") is None


def test_vidclip_reads_videos_and_texts():
    encoder = load_moment_encoder("recipes/weights/miniature-vidclip")
    moment = torch.zeros(encoder.num_frames, 3, 64, 64, dtype=torch.uint8)
    assert encoder({"frames": [moment]})["vector"].shape[1:] == encoder.query(text="a dive").shape


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        (
            "config.json",
            ["text_config", "num_hidden_layers"],
            5,
            r"48 weights of .* are missing or do not fit, such as",
        ),
        ("config.json", ["text_model_class"], "x", "text_model_class 'x' is not a model class"),
        ("tokenizer_config.json", ["model_max_length"], 1, "the text has 3 tokens and the model reads 1"),
        ("processor_config.json", ["video_processor", "size", "height"], 10**7, "makes frames with height=10,000,000"),
    ],
)
def test_a_model_of_composed_retrieval_that_is_damaged_is_refused_by_its_name(tmp_path, name, place, value, message):
    folder = shutil.copytree("recipes/weights/miniature-tfcovr", tmp_path / "model")
    fields = json.loads((folder / name).read_text())
    *parents, last = place
    reduce(dict.__getitem__, parents, fields)[last] = value
    (folder / name).write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=message) as refusal:
        load_moment_encoder(str(folder))
    assert str(folder) in str(refusal.value)
