"""Vectors of a search: each family gives one for a moment and for a query, and says what it depends on."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModel, AutoProcessor

from hf_models.encoders import load_encoder
from hf_models.fingerprints import key_of
from hf_models.frame_reading import frames_read
from hf_models.query_texts import files_of_model

WEIGHTS = "recipes/weights"
CLIP = f"{WEIGHTS}/miniature-clip"


@pytest.fixture(scope="module")
def clip():
    return load_encoder(CLIP, num_frames=4)


def frames(seed, number=1, length=4):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (number, length, 3, 64, 64), dtype=torch.uint8, generator=generator)


def test_vectors_are_unit_norm_float32(clip):
    made = clip.vectors(list(frames(0, 2)))
    assert made.dtype == np.float32
    assert made.shape == (2, clip.dimensions)
    assert np.linalg.norm(made, axis=1) == pytest.approx([1, 1], abs=1e-5)


def test_a_model_of_ours_composes_its_queries_and_looks_for_a_clip_alone_as_for_a_target():
    folder = f"{WEIGHTS}/miniature-tfcovr"
    encoder = load_encoder(folder)
    model, processor = AutoModel.from_pretrained(folder).eval(), AutoProcessor.from_pretrained(folder)
    (moment,) = frames(3, length=encoder.num_frames)
    with torch.inference_mode():
        pixels, tokens = processor([moment], do_sample_frames=False), processor(text=["a dive"])
        target = model.get_target_features(**pixels)[0].numpy()
        text = model.get_query_features(**tokens)[0].numpy()
        both = model.get_query_features(**pixels, **tokens)[0].numpy()
    assert encoder.query(moment) == pytest.approx(target, abs=1e-5)
    assert encoder.vectors([moment])[0] == pytest.approx(target, abs=1e-5)
    assert encoder.query(text="a dive") == pytest.approx(text, abs=1e-5)
    assert encoder.query(moment, "a dive") == pytest.approx(both, abs=1e-5)
    with pytest.raises(ValueError, match="takes 12 frames, not 4; leave num_frames out"):
        load_encoder(folder, num_frames=4)


def test_aim_searches_by_a_clip_alone_unless_its_clip_is_named(tmp_path):
    alone = load_encoder(f"{WEIGHTS}/miniature-aim")
    (moment,) = frames(4, length=alone.num_frames)
    batch = alone.frames_processors[0]([moment], do_sample_frames=False, return_tensors="pt")
    with torch.inference_mode():
        expected = F.normalize(alone.model(batch["pixel_values"]).pooler_output, dim=-1)[0].numpy()
    assert alone.query(moment) == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ValueError, match="embeds videos only, so a query is a clip"):
        alone.query(text="a dive")
    with pytest.raises(ValueError, match="AIM is built on a 'clip'"):
        load_encoder(f"{WEIGHTS}/miniature-aim", aim_text=f"{WEIGHTS}/miniature-vidclip")


def test_what_is_made_depends_on_weights_processor_and_the_frames_that_are_read(clip):
    assert clip.fingerprint == load_encoder(CLIP, num_frames=5).fingerprint
    assert {"encoder", "weights", "processor", "tokenizer"} <= clip.fingerprint.keys()
    reads = [(4, "middles"), (5, "middles"), (4, "seconds"), (4, "middles", 48)]
    assert len({key_of(clip.fingerprint | frames_read(*read)) for read in reads}) == len(reads)


@pytest.mark.parametrize(
    ("given", "message"),
    [({}, "give a clip, a text or both"), ({"text": " "}, "is empty"), ({"text": "dive " * 500}, "shorten it")],
)
def test_a_query_that_cannot_be_is_named(clip, given, message):
    with pytest.raises(ValueError, match=message):
        clip.query(**given)


def test_the_files_of_a_model_are_known_by_size_and_time(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"123")
    (tmp_path / ".hidden.json").write_text("{}")
    before = files_of_model(str(tmp_path))
    assert before["model.safetensors"][0] == 3
    assert list(before) == ["model.safetensors"]
    (tmp_path / "model.safetensors").write_bytes(b"1234")
    assert files_of_model(str(tmp_path)) != before
    assert files_of_model("openai/clip-vit-base-patch32") is None


def test_autocast_changes_the_forward_pass_of_videos_alone(clip, monkeypatch):
    videos, before = list(frames(5, 3)), clip.fingerprint
    exact, query = clip.vectors(videos), clip.query(videos[0])
    seen = []
    model = clip.model.get_image_features
    monkeypatch.setattr(clip.model, "get_image_features", lambda **batch: seen.append(batch) or model(**batch))
    clip.vectors(videos)
    monkeypatch.setattr(clip, "autocast", torch.bfloat16)
    coarse = clip.vectors(videos)
    assert torch.equal(*(batch["pixel_values"] for batch in seen))
    assert coarse.dtype == np.float32
    assert not np.array_equal(coarse, exact)
    assert (coarse * exact).sum(1) == pytest.approx(1, abs=0.01)
    assert np.linalg.norm(coarse, axis=1) == pytest.approx(1, abs=1e-5)
    assert clip.query(videos[0]) == pytest.approx(query, abs=1e-6)
    assert clip.fingerprint == before | {"autocast": "torch.bfloat16"}


@pytest.mark.parametrize("name", ["clip", "aim"])
def test_frames_go_to_the_device_as_bytes_and_are_prepared_there(name, monkeypatch):
    """The device "meta" stands for a GPU: it computes no values, and nothing comes back from it."""
    encoder = load_encoder(f"{WEIGHTS}/miniature-{name}")
    prepare = encoder.images if name == "clip" else encoder.videos
    encoder.model.to("meta")
    processor = encoder.frames_processors[0]
    given = []
    call = type(processor).preprocess
    monkeypatch.setattr(
        type(processor), "preprocess", lambda self, found, **rest: given.extend(found) or call(self, found, **rest)
    )
    assert prepare(list(frames(6, 2)))["pixel_values"].device.type == "meta"
    assert {(one.device.type, one.dtype) for one in given} == {("meta", torch.uint8)}
