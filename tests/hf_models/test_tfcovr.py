"""TF-CoVR-Base: sizes, encoders, save and load in every way, and what it refuses."""

import pytest
import torch
from small_tfcovr import CLIPS, IMAGE, MASK, NARROW, SMALL, TOKENS, aim, bert, small_tfcovr
from torch.nn import functional as F
from transformers import (
    AutoModel,
    BertModel,
    Blip2Config,
    BlipConfig,
    BlipForImageTextRetrieval,
    BlipTextConfig,
    CLIPConfig,
    CLIPModel,
    CLIPTextConfig,
    CLIPVisionConfig,
    CLIPVisionModel,
    Dinov2Config,
    VideoMAEConfig,
)

from hf_models import AIMForVideoClassification, AIMModel, TFCoVRConfig, TFCoVRForComposedRetrieval
from hf_models.tfcovr.fusion import GatedFusion


def clip_text():
    return CLIPTextConfig(vocab_size=20, projection_dim=12, eos_token_id=2, pad_token_id=0, bos_token_id=1, **SMALL)


def blip2():
    vision = {**SMALL, **IMAGE}
    qformer = {**SMALL, "vocab_size": 20, "encoder_hidden_size": 16, "use_qformer_text_input": True}
    opt = {"model_type": "opt", "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    return Blip2Config(
        vision_config=vision, qformer_config=qformer, text_config=opt, num_query_tokens=3, image_text_hidden_size=10
    )


def test_the_gated_combiner_has_the_released_number_of_parameters():
    with torch.device("meta"):
        fusion = GatedFusion(TFCoVRConfig(fusion="gated"))
    assert sum(weight.numel() for weight in fusion.parameters()) == 84_960_001


def test_the_paper_perceptron_has_two_hidden_relu_layers_on_the_concatenation():
    layers = small_tfcovr().fusion.layers
    kinds = [type(layer).__name__ for layer in layers]
    assert kinds == ["Linear", "ReLU", "Dropout", "Linear", "ReLU", "Dropout", "Linear"]
    assert [layer.weight.shape for layer in layers if isinstance(layer, torch.nn.Linear)] == [(8, 32), (8, 8), (16, 8)]


def test_the_gated_query_equals_its_formula():
    model = small_tfcovr(fusion="gated", fusion_projection_dim=6)
    video, text = torch.randn(3, 16), torch.randn(3, 16)
    t = F.normalize(model.text_projection(text), dim=-1)
    part = model.fusion
    both = torch.cat([F.relu(part.text_projection(t)), F.relu(part.video_projection(video))], 1)
    g = torch.sigmoid(part.gate(F.relu(part.gate_projection(both))))
    query = part.output_projection(F.relu(part.fused_projection(both))) + g * t + (1 - g) * video
    features = model.get_query_features(video_embeds=video, text_embeds=text)
    torch.testing.assert_close(features, F.normalize(query, dim=-1))
    torch.testing.assert_close(model.get_target_features(video_embeds=video), F.normalize(video, dim=-1))


ENCODERS = {
    "bert": {"text_config": bert()},
    "clip": {"text_config": clip_text()},
    "clip-unprojected": {"text_config": clip_text(), "text_model_class": "CLIPTextModel"},
    "blip": {"text_config": BlipTextConfig(vocab_size=20, encoder_hidden_size=16, **SMALL)},
    "blip2-text": {"text_config": blip2()},
    "blip2": {"vision_config": blip2()},
    "clip-frames": {"vision_config": CLIPVisionConfig(**IMAGE, **SMALL)},
    "clip-projected": {
        "vision_config": CLIPVisionConfig(projection_dim=12, **IMAGE, **SMALL),
        "vision_model_class": "CLIPVisionModelWithProjection",
    },
    "dinov2": {"vision_config": Dinov2Config(**IMAGE, **SMALL)},
    "videomae": {"vision_config": VideoMAEConfig(num_frames=4, **IMAGE, **SMALL)},
}


@pytest.mark.parametrize("config", ENCODERS.values(), ids=ENCODERS)
def test_any_encoder_of_transformers_can_be_used_saved_and_trained(config, tmp_path):
    model = small_tfcovr(**config)
    stored = {"video_embeds": model.encode_video(CLIPS), "text_embeds": model.encode_text(TOKENS, MASK)}
    assert stored["video_embeds"].shape == (2, model.config.video_embed_dim)
    assert stored["text_embeds"].shape == (2, model.config.text_embed_dim)
    query = model.get_query_features(CLIPS, TOKENS, MASK)
    torch.testing.assert_close(query.norm(dim=-1), torch.ones(2))
    torch.testing.assert_close(query, model.get_query_features(**stored))
    model.save_pretrained(tmp_path)
    again, info = TFCoVRForComposedRetrieval.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    torch.testing.assert_close(again.get_query_features(CLIPS, TOKENS, MASK), query)
    for one in (model, again):  # each weight has a gradient: DDP fails in its second step where one has none
        one.requires_grad_(True).train()
        one(CLIPS, TOKENS, MASK, CLIPS.flip(0), return_loss=True).loss.backward()
        assert [name for name, weight in one.named_parameters() if weight.grad is None] == []


def test_the_text_encoder_of_blips_retrieval_model_is_read(tmp_path):
    """Its weights carry another prefix there than BlipModel's."""
    config = BlipConfig(
        text_config={"vocab_size": 20, "encoder_hidden_size": 16, **SMALL},
        vision_config={"image_size": 16, "patch_size": 8, **SMALL},
        image_text_hidden_size=16,
    )
    whole = BlipForImageTextRetrieval(config).eval()
    whole.save_pretrained(tmp_path / "blip")
    CLIPVisionModel(CLIPVisionConfig(**IMAGE, **SMALL)).save_pretrained(tmp_path / "clip")
    model = TFCoVRForComposedRetrieval.from_vision_text_pretrained(tmp_path / "clip", tmp_path / "blip", **NARROW)
    expected = whole.text_encoder(TOKENS, MASK)[0][:, 0]
    torch.testing.assert_close(model.encode_text(TOKENS, MASK), expected)


def test_a_text_embedding_does_not_depend_on_padding():
    model = small_tfcovr()
    torch.testing.assert_close(model.encode_text(TOKENS[1:], MASK[1:]), model.encode_text(TOKENS[1:, :3]))


def test_an_image_model_is_averaged_over_frames():
    model = small_tfcovr(vision_config=CLIPVisionConfig(**IMAGE, **SMALL))
    expected = torch.stack([model.vision_model(CLIPS[:, t]).pooler_output for t in range(4)]).mean(0)
    torch.testing.assert_close(model.encode_video(CLIPS), expected)


def test_the_average_of_clip_embeddings_needs_no_training():
    model = small_tfcovr(
        vision_config=CLIPVisionConfig(projection_dim=12, **IMAGE, **SMALL),
        vision_model_class="CLIPVisionModelWithProjection",
        text_config=clip_text(),
        fusion="average",
    )
    video, text = model.encode_video(CLIPS), model.encode_text(TOKENS, MASK)
    expected = F.normalize(F.normalize(video, dim=-1) + F.normalize(text, dim=-1), dim=-1)
    torch.testing.assert_close(model.get_query_features(CLIPS, TOKENS, MASK), expected)
    assert not [name for name, _ in model.named_parameters() if not name.startswith(("vision_model", "text_model"))]


@pytest.mark.parametrize("fusion", ["mlp", "gated"])
def test_a_query_without_text_or_video_is_that_half_as_zeros(fusion):
    model = small_tfcovr(fusion=fusion, fusion_projection_dim=4)
    video, text = torch.randn(2, 16), torch.randn(2, 16)
    video_only = model.get_query_features(video_embeds=video)
    torch.testing.assert_close(video_only, F.normalize(model.fusion(video, torch.zeros(2, 16)), dim=-1))
    projected = F.normalize(model.text_projection(text), dim=-1)
    text_only = model.get_query_features(text_embeds=text)
    torch.testing.assert_close(text_only, F.normalize(model.fusion(torch.zeros(2, 16), projected), dim=-1))


def test_standardized_videos_are_those_of_the_training_clips(tmp_path):
    model, train = small_tfcovr(standardize_video=True), 3 + 0.01 * torch.randn(50, 16)
    model.set_video_statistics(train)
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path)
    expected = F.normalize(again.target_projection((train - train.mean(0)) / train.std(0)), dim=-1)
    torch.testing.assert_close(again.get_target_features(video_embeds=train), expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="standardize_video=True"):
        small_tfcovr().set_video_statistics(train)


@pytest.mark.parametrize("loss", ["hn_nce", "infonce", "multi_positive"])
def test_every_loss_trains_what_is_not_frozen(loss):
    model = small_tfcovr(loss=loss, learnable_temperature=True).train()
    model.freeze_encoders()
    output = model(CLIPS, TOKENS, MASK, CLIPS.flip(0), target_labels=torch.tensor([0, 1]), return_loss=True)
    output.loss.backward()
    with_gradient = {name for name, one in model.named_parameters() if one.grad is not None}
    assert with_gradient == {
        name for name, _ in model.named_parameters() if not name.startswith(("vision", "text_model"))
    }
    assert "log_temperature" in with_gradient
    assert output.logits_per_query.shape == (2, 2)


@pytest.mark.parametrize("has_pooler", [True, False])
def test_weights_of_an_encoder_that_nothing_reads_are_kept_in_its_file_and_may_be_missing(tmp_path, has_pooler):
    encoder = BertModel(bert(), add_pooling_layer=has_pooler)
    encoder.save_pretrained(tmp_path / "bert")
    AIMModel(aim()).save_pretrained(tmp_path / "aim")
    model = TFCoVRForComposedRetrieval.from_vision_text_pretrained(tmp_path / "aim", tmp_path / "bert", **NARROW)
    assert "pooler.dense.weight" not in dict(model.text_model.named_parameters())
    kept = model.text_model.state_dict()
    assert has_pooler or not any(kept.pop(f"pooler.dense.{part}").any() for part in ("weight", "bias"))
    torch.testing.assert_close(dict(kept), dict(encoder.state_dict()))


def test_encoders_come_from_the_models_that_contain_them(tmp_path):
    AIMForVideoClassification(aim(num_labels=3)).save_pretrained(tmp_path / "aim")
    clip = CLIPModel(CLIPConfig(text_config=clip_text().to_dict(), vision_config={**IMAGE, **SMALL}, projection_dim=12))
    clip.save_pretrained(tmp_path / "clip")
    model = TFCoVRForComposedRetrieval.from_vision_text_pretrained(tmp_path / "aim", tmp_path / "clip", **NARROW)
    aim_model = AIMForVideoClassification.from_pretrained(tmp_path / "aim").eval()
    torch.testing.assert_close(model.encode_video(CLIPS), aim_model.aim(CLIPS).pooler_output)
    expected = clip.eval().get_text_features(TOKENS, MASK).pooler_output
    torch.testing.assert_close(model.encode_text(TOKENS, MASK), expected)
    frames = TFCoVRForComposedRetrieval.from_vision_text_pretrained(
        tmp_path / "clip", tmp_path / "clip", vision_model_class="CLIPVisionModelWithProjection", fusion="average"
    )
    expected = torch.stack([clip.get_image_features(CLIPS[:, t]).pooler_output for t in range(4)]).mean(0)
    torch.testing.assert_close(frames.encode_video(CLIPS), expected)


def test_encoders_come_from_another_composed_model(tmp_path):
    trained = small_tfcovr(text_config=clip_text(), text_model_class="CLIPTextModel")
    trained.save_pretrained(tmp_path)
    model = TFCoVRForComposedRetrieval.from_vision_text_pretrained(tmp_path, tmp_path, fusion="gated", **NARROW)
    torch.testing.assert_close(model.encode_video(CLIPS), trained.encode_video(CLIPS))
    torch.testing.assert_close(model.encode_text(TOKENS, MASK), trained.encode_text(TOKENS, MASK))


def test_an_encoder_with_missing_weights_is_refused(tmp_path):
    BertModel(bert()).save_pretrained(tmp_path / "bert")
    CLIPModel(
        CLIPConfig(text_config=clip_text().to_dict(), vision_config={**IMAGE, **SMALL})
    ).vision_model.save_pretrained(tmp_path / "clip")
    with pytest.raises(ValueError, match="does not hold the weights of CLIPVisionModelWithProjection"):
        TFCoVRForComposedRetrieval.from_vision_text_pretrained(
            tmp_path / "clip", tmp_path / "bert", vision_model_class="CLIPVisionModelWithProjection", **NARROW
        )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"fusion": "sum"}, "sum"),
        ({"fusion": "gated", "projection_dim": 8}, "projection_dim must be its size 16, not 8"),
        ({"fusion": "average", "text_config": clip_text()}, "video embeddings have 16 and text embeddings 12"),
        ({"project_targets": False, "projection_dim": 8}, "project_targets=False needs projection_dim 16"),
        ({"project_text": False, "projection_dim": 8}, "project_text=False needs text embeddings of size 8"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"alpha": 0.0}, "alpha must lie in"),
        ({"text_model_class": "NoSuchModel"}, "not a model class"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(config, message):
    with pytest.raises(Exception, match=message):
        small_tfcovr(**config)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "a query needs a video"),
        ({"pixel_values": CLIPS, "video_embeds": torch.ones(2, 16)}, "one of pixel_values and video_embeds, not both"),
        ({"pixel_values": CLIPS[0]}, "pixel_values must be"),
    ],
)
def test_missing_or_doubled_inputs_are_refused(inputs, message):
    with pytest.raises(ValueError, match=message):
        small_tfcovr().get_query_features(**inputs)


def test_multi_positive_without_labels_is_refused():
    with pytest.raises(ValueError, match="needs target_labels"):
        small_tfcovr(loss="multi_positive")(CLIPS, TOKENS, MASK, CLIPS, return_loss=True)


def test_the_processor_makes_what_the_model_takes(processor):
    frames = torch.randint(0, 255, (6, 3, 10, 12), dtype=torch.uint8)
    batch = processor(videos=[frames, frames], text=["Show with 2.5 turns", "show"])
    assert batch["pixel_values"].shape == (2, 4, 3, 8, 8)
    assert processor.tokenizer.decode(batch["input_ids"][0]) == "[CLS] show with two and a half turns [SEP]"
    assert batch["attention_mask"].sum(1).tolist() == [9, 3]
    assert small_tfcovr().get_query_features(**batch).shape == (2, 16)
