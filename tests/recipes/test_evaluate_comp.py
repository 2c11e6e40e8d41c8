"""Compositionality: models against their own forward pass, and the recipe end to end."""

import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import torch
from evaluate_comp import EvaluateCompConfig, names, run
from torch.nn import functional as F
from transformers import (
    CLIPTextConfig,
    SiglipConfig,
    SiglipModel,
    XCLIPConfig,
    XCLIPModel,
    XCLIPTextConfig,
    XCLIPVisionConfig,
)
from video_text_encoders import (
    DotProductEncoder,
    ImageEncoder,
    PerceptionEncoder,
    XCLIPEncoder,
    load_encoder,
)

from harness.config import parse_config
from hf_datasets.comp.contrasts import SpanReader, span_of
from hf_models import AIMVideoProcessor, VidCLIPModel, VidCLIPProcessor

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
KINDS = ("temporal_reorder", "action_replace", "segment_mismatch")


class Parts:
    """A processor of made-up tokens and untouched pixels."""

    class tokenizer:  # noqa: N801
        model_max_length = 8

        def __new__(cls, texts, **_):
            ids = torch.tensor([[*(1 + ord(letter) % 90 for letter in f"{text:5.5}"), 98] for text in texts])
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def image_processor(self, images, **_):
        from transformers import BatchFeature

        stacked = [torch.stack(list(one)) if isinstance(one, list) else one for one in images]
        return BatchFeature({"pixel_values": torch.stack(stacked).float() / 255})


def videos(count, frames, size):
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(256, (frames, 3, size, size), generator=generator).byte() for _ in range(count)]


@torch.inference_mode()
def test_x_clip_compares_as_its_own_forward_pass():
    torch.manual_seed(0)
    text = XCLIPTextConfig(**SMALL, vocab_size=100, max_position_embeddings=8, eos_token_id=98)
    vision = {**SMALL, "mit_hidden_size": 16, "mit_intermediate_size": 32, "mit_num_attention_heads": 2}
    vision |= {"mit_num_hidden_layers": 1, "image_size": 8, "patch_size": 4, "num_frames": 4}
    prompts = {"prompt_layers": 1, "prompt_num_attention_heads": 2, "projection_dim": 16}
    config = XCLIPConfig(text_config=text, vision_config=XCLIPVisionConfig(**vision), **prompts)
    model = XCLIPModel(config).eval()
    torch.nn.init.normal_(model.prompts_visual_projection)
    torch.nn.init.constant_(model.prompts_generator.alpha, 0.5)
    encoder, shown, told = (
        XCLIPEncoder(model, Parts(), 4),
        videos(3, 4, 8),
        ["a dog", "a cat", "birds", "fish."],
    )
    similarity = encoder.compare(encoder.encode_videos(shown), encoder.encode_texts(told))
    whole = model(input_ids=Parts.tokenizer(told)["input_ids"], pixel_values=torch.stack(shown).float() / 255)
    torch.testing.assert_close(similarity, whole.logits_per_video / model.logit_scale.exp(), atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_an_image_model_is_averaged_over_its_unit_norm_frames():
    torch.manual_seed(0)
    text, vision = (
        {**SMALL, "vocab_size": 100, "max_position_embeddings": 8},
        {**SMALL, "image_size": 8, "patch_size": 4},
    )
    model = SiglipModel(SiglipConfig(text_config=text, vision_config=vision)).eval()
    shown = videos(2, 5, 8)
    encoder = ImageEncoder(model, Parts(), 5)
    for video, embeds in zip(shown, encoder.encode_videos(shown), strict=True):
        frames = model.get_image_features(pixel_values=video.float() / 255).pooler_output
        torch.testing.assert_close(embeds, F.normalize(F.normalize(frames, dim=-1).mean(0), dim=0))
    assert encoder.encode_texts(["a dog"]).shape == (1, 16)


@pytest.fixture(scope="module")
def vidclip_folder(tiny_comp, tmp_path_factory):
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("models") / "fresh" / "model"
    VidCLIPModel.from_clip(tiny_comp["model"], num_frames=4).save_pretrained(folder)
    processor = AIMVideoProcessor(num_frames=4, size={"height": 16, "width": 16})
    tokenizer = AutoTokenizer.from_pretrained(tiny_comp["model"])
    VidCLIPProcessor(processor, tokenizer).save_pretrained(folder)
    return str(folder)


def test_vidclip_is_asked_with_the_whole_of_a_long_text(vidclip_folder):
    encoder = load_encoder(vidclip_folder, torch.device("cpu"))
    text = " ".join(["athlete"] * 100)
    assert len(text.split()) > encoder.processor.tokenizer.model_max_length
    assert encoder.tokens([text])["input_ids"].shape[1] > 100


def test_several_models_are_measured_side_by_side(tiny_comp, vidclip_folder, tmp_path, capsys):
    config = EvaluateCompConfig(
        models=[vidclip_folder, tiny_comp["model"]],
        data_dir=tiny_comp["data_dir"],
        split="validation",
        output_dir=str(tmp_path),
        device="cpu",
    )
    figures = run(config)
    assert list(figures) == ["fresh", "clip"]
    results = json.loads(Path(tmp_path, "results.json").read_text())
    rows = pq.read_table(tmp_path / "similarities.parquet").to_pylist()
    assert results["coverage"]["used"] == len(rows)
    for name, row in figures.items():
        product = 1.0
        for kind in KINDS:
            of_kind = [one for one in rows if one["disruption_type"] == kind]
            right = sum(one[f"{name}/positive"] > one[f"{name}/negative"] for one in of_kind)
            assert row[f"accuracy/{kind}"] == pytest.approx(right / len(of_kind))
            product *= right / len(of_kind)
        assert row["comprehensive_accuracy"] == pytest.approx(product)
    printed = capsys.readouterr().out
    assert "chance" in printed
    assert "12.5" in printed


def test_objectives_are_trained_where_they_are_missing_and_averaged_over_seeds(tiny_comp, tmp_path):
    training, pretraining = tmp_path / "tiny.yaml", tmp_path / "tiny_stacked.yaml"
    training.write_text(f"model: {tiny_comp['model']}\nnum_frames: 4\nepochs: 1\nbatch_size: 8\ndraws: 1\n")
    pretraining.write_text(f"{training.read_text()}stack: 2\nclips_data_dir: {tiny_comp['data_dir']}\n")
    config = EvaluateCompConfig(
        compare=True,
        objectives=["clip", "comppretrain"],
        seeds=[0, 1],
        vidclip_config=str(training),
        pretrain_config=str(pretraining),
        runs_dir=str(tmp_path / "runs"),
        data_dir=tiny_comp["data_dir"],
        split="validation",
        output_dir=str(tmp_path / "out"),
        device="cpu",
    )
    figures = run(config)
    by_seed = json.loads((tmp_path / "out/results.json").read_text())["by_seed"]
    assert list(figures) == ["clip", "comppretrain"]
    for objective, mean in figures.items():
        first, second = (one["comprehensive_accuracy"] for one in by_seed[objective])
        assert mean["comprehensive_accuracy"] == pytest.approx((first + second) / 2)
        assert mean["comprehensive_accuracy_std"] == pytest.approx(abs(first - second) / 2**0.5)
    stacked = str(tmp_path / "runs/stacked/model")
    for name, *expected in (
        ("clip/0", "clip", 0, 0, str(tiny_comp["model"])),
        ("stacked", "comploss", 0, 2, str(tiny_comp["model"])),
        ("comppretrain/1", "comploss", 1, 0, stacked),
    ):
        trained = json.loads((tmp_path / "runs" / name / "results.json").read_text())["config"]
        assert [trained[field] for field in ("objective", "seed", "stack", "model")] == expected
    columns = pq.read_table(tmp_path / "out/similarities.parquet").column_names
    assert {"clip/0/positive", "comppretrain/1/negative"} <= set(columns)


def test_figures_are_the_mean_over_several_drawings_of_the_pairs(tiny_comp, tmp_path):
    config = EvaluateCompConfig(
        models=[str(tiny_comp["model"])],
        draws=2,
        data_dir=tiny_comp["data_dir"],
        split="validation",
        output_dir=str(tmp_path),
        device="cpu",
    )
    ((name, figures),) = run(config).items()
    rows = pq.read_table(tmp_path / "similarities.parquet").to_pylist()
    drawn = [{row["key"]: row for row in rows if row["draw"] == draw} for draw in range(2)]
    assert sum(map(len, drawn)) == len(rows)
    for kind in KINDS:
        shares = []
        for draw in drawn:
            right = [
                row[f"{name}/positive"] > row[f"{name}/negative"]
                for row in draw.values()
                if row["disruption_type"] == kind
            ]
            shares.append(sum(right) / len(right))
        assert figures[f"accuracy/{kind}"] == pytest.approx(sum(shares) / 2)


def test_a_video_that_does_not_decode_is_counted_and_left_out(tiny_comp, tmp_path):
    from datasets import load_dataset

    from comp.data import ContrastConfig, load_rows

    data = load_dataset("activitynet_comp", data_dir=tiny_comp["data_dir"], split="test")
    videos = tmp_path / "videos"
    videos.mkdir()
    first, *others = sorted(set(data["video_id"]))
    (videos / f"{first}.mp4").write_bytes(b"no video")
    for video_id in others:
        source = next(row["video"] for row in data if row["video_id"] == video_id)
        (videos / f"{video_id}.mp4").write_bytes(Path(source).read_bytes())
    built = tmp_path / "built" / "source"
    built.mkdir(parents=True)
    data.remove_columns("video").to_parquet(built / "test-00000-of-00001.parquet")
    config = ContrastConfig(dataset_config="source", data_dir=str(built.parent), video_dir=str(videos))
    rows, coverage = load_rows(config, "test")
    spoilt = sum(row["video_id"] == first for row in data)
    assert coverage["does not decode"] == spoilt > 0
    assert coverage["used"] == len(rows) == len(data) - spoilt


def test_models_of_one_name_keep_their_paths():
    assert list(names(["runs/a/model", "runs/b/model", "other/b/model"])) == [
        "a",
        "runs/b/model",
        "other/b/model",
    ]


def test_a_model_that_compares_nothing_is_refused(tmp_path):
    CLIPTextConfig(**SMALL).save_pretrained(tmp_path)
    with pytest.raises(SystemExit, match="'clip_text_model' model, which compares no videos"):
        load_encoder(str(tmp_path), torch.device("cpu"))


def test_frames_of_a_span_are_read_at_their_own_size(tiny_comp):
    from comp.data import ContrastConfig, load_rows

    rows, _ = load_rows(ContrastConfig(data_dir=tiny_comp["data_dir"]), "test")
    assert SpanReader()([span_of(rows[0])], 4).shape == (4, 3, 32, 32)


@torch.inference_mode()
def test_videoprism_compares_as_its_own_forward_pass():
    from transformers import VideoPrismClipModel, VideoPrismConfig

    torch.manual_seed(0)
    text = {**SMALL, "vocab_size": 100, "max_position_embeddings": 8}
    vision = {**SMALL, "image_size": 8, "patch_size": 4, "tubelet_size": [1, 4, 4], "num_frames": 4}
    vision |= {"num_spatial_layers": 1, "num_temporal_layers": 1, "num_auxiliary_layers": 1}
    model = VideoPrismClipModel(VideoPrismConfig(text_config=text, vision_config=vision)).eval()
    shown, told = videos(2, 4, 8), ["a dog", "a cat", "birds"]
    pixels = torch.stack(shown).float() / 255
    parts = Parts()
    parts.video_processor = lambda frames, **_: {"pixel_values_videos": torch.stack(frames).float() / 255}
    encoder = DotProductEncoder(model, parts, 4)
    similarity = encoder.compare(encoder.encode_videos(shown), encoder.encode_texts(told))
    whole = model(pixel_values_videos=pixels, **Parts.tokenizer(told), temperature=1.0)
    # Its own logits are a softmax over videos of these cosines.
    torch.testing.assert_close(similarity.softmax(0), whole.logits_per_video, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_perception_encoder_compares_as_its_own_forward_pass():
    from transformers import ModernBertConfig, PeVideoConfig, PeVideoModel, ViTConfig
    from transformers.models.pe_video import PeVideoEncoderConfig

    torch.manual_seed(0)
    image = ViTConfig(**SMALL, image_size=8, patch_size=4, num_labels=16)  # in place of timm's tower
    video = PeVideoEncoderConfig(vision_config=image, **SMALL, head_dim=8)
    marks = {
        "pad_token_id": 0,
        "eos_token_id": 98,
        "bos_token_id": 97,
        "cls_token_id": 97,
        "sep_token_id": 98,
    }
    text = ModernBertConfig(**SMALL, **marks, vocab_size=100)
    model = PeVideoModel(PeVideoConfig(text_config=text, video_config=video)).eval()
    torch.nn.init.ones_(model.text_video_logit_scale)  # it starts at zero
    parts = Parts()
    parts.video_processor = lambda frames, **_: {"pixel_values_videos": torch.stack(frames)[..., :8, :8].float() / 255}
    encoder, shown, told = PerceptionEncoder(model, parts, 4), videos(2, 4, 8), ["a dog", "a cat", "birds"]
    similarity = encoder.compare(encoder.encode_videos(shown), encoder.encode_texts(told))
    whole = model(pixel_values_videos=torch.stack(shown).float() / 255, **Parts.tokenizer(told))
    torch.testing.assert_close(similarity, whole.logits_video_text)


@torch.inference_mode()
def test_siglip_2_sees_frames_of_any_shape_as_its_own_forward_pass():
    from transformers import Siglip2Config, Siglip2ImageProcessor, Siglip2Model

    torch.manual_seed(0)
    text = {**SMALL, "vocab_size": 100, "max_position_embeddings": 8, "projection_size": 16}
    vision = {**SMALL, "patch_size": 4, "num_patches": 16}
    model = Siglip2Model(Siglip2Config(text_config=text, vision_config=vision)).eval()
    images = Siglip2ImageProcessor(patch_size=4, max_num_patches=16)
    parts = SimpleNamespace(image_processor=images, tokenizer=Parts.tokenizer)
    (shown,), told = videos(1, 1, 12), ["a dog", "a cat"]
    encoder = ImageEncoder(model, parts, 1)
    similarity = encoder.compare(encoder.encode_videos([shown]), encoder.encode_texts(told))
    frames = images(list(shown), return_tensors="pt")
    whole = model(**frames, **Parts.tokenizer(told)).logits_per_image
    torch.testing.assert_close(similarity, (whole - model.logit_bias) / model.logit_scale.exp())


def test_a_users_mistake_is_one_line(capsys):
    for words, message in (
        (["--draws", "0"], "at least 1 draw"),
        (["--objectives", "siglip"], "no 'siglip'; there are clip"),
    ):
        with pytest.raises(SystemExit):
            parse_config(EvaluateCompConfig, None, words)
        assert message in capsys.readouterr().err
