"""The miniature's own CLIP: the recipe learns, and the weights that ship are what it makes, within its noise."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from torch.nn import functional as F
from transformers import AutoModel, AutoProcessor, AutoTokenizer, CLIPModel

from benchmarks.miniature_stills import pose_targets, read_stills, still_caption
from benchmarks.pretrain_miniature import (
    Batches,
    PretrainConfig,
    Pretraining,
    build_model,
    build_processor,
    clip_captions,
    load,
    measure,
    modification_texts,
)
from hf_datasets.comp.miniature import caption
from hf_datasets.miniature import ACTIONS, MiniatureConfig, plan_competitions
from hf_datasets.miniature.competitions import clip_rows
from hf_datasets.miniature.drawing import camera_joints
from hf_datasets.miniature.motion import Style, perform
from hf_datasets.miniature.render import render_video
from hf_datasets.miniature.scene import Scene
from hf_models import AIMModel
from subtle.run.model_folders import MINIATURE_VIDCLIP
from subtle.tfcovr.classifiers import MINIATURE_AIM, ClassifierConfig, class_names, make_classifier, make_processor

SHIPPED = Path(__file__).parents[1] / "recipes/weights/miniature-clip"
TOWERS = {"hidden_size": 32, "num_layers": 3, "num_heads": 2, "text_hidden_size": 16, "text_layers": 1}
TINY = PretrainConfig(
    **TOWERS, projection_dim=16, vocab_size=400, steps=30, batch_size=24, text_batch_size=8, num_workers=1
)


@pytest.fixture(scope="module")
def stills(tmp_path_factory):
    """Validation competitions that pretraining has not seen, one of each sport, rendered here."""
    folder = tmp_path_factory.mktemp("stills")
    (folder / "videos").mkdir()
    config = MiniatureConfig()
    plan = [one for one in plan_competitions(config) if one.split == "validation"]
    chosen = [next(one for one in plan if one.sport == sport) for sport in ("gymnastics", "diving")]
    chosen = [replace(one, shots=one.shots[::2]) for one in chosen]
    for one in chosen:
        render_video(one, folder / "videos" / f"{one.video_id}.mp4", config)
    rows = [row for one in chosen for row in clip_rows(one, config.fps)]
    pl.DataFrame(rows).write_parquet(folder / "clips.parquet")
    return read_stills(folder, chosen, 12, 48, num_workers=1)


def test_the_shipped_weights_are_what_the_recipe_says_it_made(stills):
    recorded = json.loads((SHIPPED / "results.json").read_text())["figures"]
    model, processor = load(SHIPPED)
    measured = measure(model, processor, stills, choices=32)
    assert measured["joints_r2"] == pytest.approx(recorded["joints_r2"], abs=0.1)
    assert measured["caption_recall@1"] > 0.8 * recorded["caption_recall@1"] > 5 * recorded["chance"]
    config = PretrainConfig()
    fresh = measure(build_model(len(processor.tokenizer), config).eval(), processor, stills, choices=32)
    assert fresh["joints_r2"] < recorded["joints_r2"] - 0.3
    assert fresh["caption_recall@1"] < 0.2


def test_the_shipped_weights_were_made_with_the_defaults():
    recorded = json.loads((SHIPPED / "results.json").read_text())["config"]
    assert replace(PretrainConfig(**recorded), output_dir="") == replace(PretrainConfig(), output_dir="")


def test_the_shipped_folder_is_small_and_opens_with_every_auto_class():
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 4_000_000
    assert isinstance(AutoModel.from_pretrained(SHIPPED), CLIPModel)
    inputs = AutoProcessor.from_pretrained(SHIPPED)(
        text=["show with 2 turns"], images=[np.zeros((112, 112, 3), np.uint8)], return_tensors="pt"
    )
    assert inputs["pixel_values"].shape == (1, 3, 48, 48)
    assert AIMModel.from_clip(str(SHIPPED), num_frames=12).config.hidden_size == 96


def test_the_tokenizer_writes_any_text_and_every_modification_without_loss():
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    texts = [*modification_texts(tuple(ACTIONS)), "Naïve 🤸 text, 5253b"]
    for text in texts:
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.decode(ids, skip_special_tokens=True).strip() == text.lower()
        assert len(ids) <= tokenizer.model_max_length
    counts = [tuple(tokenizer(f"show with {count} turns")["input_ids"]) for count in (1, 1.5, 2, 2.5, 3)]
    assert len(set(counts)) == 5


def test_the_shipped_text_tower_tells_counts_apart():
    model, processor = load(SHIPPED)
    texts = [f"show with {count}" for count in ("1 turn", "2 turns", "3 turns", "1.5 turns", "no turn")]
    inputs = processor.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        embeds = model.get_text_features(**inputs)
    embeds = embeds if isinstance(embeds, torch.Tensor) else embeds.pooler_output
    similarity = torch.nn.functional.cosine_similarity(embeds[:, None], embeds[None], dim=-1)
    assert (similarity - torch.eye(5)).max() < 0.98


def test_training_lowers_every_loss(stills):
    texts = [text for shot in stills.shots for text in clip_captions(shot)]
    processor = build_processor(texts, TINY)
    torch.manual_seed(0)
    training = Pretraining(build_model(len(processor.tokenizer), TINY), TINY)
    optimizer = torch.optim.AdamW(training.parameters(), 3e-3)
    history = []
    for batch in Batches(stills, ["show backward", "show with 2 turns"], processor, TINY):
        losses = training(batch)
        sum(losses.values()).backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append({name: loss.item() for name, loss in losses.items()})
    assert len(history) == TINY.steps
    for name in ("joints", "time", "words"):
        assert np.mean([one[name] for one in history[-5:]]) < 0.9 * history[0][name], name


def test_batches_are_decided_by_the_seed(stills):
    processor = build_processor(["show backward"], TINY)
    first, second, other = (
        next(iter(Batches(stills, ["show backward"], processor, replace(TINY, seed=seed)))) for seed in (0, 0, 1)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["pixel_values"], other["pixel_values"])


def test_positions_in_time_are_added_only_where_there_are_any():
    training = Pretraining(build_model(400, TINY), TINY).eval()
    pixels = torch.rand(1, 3, 48, 48).repeat(2, 1, 1, 1)
    training.positions = torch.tensor([-1, 3])
    with torch.no_grad():
        plain, timed = training.model.vision_model(pixels).pooler_output
    assert not torch.allclose(plain, timed)
    training.positions = None
    with torch.no_grad():
        torch.testing.assert_close(training.model.vision_model(pixels[:1]).pooler_output[0], plain)


def test_the_caption_of_a_still_describes_its_pose():
    motion, scene = perform(ACTIONS["119"], Style(), 101), Scene(socks="pink", hall="green")
    joints = torch.from_numpy(camera_joints(motion, scene))
    shot = plan_competitions(MiniatureConfig(labels=("119",)))[0].shots[0]
    shot = replace(shot, scene=scene)
    assert still_caption(shot, joints[0]) == (
        "A person in pink socks, upright and long, facing left, on the floor in a green hall."
    )
    assert "upside down" in still_caption(shot, joints[52])
    assert pose_targets(joints).shape == (101, 51)


def test_the_shipped_adapters_classify_unseen_clips_and_need_their_order(stills):
    recorded = json.loads((Path(MINIATURE_AIM) / "results.json").read_text())["figures"]
    processor = make_processor(str(SHIPPED), 12)
    mean, std = (255 * torch.tensor(v)[:, None, None] for v in (processor.image_mean, processor.image_std))
    pixels = (stills.frames.float() - mean) / std
    names = [shot.action.label for shot in stills.shots]
    model = make_classifier(ClassifierConfig(), sorted_names := class_names([{"label": n} for n in ACTIONS], "present"))
    generator = torch.Generator().manual_seed(0)
    shuffled = torch.stack([clip[torch.randperm(12, generator=generator)] for clip in pixels])
    with torch.no_grad():
        told = [model.eval()(pixel_values=clips).logits.argmax(-1).tolist() for clips in (pixels, shuffled)]
    in_order, out_of_order = (
        np.mean([sorted_names[index] == name for index, name in zip(one, names, strict=True)]) for one in told
    )
    assert in_order == pytest.approx(recorded["validation/accuracy"], abs=0.12)
    assert out_of_order < in_order - 0.2


@torch.inference_mode()
def test_the_shipped_vidclip_has_the_clips_tower_and_matches_captions_with_unseen_clips(stills):
    model, processor = (AutoModel.from_pretrained(MINIATURE_VIDCLIP), AutoProcessor.from_pretrained(MINIATURE_VIDCLIP))
    clip = CLIPModel.from_pretrained(SHIPPED)
    for name, weight in clip.vision_model.state_dict().items():
        assert torch.equal(model.vision_model.state_dict()[name], weight)
    captions = [caption(shot.action, "activitynet") for shot in stills.shots]
    tokens = processor(text=captions)
    pixels = processor.video_processor(list(stills.frames), do_sample_frames=False, return_tensors="pt")
    videos = model.get_video_features(**pixels, interpolate_temporal=True)
    frames = clip.get_image_features(pixels["pixel_values"].flatten(0, 1)).pooler_output
    averaged = F.normalize(frames, dim=-1).unflatten(0, (len(captions), -1)).mean(1)
    shown = {"vidclip": videos, "clip": averaged}
    told = {
        "vidclip": model.get_text_features(**tokens),
        "clip": F.normalize(clip.get_text_features(**tokens).pooler_output, dim=-1),
    }
    other = torch.tensor([[one != another for another in captions] for one in captions])
    right = {}
    for name in shown:
        similarity = shown[name] @ told[name].T
        right[name] = (similarity.diagonal()[:, None] > similarity)[other].double().mean().item()
    assert right["vidclip"] > 0.95
    assert 1 - right["vidclip"] < 0.6 * (1 - right["clip"])
