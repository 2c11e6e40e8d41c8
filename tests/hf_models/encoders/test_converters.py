"""Converters, on made-up weights in the original layouts, against a second implementation of each model."""

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file
from small_encoders import IMAGES, SIDES, SMALL, WORDS, e5_v, mm_embed, random_videos, text_fields, word_tokenizer
from timm.models import byobnet, register_model
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import (
    AutoModel,
    AutoProcessor,
    BlipImageProcessor,
    BlipProcessor,
    CLIPImageProcessor,
    CLIPProcessor,
    CLIPTokenizer,
    MistralModel,
)

from hf_models import AIMConfig, AIMModel, TFCoVRForComposedRetrieval
from hf_models.checkpoints import read_checkpoint, renamed
from hf_models.encoders import convert_clip_resnet, convert_covr, convert_languagebind, convert_mmembed, load_encoder
from hf_models.feature_store import FeatureStore
from hf_models.tfcovr import convert_stage2

WIDTH, HIDDEN, INNER, SIZE, PATCHES = 64, 64, 96, 12, 4


def run_command(module, arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["convert", *map(str, arguments)])
        module.main()


def normal(*shape):
    return 0.2 * torch.randn(shape)


def norm_layer(name, width):
    return {f"{name}.weight": 1 + normal(width), f"{name}.bias": normal(width)}


def linear(name, out, given):
    return {f"{name}.weight": normal(out, given), f"{name}.bias": normal(out)}


def covr_weights():
    """One layer in each tower, in the layout of BLIP's own code."""
    torch.manual_seed(0)
    block, layer = "visual_encoder.blocks.0", "text_encoder.encoder.layer.0"
    weights = {
        "visual_encoder.cls_token": normal(1, 1, WIDTH),
        "visual_encoder.pos_embed": normal(1, 1 + PATCHES, WIDTH),
        "visual_encoder.patch_embed.proj.weight": normal(WIDTH, 3, 8, 8),
        "visual_encoder.patch_embed.proj.bias": normal(WIDTH),
        **norm_layer(f"{block}.norm1", WIDTH),
        **norm_layer(f"{block}.norm2", WIDTH),
        **linear(f"{block}.attn.qkv", 3 * WIDTH, WIDTH),
        **linear(f"{block}.attn.proj", WIDTH, WIDTH),
        **linear(f"{block}.mlp.fc1", INNER, WIDTH),
        **linear(f"{block}.mlp.fc2", WIDTH, INNER),
        **norm_layer("visual_encoder.norm", WIDTH),
        "text_encoder.embeddings.position_ids": torch.arange(40)[None],
        "text_encoder.embeddings.word_embeddings.weight": normal(len(WORDS) + 2, HIDDEN),
        "text_encoder.embeddings.position_embeddings.weight": normal(40, HIDDEN),
        **norm_layer("text_encoder.embeddings.LayerNorm", HIDDEN),
        **linear(f"{layer}.intermediate.dense", INNER, HIDDEN),
        **linear(f"{layer}.output.dense", HIDDEN, INNER),
        **norm_layer(f"{layer}.output.LayerNorm", HIDDEN),
        **linear("vision_proj", SIZE, WIDTH),
        **linear("text_proj", SIZE, HIDDEN),
    }
    for kind in ("attention", "crossattention"):
        for part in ("query", "key", "value"):
            weights |= linear(f"{layer}.{kind}.self.{part}", HIDDEN, HIDDEN)
        weights |= linear(f"{layer}.{kind}.output.dense", HIDDEN, HIDDEN)
        weights |= norm_layer(f"{layer}.{kind}.output.LayerNorm", HIDDEN)
    return weights


def attend(queries, keys, values, heads=1, mask=None):
    parts = [part.unflatten(-1, (heads, -1)).transpose(-2, -3) for part in (queries, keys, values)]
    return F.scaled_dot_product_attention(*parts, attn_mask=mask).transpose(-2, -3).flatten(-2)


class Original:
    """BLIP's own forward pass, written again from its layout."""

    bert = "text_encoder"

    def __init__(self, weights):
        self.weights = weights

    def linear(self, name, x):
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def norm(self, name, x, eps):
        return F.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], eps)

    def image(self, pixels):
        w, block = self.weights, "visual_encoder.blocks.0"
        kernel = w["visual_encoder.patch_embed.proj.weight"], w["visual_encoder.patch_embed.proj.bias"]
        patches = F.conv2d(pixels, *kernel, stride=8).flatten(2).transpose(1, 2)
        first = w["visual_encoder.cls_token"].expand(len(pixels), -1, -1)
        x = torch.cat([first, patches], 1) + w["visual_encoder.pos_embed"]
        qkv = self.linear(f"{block}.attn.qkv", self.norm(f"{block}.norm1", x, 1e-6)).chunk(3, -1)
        x = x + self.linear(f"{block}.attn.proj", attend(*qkv))
        inner = F.gelu(self.linear(f"{block}.mlp.fc1", self.norm(f"{block}.norm2", x, 1e-6)))
        return self.norm("visual_encoder.norm", x + self.linear(f"{block}.mlp.fc2", inner), 1e-6)

    def attention(self, kind, x, seen, mask=None):
        name = f"{self.bert}.encoder.layer.0.{kind}"
        given = {"query": x, "key": seen, "value": seen}
        found = attend(*(self.linear(f"{name}.self.{part}", each) for part, each in given.items()), mask=mask)
        return self.norm(f"{name}.output.LayerNorm", self.linear(f"{name}.output.dense", found) + x, 1e-12)

    def text(self, ids, seen=None, mask=None):
        w, start, layer = self.weights, f"{self.bert}.embeddings", f"{self.bert}.encoder.layer.0"
        x = w[f"{start}.word_embeddings.weight"][ids] + w[f"{start}.position_embeddings.weight"][: ids.shape[1]]
        x = self.norm(f"{start}.LayerNorm", x, 1e-12)
        x = self.attention("attention", x, x, mask)
        x = x if seen is None else self.attention("crossattention", x, seen)
        inner = self.linear(f"{layer}.output.dense", F.gelu(self.linear(f"{layer}.intermediate.dense", x)))
        x = self.norm(f"{layer}.output.LayerNorm", inner + x, 1e-12)
        return F.normalize(self.linear("text_proj", x[:, 0]), dim=-1)


@pytest.fixture(scope="module")
def covr(tmp_path_factory):
    """A made-up checkpoint of CoVR, as its training saves it, and the folder that the command makes of it."""
    root = tmp_path_factory.mktemp("covr")
    training = {"temp": torch.tensor(0.07), "image_queue": normal(3, 3), "queue_ptr": torch.zeros(1, dtype=torch.long)}
    torch.save({"model": covr_weights() | training, "epoch": 3}, root / "webvid-covr.ckpt")
    BlipProcessor(BlipImageProcessor(size=SIDES), word_tokenizer()).save_pretrained(root / "processor")
    run_command(convert_covr, [root / "webvid-covr.ckpt", root / "model", "--processor", root / "processor"])
    return root


def test_a_converted_covr_computes_what_the_original_does(covr):
    encoder, original = load_encoder(str(covr / "model")), Original(covr_weights())
    (video,), text = random_videos(1, 3, 32), "a dog runs"
    seen = original.image(encoder.images([video])["pixel_values"])
    each = F.normalize(original.linear("vision_proj", seen[:, 0]), dim=-1)
    assert_close(encoder.encode_video([video])[0], F.normalize(each.mean(0), dim=-1))
    ids = encoder.processor.tokenizer([text], return_tensors="pt")["input_ids"]
    ids[:, 0] = len(WORDS) + 1
    assert_close(encoder.encode_query([video], [text]), original.text(ids, seen[1:2]))


def stage2_weights():
    """TF-CoVR's model `aim` with one layer of text, as its training saves it."""
    torch.manual_seed(1)
    text = {name: weight for name, weight in covr_weights().items() if name.startswith("text_encoder.")}
    weights = {name.replace("text_encoder.", "Qformer.bert."): weight for name, weight in text.items()}
    layer = "Qformer.bert.encoder.layer.0"
    return weights | {
        **linear(f"{layer}.intermediate_query.dense", INNER, HIDDEN),
        **linear(f"{layer}.output_query.dense", HIDDEN, INNER),
        **linear("Qformer.cls.predictions.transform.dense", HIDDEN, HIDDEN),
        "query_tokens": normal(1, 4, HIDDEN),
        **linear("vision_proj", SIZE, HIDDEN),
        **linear("text_proj", SIZE, HIDDEN),
        **linear("combiner.text_projection_layer", 20, SIZE),
        **linear("combiner.image_projection_layer", 20, SIZE),
        **linear("combiner.combiner_layer", 28, 40),
        **linear("combiner.output_layer", SIZE, 28),
        **linear("combiner.dynamic_scalar.0", 28, 40),
        **linear("combiner.dynamic_scalar.3", 1, 28),
    }


class OriginalStage2(Original):
    """The released query and its layers, written again from their layout."""

    bert = "Qformer.bert"

    def query(self, video, ids, mask):
        text = self.text(ids, mask=mask[:, None, None].bool())
        halves = [self.linear("combiner.text_projection_layer", text)]
        halves.append(self.linear("combiner.image_projection_layer", video))
        both = torch.cat(halves, -1).relu()
        gate = self.linear("combiner.dynamic_scalar.0", both).relu()
        gate = self.linear("combiner.dynamic_scalar.3", gate).sigmoid()
        fused = self.linear("combiner.output_layer", self.linear("combiner.combiner_layer", both).relu())
        return F.normalize(fused + gate * text + (1 - gate) * video, dim=-1)


def import_embeddings(folder):
    details = {"imported_from": "aim.pkl", "sha256": "8c1f", "size": SIZE}
    FeatureStore(folder / "embeddings" / "video", details).append(["a"], torch.zeros(1, SIZE))


class CosineSchedule:
    """The release's own, which stands in its checkpoint as an object."""

    def __init__(self):
        self.max_epochs = 100


@pytest.fixture
def stage2(tmp_path, monkeypatch):
    """The released checkpoint, made up, and a folder into which embeddings were imported."""
    monkeypatch.setattr(CosineSchedule, "__module__", "src.tools.scheduler")
    package = {name: ModuleType(name) for name in ("src", "src.tools", "src.tools.scheduler")}
    package["src.tools.scheduler"].CosineSchedule = CosineSchedule
    with monkeypatch.context() as patch:  # of the training, not of the conversion
        for name, module in package.items():
            patch.setitem(sys.modules, name, module)
        torch.save({"epoch": 3, "model": stage2_weights(), "scheduler": CosineSchedule()}, tmp_path / "best.ckpt")
    import_embeddings(tmp_path)
    word_tokenizer().save_pretrained(tmp_path / "tokenizer")
    return tmp_path


def test_a_converted_stage_2_composes_what_the_release_does(stage2, capsys):
    command = [stage2 / "best.ckpt", stage2 / "model", "--video", stage2 / "embeddings"]
    run_command(convert_stage2, [*command, "--tokenizer", stage2 / "tokenizer"])
    assert "for videos of size 12" in capsys.readouterr().out
    model = AutoModel.from_pretrained(stage2 / "model")
    tokens = AutoProcessor.from_pretrained(stage2 / "model")(text=["a dog runs", "a"])
    video, original = normal(2, SIZE), OriginalStage2(stage2_weights())
    assert tokens["attention_mask"].tolist()[1] != tokens["attention_mask"].tolist()[0]
    assert_close(
        model.get_query_features(video_embeds=video, **tokens),
        original.query(video, tokens["input_ids"], tokens["attention_mask"]),
    )
    assert_close(model.get_target_features(video_embeds=video), F.normalize(video, dim=-1))
    assert model.config.imported_video == {"imported_from": "aim.pkl", "sha256": "8c1f", "size": SIZE}


def test_a_converted_stage_2_takes_an_aim_of_the_same_size(stage2):
    small = {"hidden_size": SIZE, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    aim = AIMModel(AIMConfig(num_frames=2, image_size=8, patch_size=4, **small)).eval()
    aim.save_pretrained(stage2 / "aim")
    model = convert_stage2.convert(stage2 / "best.ckpt", str(stage2 / "aim"))
    pixels = torch.rand(1, 2, 3, 8, 8)
    assert_close(model.encode_video(pixels), aim(pixels).pooler_output)


def test_a_stage_2_on_embeddings_of_an_encoder_of_ones_own_is_refused(stage2):
    FeatureStore(stage2 / "own" / "video", {"weights": "8c1f"}).append(["a"], torch.zeros(1, SIZE))
    with pytest.raises(ValueError, match="were not imported; name the AIM that made them"):
        convert_stage2.convert(stage2 / "best.ckpt", str(stage2 / "own"))


VISION = {**SMALL, **IMAGES, "hidden_act": "gelu"}
RELEASED = {
    "model_type": "LanguageBindVideo",
    "projection_dim": SIZE,
    "text_config": {**text_fields(), "hidden_act": "gelu", "vocab_size": 300},
    "vision_config": {**VISION, "add_time_attn": True, "num_frames": 3, "lora_r": 0, "force_patch_dropout": 0.5},
}


def languagebind_weights():
    """One layer in each tower, in the layout of LanguageBind's own code."""
    torch.manual_seed(0)
    weights = {
        "logit_scale": torch.tensor(2.6),
        "visual_projection.weight": normal(SIZE, 16),
        "text_projection.weight": normal(SIZE, 16),
        "text_model.embeddings.token_embedding.weight": normal(300, 16),
        "text_model.embeddings.position_embedding.weight": normal(40, 16),
        "text_model.embeddings.position_ids": torch.arange(40)[None],
        **norm_layer("text_model.final_layer_norm", 16),
        "vision_model.embeddings.class_embedding": normal(16),
        "vision_model.embeddings.patch_embedding.weight": normal(16, 3, 8, 8),
        "vision_model.embeddings.position_embedding.weight": normal(5, 16),
        "vision_model.embeddings.position_ids": torch.arange(5)[None],
        **norm_layer("vision_model.pre_layrnorm", 16),
        **norm_layer("vision_model.post_layernorm", 16),
        "vision_model.encoder.layers.0.temporal_embedding": normal(1, 3, 16),
        **norm_layer("vision_model.encoder.layers.0.temporal_layer_norm1", 16),
    }
    for tower, kinds in (("text", ["self"]), ("vision", ["self", "temporal"])):
        layer = f"{tower}_model.encoder.layers.0"
        for kind in kinds:
            for part in ("q", "k", "v", "out"):
                weights |= linear(f"{layer}.{kind}_attn.{part}_proj", 16, 16)
        weights |= norm_layer(f"{layer}.layer_norm1", 16) | norm_layer(f"{layer}.layer_norm2", 16)
        weights |= linear(f"{layer}.mlp.fc1", 32, 16) | linear(f"{layer}.mlp.fc2", 16, 32)
    return weights


def release(folder, weights=None, **changes):
    """A folder as LanguageBind released it."""
    folder.mkdir()
    torch.save(languagebind_weights() if weights is None else weights, folder / "pytorch_model.bin")
    vision = {**RELEASED["vision_config"], **changes}
    (folder / "config.json").write_text(json.dumps({**RELEASED, "vision_config": vision}))
    letters = [chr(code) for code in range(97, 123)]
    words = {mark: index for index, mark in enumerate([*letters, *(f"{letter}</w>" for letter in letters)])}
    words |= {"<|startoftext|>": 52, "<|endoftext|>": 53}
    CLIPTokenizer(vocab=words, merges=[]).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def languagebind(tmp_path_factory):
    """A made-up release and the folder that the command makes of it."""
    root = tmp_path_factory.mktemp("languagebind")
    run_command(convert_languagebind, [release(root / "released"), root / "model"])
    return root


def frames_as_released(weights, pixels):
    """LanguageBind's vision tower, written again from its layout: `(B, T, 3, H, W)` to `(B, D)`."""
    original, count = Original(weights), pixels.shape[:2]
    layer, start = "vision_model.encoder.layers.0", "vision_model.embeddings"

    def block(kind, x):
        parts = [original.linear(f"{layer}.{kind}_attn.{part}_proj", x) for part in "qkv"]
        return original.linear(f"{layer}.{kind}_attn.out_proj", attend(*parts, heads=2))

    patches = F.conv2d(pixels.flatten(0, 1), weights[f"{start}.patch_embedding.weight"], stride=8).flatten(2).mT
    first = weights[f"{start}.class_embedding"].expand(len(patches), 1, -1)
    x = torch.cat([first, patches], 1) + weights[f"{start}.position_embedding.weight"]
    x = original.norm("vision_model.pre_layrnorm", x, 1e-5)
    x = x.unflatten(0, count).transpose(1, 2) + weights[f"{layer}.temporal_embedding"]
    x = x + block("temporal", original.norm(f"{layer}.temporal_layer_norm1", x, 1e-5))
    x = x.transpose(1, 2).flatten(0, 1)
    x = x + block("self", original.norm(f"{layer}.layer_norm1", x, 1e-5))
    inner = F.gelu(original.linear(f"{layer}.mlp.fc1", original.norm(f"{layer}.layer_norm2", x, 1e-5)))
    x = x + original.linear(f"{layer}.mlp.fc2", inner)
    pooled = original.norm("vision_model.post_layernorm", x[:, 0], 1e-5).unflatten(0, count).mean(1)
    return F.normalize(pooled @ weights["visual_projection.weight"].T, dim=-1)


def test_a_converted_languagebind_computes_what_the_original_does(languagebind):
    encoder, videos = load_encoder(str(languagebind / "model")), random_videos(2, 3, 32)
    pixels = encoder.images(videos)["pixel_values"].unflatten(0, (2, 3))
    assert encoder.num_frames == 3
    assert_close(encoder.encode_video(videos), frames_as_released(languagebind_weights(), pixels))
    assert encoder.encode_query(videos, ["dog", "a dog"]).shape == (2, SIZE)


def test_a_release_that_is_no_whole_languagebind_is_refused(tmp_path):
    with pytest.raises(ValueError, match="describes a model with LoRA; take LanguageBind_Video_FT"):
        convert_languagebind.convert(release(tmp_path / "lora", lora_r=16))
    with pytest.raises(ValueError, match="is not of LanguageBind for video with attention over time"):
        convert_languagebind.convert(release(tmp_path / "image", add_time_attn=False))
    with pytest.raises(ValueError, match=r"there is no .*config.json"):
        convert_languagebind.convert(tmp_path)
    weights = {**languagebind_weights(), "vision_model.adapter.weight": normal(2)}
    weights.pop("vision_model.encoder.layers.0.temporal_attn.k_proj.bias")
    with pytest.raises(ValueError, match=r"(?s)does not fit.*temporal_attn.k_proj.bias.*adapter.weight"):
        convert_languagebind.convert(release(tmp_path / "other", weights))


LATENTS = "latent_attention_model.cross_attend_blocks"
RELEASED_NAMES = {
    "vision_tower.": "vision_tower.vision_model.",
    "latent_attention.latents": "latent_attention_model.latents",
    "latent_attention.query.": f"{LATENTS}.0.fn.to_q.",
    "latent_attention.key_value.": f"{LATENTS}.0.fn.to_kv.",
    "latent_attention.out.": f"{LATENTS}.0.fn.to_out.",
    "latent_attention.norm.": f"{LATENTS}.0.norm.",
    "latent_attention.latent_norm.": f"{LATENTS}.0.norm_context.",
    "latent_attention.feed_norm.": f"{LATENTS}.1.norm.",
    "latent_attention.up.": f"{LATENTS}.1.fn.net.0.",
    "latent_attention.down.": f"{LATENTS}.1.fn.net.2.",
}


def released_name(name):
    start = next((start for start in RELEASED_NAMES if name.startswith(start)), "")
    return RELEASED_NAMES.get(start, "") + name.removeprefix(start)


@pytest.fixture(scope="module")
def mmembed(tmp_path_factory):
    """A made-up release of MM-Embed in two files, NV-Embed's configuration, and what the command makes of them."""
    root = tmp_path_factory.mktemp("mmembed")
    torch.manual_seed(0)
    model, processor = mm_embed()
    weights = {released_name(name): normal(*weight.shape) for name, weight in model.state_dict().items()}
    (root / "released").mkdir()
    for number, half in enumerate((list(weights)[::2], list(weights)[1::2])):
        save_file({name: weights[name] for name in half}, root / "released" / f"model-{number}.safetensors")
    released = e5_v()[0].config.to_dict() | {"architectures": ["NVMMEmbedModel"], "retriever": "nvidia/NV-Embed-v1"}
    (root / "released" / "config.json").write_text(json.dumps(released))
    processor.save_pretrained(root / "released")
    text = {name: getattr(model.config.text_config, name) for name in convert_mmembed.LLM_FIELDS} | {"rope_theta": 50.0}
    (root / "retriever").mkdir()
    embedder = {"text_config": text, "latent_attention_config": {"num_cross_heads": 2}}
    (root / "retriever" / "config.json").write_text(json.dumps(embedder))
    run_command(convert_mmembed, [root / "released", root / "model", "--retriever", root / "retriever"])
    return root, weights


def pooled_as_released(weights, states):
    """NV-Embed's pooling of states `(L, D)`, written again from its layout."""

    def norm(name, x):
        return F.layer_norm(x, x.shape[-1:], weights[f"{LATENTS}.{name}.weight"], weights[f"{LATENTS}.{name}.bias"])

    def linear(name, x):
        return F.linear(x, weights[f"{LATENTS}.{name}.weight"], weights.get(f"{LATENTS}.{name}.bias"))

    keys, values = linear("0.fn.to_kv", norm("0.norm_context", weights["latent_attention_model.latents"])).chunk(2, -1)
    states = states + linear("0.fn.to_out", attend(linear("0.fn.to_q", norm("0.norm", states)), keys, values, heads=2))
    content, gates = linear("1.fn.net.0", norm("1.norm", states)).chunk(2, -1)
    return states + linear("1.fn.net.2", content * F.gelu(gates))


def test_a_converted_mm_embed_computes_what_the_original_does(mmembed):
    root, weights = mmembed
    encoder = load_encoder(str(root / "model"), num_frames=2)
    text = MistralModel(encoder.model.config.text_config).eval()
    start = "language_model."
    text.load_state_dict({name.removeprefix(start): each for name, each in weights.items() if name.startswith(start)})
    assert text.config.rope_parameters["rope_theta"] == 50
    ids = encoder.token_ids("a dog runs")
    both_ways = torch.zeros(1, 1, len(ids), len(ids))
    states = text(torch.tensor([ids]), attention_mask=both_ways).last_hidden_state[0]
    wanted = F.normalize(pooled_as_released(weights, states).mean(0), dim=0)
    assert_close(encoder.encode_text(["a dog runs", "dog"])[0], wanted, atol=1e-5, rtol=1e-4)


def test_the_instruction_of_mm_embed_does_not_count_in_its_mean(mmembed):
    encoder = load_encoder(str(mmembed[0] / "model"), num_frames=2)
    prompt = encoder.prompt("<image>", "dog")
    assert prompt.startswith("Instruct: Retrieve a day-to-day image")
    assert prompt.endswith("\nQuery: <image>\ndog")
    assert encoder.count_instruction(prompt) == len(encoder.token_ids(prompt.partition("\nQuery: ")[0])) > 1
    for uninstructed in (encoder.prompt("", "dog"), encoder.prompt("<image>", None)):
        assert encoder.count_instruction(uninstructed) == 0


def test_a_release_that_is_no_whole_mm_embed_is_refused(mmembed, tmp_path):
    root, _ = mmembed
    with pytest.raises(ValueError, match="there are no safetensors in"):
        convert_mmembed.convert(tmp_path)
    folder = Path(shutil.copytree(root / "released", tmp_path / "released"))
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(ValueError, match=r"does not fit: .*Missing key|the checkpoint lacks"):
        convert_mmembed.convert(folder, str(root / "retriever"))
    (folder / "config.json").write_text('{"architectures": ["Other"]}')
    with pytest.raises(ValueError, match="is not MM-Embed; name the downloaded folder"):
        convert_mmembed.convert(folder, str(root / "retriever"))


WIDTH_OF_TEXT, PIXELS = 64, 64


@register_model
def tiny_resnet_clip(pretrained=False, num_classes=SIZE, img_size=PIXELS, **_):
    """timm's ResNet of CLIP with one block in each stage and an eighth of the width."""
    released = byobnet.model_cfgs["resnet50_clip"]
    blocks = tuple(dataclasses.replace(block, d=1, c=block.c // 8) for block in released.blocks)
    cfg = dataclasses.replace(released, blocks=blocks, stem_chs=(4, 4, 8))
    return byobnet.ByobNet(cfg, num_classes=num_classes, img_size=img_size)


def batch_norm(name, size):
    running = {f"{name}.running_mean": normal(size), f"{name}.running_var": 1 + torch.rand(size)}
    return norm_layer(name, size) | running | {f"{name}.num_batches_tracked": torch.tensor(3)}


def resnet_weights():
    """A ResNet of CLIP in OpenAI's layout."""
    torch.manual_seed(2)
    weights, given = {}, 3
    for number, size in enumerate((4, 4, 8), start=1):
        weights[f"visual.conv{number}.weight"] = normal(size, given, 3, 3)
        weights |= batch_norm(f"visual.bn{number}", size)
        given = size
    for number in range(1, 5):
        inner, block = 4 * 2**number, f"visual.layer{number}.0"
        shapes = ((inner, given, 1, 1), (inner, inner, 3, 3), (4 * inner, inner, 1, 1))
        for place, shape in enumerate(shapes, start=1):
            weights |= batch_norm(f"{block}.bn{place}", shape[0])
            weights[f"{block}.conv{place}.weight"] = normal(*shape)
        weights |= batch_norm(f"{block}.downsample.1", 4 * inner)
        weights[f"{block}.downsample.0.weight"] = normal(4 * inner, given, 1, 1)
        given = 4 * inner
    pool, layer = "visual.attnpool", "transformer.resblocks.0"
    weights[f"{pool}.positional_embedding"] = normal(1 + (PIXELS // 32) ** 2, given)
    for part in "qkv":
        weights |= linear(f"{pool}.{part}_proj", given, given)
    width = WIDTH_OF_TEXT
    attention = linear(f"{layer}.attn.in_proj", 3 * width, width)
    return weights | {
        **linear(f"{pool}.c_proj", SIZE, given),
        **{name.replace("in_proj.", "in_proj_"): weight for name, weight in attention.items()},
        **linear(f"{layer}.attn.out_proj", width, width),
        **norm_layer(f"{layer}.ln_1", width),
        **norm_layer(f"{layer}.ln_2", width),
        **linear(f"{layer}.mlp.c_fc", 4 * width, width),
        **linear(f"{layer}.mlp.c_proj", width, 4 * width),
        **norm_layer("ln_final", width),
        "token_embedding.weight": normal(len(WORDS), width),
        "positional_embedding": normal(40, width),
        "text_projection": normal(width, SIZE),
        "logit_scale": torch.tensor(4.6),
    }


class OriginalResNet(Original):
    """OpenAI's CLIP with a ResNet, written again from its layout."""

    def convolve(self, conv, norm, x, **how):
        w = self.weights
        x = F.conv2d(x, w[f"{conv}.weight"], **how)
        running = w[f"{norm}.running_mean"], w[f"{norm}.running_var"]
        return F.batch_norm(x, *running, w[f"{norm}.weight"], w[f"{norm}.bias"])

    def image(self, x):
        for number in (1, 2, 3):
            how = {"padding": 1, "stride": 2 if number == 1 else 1}
            x = self.convolve(f"visual.conv{number}", f"visual.bn{number}", x, **how).relu()
        x = F.avg_pool2d(x, 2)
        for number in range(1, 5):
            block = f"visual.layer{number}.0"
            y = self.convolve(f"{block}.conv1", f"{block}.bn1", x).relu()
            y = self.convolve(f"{block}.conv2", f"{block}.bn2", y, padding=1).relu()
            x, y = (F.avg_pool2d(part, 2) if number > 1 else part for part in (x, y))
            y = self.convolve(f"{block}.conv3", f"{block}.bn3", y)
            x = (y + self.convolve(f"{block}.downsample.0", f"{block}.downsample.1", x)).relu()
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(1, keepdim=True), x], 1) + self.weights["visual.attnpool.positional_embedding"]
        parts = [self.linear(f"visual.attnpool.{part}_proj", x) for part in "qkv"]
        found = attend(parts[0][:, :1], *parts[1:], heads=x.shape[-1] // 64)
        return self.linear("visual.attnpool.c_proj", found[:, 0])

    def text(self, ids):
        w, layer = self.weights, "transformer.resblocks.0"
        x = w["token_embedding.weight"][ids] + w["positional_embedding"][: ids.shape[1]]
        fused = w[f"{layer}.attn.in_proj_weight"], w[f"{layer}.attn.in_proj_bias"]
        parts = F.linear(self.norm(f"{layer}.ln_1", x, 1e-5), *fused).chunk(3, -1)
        before = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        x = x + self.linear(f"{layer}.attn.out_proj", attend(*parts, mask=before))
        inner = self.linear(f"{layer}.mlp.c_fc", self.norm(f"{layer}.ln_2", x, 1e-5))
        x = x + self.linear(f"{layer}.mlp.c_proj", inner * torch.sigmoid(1.702 * inner))
        return self.norm("ln_final", x, 1e-5)[torch.arange(len(ids)), ids.argmax(1)] @ w["text_projection"]


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """A made-up CLIP with a ResNet, and the folder that the command makes of it."""
    root = tmp_path_factory.mktemp("resnet")
    given = {name: weight.contiguous() for name, weight in resnet_weights().items()}
    save_file(given, root / "open_clip_model.safetensors")
    CLIPProcessor(CLIPImageProcessor(), word_tokenizer()).save_pretrained(root / "processor")
    command = [root / "open_clip_model.safetensors", root / "model", "--architecture", "tiny_resnet_clip"]
    run_command(convert_clip_resnet, [*command, "--processor", root / "processor"])
    return root


def test_a_converted_resnet_of_clip_computes_what_the_original_does(resnet):
    encoder, original = load_encoder(str(resnet / "model"), num_frames=2), OriginalResNet(resnet_weights())
    (video,), text = random_videos(1, 2, PIXELS), "a dog runs then"
    pixels = encoder.images([video])["pixel_values"]
    each = original.image(pixels)
    assert_close(encoder.encode_video([video])[0], F.normalize(F.normalize(each, dim=-1).mean(0), dim=-1))
    ids = encoder.processor.tokenizer([text], return_tensors="pt")["input_ids"]
    assert_close(encoder.encode_text([text]), F.normalize(original.text(ids), dim=-1))


def test_stage_2_takes_both_towers_of_a_resnet_of_clip(resnet, tmp_path):
    fields = {"fusion": "gated", "project_text": False, "fusion_projection_dim": 8, "fusion_hidden_dim": 8}
    model = TFCoVRForComposedRetrieval.from_vision_text_pretrained(resnet / "model", resnet / "model", **fields)
    original, pixels = OriginalResNet(resnet_weights()), torch.rand(1, 2, 3, PIXELS, PIXELS)
    assert_close(model.encode_video(pixels)[0], original.image(pixels[0]).mean(0))
    ids = torch.tensor([[3, 4, len(WORDS) - 1]])
    assert_close(model.encode_text(ids), original.text(ids))
    model.save_pretrained(tmp_path)
    assert_close(AutoModel.from_pretrained(tmp_path).encode_video(pixels), model.encode_video(pixels))


def test_each_weight_of_covr_and_of_languagebind_stands_in_the_model_unchanged(covr, languagebind):
    of_training = r"temp|.*_queue|queue_ptr|.*position_ids"
    given = read_checkpoint(covr / "webvid-covr.ckpt", skip=of_training)
    given = {renamed(name, convert_covr.RENAMES): weight for name, weight in given.items()}
    made = load_encoder(str(covr / "model")).model.state_dict()
    assert not any(made.pop(f"itm_head.{part}").any() for part in ("weight", "bias"))
    assert_close(dict(made), given, atol=0, rtol=0)
    given = {name: weight for name, weight in languagebind_weights().items() if "position_ids" not in name}
    made = AutoModel.from_pretrained(languagebind / "model").state_dict()
    assert_close(dict(made), given, atol=0, rtol=0)


def test_a_command_does_not_write_over_a_folder(covr, languagebind):
    for module, given in ((convert_covr, covr / "webvid-covr.ckpt"), (convert_languagebind, languagebind / "released")):
        processor = ["--processor", covr / "processor"] if module is convert_covr else []
        with pytest.raises(SystemExit, match="is there already; name a new folder"):
            run_command(module, [given, languagebind / "model", *processor])
        assert not list(languagebind.glob(".model-*"))


CONVERSIONS = {
    "covr": (covr_weights, convert_covr.convert),
    "stage 2": (stage2_weights, lambda path: convert_stage2.convert(path, str(path.parent / "embeddings"))),
    "resnet": (resnet_weights, lambda path: convert_clip_resnet.convert(path, "tiny_resnet_clip")),
}


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("covr", {"adapter.weight": normal(2)}, "Unexpected key.*adapter.weight"),
        ("covr", {"vision_proj.bias": None}, "Missing key.*vision_proj.bias"),
        ("covr", {"text_proj.bias": normal(5)}, "size mismatch for text_proj.bias"),
        ("covr", {"visual_encoder.cls_token": None}, "lacks vision_model.embeddings.class_embedding"),
        ("covr", {"visual_encoder.blocks.4.norm1.weight": normal(WIDTH)}, "not numbered from 0: 0, 4"),
        (
            "stage 2",
            {"clip.logit_scale": normal(1)},
            "1 weights have no place in TF-CoVR's stage 2 with BERT, such as clip.logit",
        ),
        ("stage 2", {"text_proj.bias": None}, "Missing key.*text_projection.bias"),
        (
            "stage 2",
            {"combiner.output_layer.weight": normal(SIZE, 5)},
            "size mismatch for fusion.output_projection.weight",
        ),
        ("stage 2", {"combiner.output_layer.bias": normal(5)}, "takes video embeddings of size 5, and .* has 12"),
        ("resnet", {"adapter.weight": normal(2)}, "adapter.weight"),
        ("resnet", {"visual.attnpool.c_proj.bias": None}, "Missing key.*head.proj.bias"),
        ("resnet", {"ln_final.bias": None}, "lacks ln_final.bias"),
    ],
)
def test_a_checkpoint_that_is_not_the_whole_model_is_refused(tmp_path, kind, change, message):
    make, convert = CONVERSIONS[kind]
    weights = {name: weight for name, weight in (make() | change).items() if weight is not None}
    torch.save({"model": weights}, tmp_path / "other.ckpt")
    import_embeddings(tmp_path)
    with pytest.raises(ValueError, match=rf"(?s){message}"):
        convert(tmp_path / "other.ckpt")
