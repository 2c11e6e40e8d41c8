"""Models of the Hub as encoders of clips and of tokens."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    BertConfig,
    BertModel,
    BertTokenizerFast,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    ConvNextImageProcessor,
    ResNetConfig,
    ResNetModel,
    TimmWrapperConfig,
    TimmWrapperModel,
)

from hf_models import AIMConfig, AIMModel, AIMVideoProcessor
from hf_models.moments.feature_encoders import ClipEncoder, TokenEncoder

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "show", "red", "green", "blue"]
CLIPS = torch.randint(0, 255, (2, 4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def clip(tmp_path):
    small = {**SMALL, "projection_dim": 8}
    vision = {"image_size": 16, "patch_size": 8, **small}
    CLIPModel(CLIPConfig(vision_config=vision, text_config=small, projection_dim=8)).save_pretrained(tmp_path)
    CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}).save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture
def text(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    BertModel(BertConfig(vocab_size=len(WORDS), **SMALL)).save_pretrained(tmp_path)
    BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    return tmp_path


def test_a_video_model_gives_a_vector_per_clip_of_as_many_frames_as_it_was_trained_with(tmp_path):
    AIMModel(AIMConfig(num_frames=4, image_size=16, patch_size=8, **SMALL)).save_pretrained(tmp_path)
    AIMVideoProcessor(size={"height": 16, "width": 16}, num_frames=4).save_pretrained(tmp_path)
    aim = ClipEncoder(tmp_path)  # one state per frame
    assert (aim.frames_per_clip, aim(CLIPS).shape) == (4, (2, 16))


def test_a_convolutional_model_gives_a_vector_per_clip(tmp_path):
    small = ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic")
    ResNetModel(small).save_pretrained(tmp_path)
    ConvNextImageProcessor(size={"shortest_edge": 32}).save_pretrained(tmp_path)
    resnet = ClipEncoder(tmp_path, frames_per_clip=2)
    assert (resnet.frames_per_clip, resnet.size, resnet(CLIPS[:, :2]).shape) == (2, 32, (2, 12))


def test_a_model_of_timm_gives_a_vector_per_clip_of_frames_as_large_as_it_resizes_them(tmp_path):
    pretrained = {"input_size": (3, 32, 32), "crop_pct": 0.8}
    TimmWrapperModel(TimmWrapperConfig(architecture="test_resnet", pretrained_cfg=pretrained)).save_pretrained(tmp_path)
    encoder = ClipEncoder(tmp_path, frames_per_clip=2)
    assert encoder.size == encoder.processor.val_transforms.transforms[0].size == 40
    assert encoder(CLIPS[:, :2]).shape == (2, encoder.model.timm_model.num_features)
    assert encoder.fingerprints == ClipEncoder(tmp_path).fingerprints


def test_a_clip_gives_what_its_vision_tower_pools_and_not_what_it_projects(clip):
    encoder, whole = ClipEncoder(clip), AutoModel.from_pretrained(clip).eval()
    pixels = encoder.processor(images=list(CLIPS.flatten(0, 1)), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        expected = whole.vision_model(pixel_values=pixels).pooler_output.unflatten(0, (2, 4)).amax(1)
    torch.testing.assert_close(encoder(CLIPS), expected)


def test_a_text_gives_a_vector_per_token_whatever_it_is_padded_with(text):
    encoder = TokenEncoder(text)
    together, alone = encoder(["show red green blue", "red"]), encoder(["red"])
    assert [tuple(features.shape) for features in together] == [(6, 16), (3, 16)]  # with [CLS] and [SEP]
    torch.testing.assert_close(together[1], alone[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("make", "prefix"), [(ClipEncoder, "vision_model.encoder"), (TokenEncoder, "encoder")])
def test_weights_that_are_missing_and_read_are_refused(make, prefix, request):
    folder = request.getfixturevalue("clip" if make is ClipEncoder else "text")
    weights = load_file(folder / "model.safetensors")
    unread = {name for name in weights if name.startswith(("text_model", "pooler"))}
    save_file({name: weights[name] for name in weights.keys() - unread}, folder / "model.safetensors", {"format": "pt"})
    assert unread
    make(folder)
    lost = {name for name in weights if name.startswith(prefix)}
    rest = {name: weights[name] for name in weights.keys() - unread - lost}
    save_file(rest, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=f"{len(lost)} weights of .* are missing or do not fit, such as {prefix}"):
        make(folder)


def test_texts_longer_than_the_model_reads_are_cut_and_counted(text):
    encoder = TokenEncoder(text)
    encoder.max_tokens = 4
    assert [len(features) for features in encoder(["show red green blue", "red"])] == [4, 3]
    assert encoder.count_cut(["show red green blue", "red"]) == 1


def test_fingerprints_name_what_a_vector_depends_on(clip, text):
    assert ClipEncoder(clip).fingerprints.keys() == {"weights", "processor"}
    before = TokenEncoder(text).fingerprints
    assert before.keys() == {"weights", "tokenizer"}
    assert TokenEncoder(text).fingerprints == before
