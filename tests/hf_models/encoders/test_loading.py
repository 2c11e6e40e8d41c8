"""What is refused before or while a model loads, and by what cure; what a model will cost."""

import json
import shutil
from functools import reduce
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from small_encoders import blip, clip, e5_v, gme, random_videos, siglip, v_jepa_2, x_clip
from small_vidclip import FRAMES, make_processor, small_vidclip
from transformers import AutoModel, CLIPConfig, CLIPTextConfig, LlavaNextConfig, Qwen2VLConfig

from hf_models.checkpoints import opening
from hf_models.encoders import ENCODERS, GMEEncoder, estimate, load_encoder
from hf_models.encoders.estimates import check_memory, estimate_model

VIDEOS = random_videos(2, 4, 32)


@pytest.fixture
def copy_of(folder_of, tmp_path):
    """`copy_of(make)` is a folder to spoil."""
    return lambda make: Path(shutil.copytree(folder_of(make), tmp_path / make.__name__))


def change(folder, name, **fields):
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_a_model_without_a_text_tower_embeds_videos_and_refuses_texts(encoder_of):
    encoder = encoder_of(v_jepa_2)
    assert not encoder.reads_texts
    for encode in (lambda: encoder.encode_text(["dog"]), lambda: encoder.encode_query(VIDEOS[:1], ["dog"])):
        with pytest.raises(ValueError, match=r"no text tower.* `encode_video`, or choose a model that reads texts"):
            encode()
    queries = encoder.encode_video(VIDEOS)
    torch.testing.assert_close(encoder.compare_queries(queries, queries).diagonal(), torch.ones(2))


def test_vidclip_reads_the_whole_of_a_long_text(tmp_path):
    small_vidclip().save_pretrained(tmp_path)
    processor = make_processor()
    processor.tokenizer.model_max_length = 40
    processor.save_pretrained(tmp_path)
    encoder = load_encoder(str(tmp_path))
    assert (encoder.processor.tokenizer.model_max_length, encoder.num_frames) == (40, FRAMES)
    assert encoder.tokens(["dog " * 100])["input_ids"].shape[1] > 100


def test_a_model_without_videos_and_texts_is_refused(tmp_path):
    CLIPTextConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="'clip_text_model' model, which does not compare videos"):
        load_encoder(str(tmp_path))


def test_a_processor_of_another_family_is_refused(copy_of, folder_of):
    folder = copy_of(siglip)
    for path in Path(folder_of(blip)).glob("*processor*"):
        shutil.copy(path, folder)
    with pytest.raises(ValueError, match="holds a BlipProcessor, and a 'siglip' model takes a SiglipProcessor; save"):
        load_encoder(str(folder))


@pytest.mark.parametrize(
    ("part", "fields", "message"),
    [
        ("text_config", {"vocab_size": 10_000_000}, r"asks for 160,\d{3},\d{3} weights, and its files hold"),
        ("vision_config", {"num_hidden_layers": 200_000}, "asks for num_hidden_layers=200,000, and its weights have"),
        (
            "vision_config",
            {"num_hidden_layers": 0},
            "have vision_model.encoder.layers.0, which its configuration leaves out",
        ),
        ("text_config", {"max_position_embeddings": 10**9}, r"asks for [\d,]+ weights, and its files hold"),
        ("text_config", {"num_labels": 10**9}, "asks for num_labels=1,000,000,000"),
        ("vision_config", {"hidden_size": "16"}, r"cannot be opened as a model \(StrictDataclass"),
        ("vision_config", {"num_attention_heads": 0}, r"cannot be opened as a model \(ZeroDivisionError"),
        ("text_config", {"hidden_act": "none"}, r"cannot be opened as a model \(KeyError"),
        ("vision_config", {"patch_size": 4}, "cannot be opened as a model|do not fit, such as"),
    ],
)
def test_a_configuration_that_asks_for_another_model_than_its_weights_is_refused(copy_of, part, fields, message):
    folder = copy_of(clip)
    config = json.loads((folder / "config.json").read_text())
    change(folder, "config.json", **{part: {**config[part], **fields}})
    with pytest.raises(ValueError, match=message):
        load_encoder(str(folder))


@pytest.mark.parametrize("name", ["config.json", "processor_config.json", "tokenizer.json", "tokenizer_config.json"])
@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1}'])
def test_a_damaged_file_of_a_model_is_named_with_its_folder(copy_of, name, text):
    folder = copy_of(clip)
    (folder / name).write_text(text)
    try:
        load_encoder(str(folder))
    except (ValueError, OSError) as error:
        assert str(folder) in str(error)  # noqa: PT017 - some of these files may be empty


def test_a_tokenizer_with_more_words_than_the_model_is_refused(copy_of):
    folder = copy_of(clip)
    config = json.loads((folder / "config.json").read_text())
    change(folder, "config.json", text_config={**config["text_config"], "vocab_size": 6})
    with pytest.raises(ValueError, match="has 8 tokens and the model reads 6; save the processor"):
        load_encoder(str(folder))


def test_a_model_that_reads_no_whole_word_is_refused(copy_of):
    folder = copy_of(clip)
    change(folder, "tokenizer_config.json", model_max_length=1)
    with pytest.raises(ValueError, match="clip reads texts of 1 tokens, too few for a word"):
        load_encoder(str(folder))


def test_weights_that_are_not_all_there_are_refused(copy_of, folder_of, capfd):
    folder = copy_of(blip)
    weights = load_file(folder / "model.safetensors")
    rest = {name: weight for name, weight in weights.items() if not name.startswith("text_proj")}
    save_file(rest, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ValueError, match=r"2 weights of .* are missing or do not fit, such as text_proj.bias, text_proj.weight; it"
    ):
        load_encoder(str(folder))
    load_encoder(folder_of(e5_v))  # with a language head that is not needed
    assert "REPORT" not in capfd.readouterr().err


def test_weights_of_other_shapes_are_refused(copy_of):
    folder = copy_of(blip)
    change(folder, "config.json", image_text_hidden_size=20)
    with pytest.raises(ValueError, match=r"\d weights of .* are missing or do not fit, such as"):
        load_encoder(str(folder))


def test_another_number_of_frames_than_a_model_takes_is_refused(folder_of):
    with pytest.raises(ValueError, match="takes 4 frames, not 8; leave num_frames out"):
        load_encoder(folder_of(x_clip), num_frames=8)
    with pytest.raises(ValueError, match="num_frames is 0; give 1 or more"):
        load_encoder(folder_of(clip), num_frames=0)
    assert load_encoder(folder_of(x_clip)).num_frames == 4
    assert load_encoder(folder_of(clip)).num_frames == 12
    assert load_encoder(folder_of(blip)).num_frames == 15


def test_what_is_not_a_video_or_a_pair_or_a_plain_text_is_refused(encoder_of):
    encoder = encoder_of(clip)
    with pytest.raises(ValueError, match=r"a video is \(frames, 3, height, width\), not \(3, 32, 32\)"):
        encoder.encode_video([VIDEOS[0][0]])
    with pytest.raises(ValueError, match="no video to encode"):
        encoder.encode_video([])
    with pytest.raises(ValueError, match="no text to encode"):
        encoder.encode_text([])
    with pytest.raises(ValueError, match="there are 2 videos and 1 texts"):
        encoder.encode_query(VIDEOS, ["dog"])
    for make, mark in ((gme, "<|image_pad|>"), (e5_v, "<image>")):
        with pytest.raises(ValueError, match="a mark of the prompt; take it out"):
            encoder_of(make).encode_text([f"a {mark} dog"])


def test_an_option_that_an_encoder_does_not_have_is_refused(folder_of):
    with pytest.raises(ValueError, match="ImageEncoder has no option 'pooling'; it has none"):
        load_encoder(folder_of(clip), options={"pooling": "max"})
    with pytest.raises(ValueError, match="GMEEncoder has no option 'prompt'; it has instruction, one_prompt"):
        load_encoder(folder_of(gme), options={"prompt": "max"})


def test_gme_is_known_by_its_architecture_whatever_remote_code_it_names(copy_of):
    folder = copy_of(gme)
    remote = {"AutoConfig": "modeling_gme_qwen2vl.GmeQwen2VLConfig"}
    change(folder, "config.json", model_type="gme_qwen2_vl", architectures=["GmeQwen2VL"], auto_map=remote)
    assert isinstance(load_encoder(str(folder)), GMEEncoder)


def test_mm_embed_as_released_is_refused_and_its_converter_named(copy_of):
    folder = copy_of(e5_v)
    change(folder, "config.json", architectures=["NVMMEmbedModel"])
    with pytest.raises(ValueError, match=r"is MM-Embed as .* hf_models\.encoders\.convert_mmembed"):
        load_encoder(str(folder))


@pytest.fixture(scope="module")
def adapter(folder_of, tmp_path_factory):
    """A saved LoRA of the small CLIP, whose changes are not zero."""
    folder = tmp_path_factory.mktemp("adapter")
    with torch.inference_mode(False):
        config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
        get_peft_model(AutoModel.from_pretrained(folder_of(clip)), config).save_pretrained(folder)
    return str(folder)


def test_an_adapter_changes_its_own_model_only(adapter, folder_of, encoder_of, copy_of):
    adapted = load_encoder(folder_of(clip), num_frames=4, adapter=adapter)
    assert (adapted.encode_video(VIDEOS) - encoder_of(clip).encode_video(VIDEOS)).abs().max() > 1e-3
    with pytest.raises(ValueError, match=f"was trained on {folder_of(clip)}, not on .*; load .* with it"):
        load_encoder(str(copy_of(siglip)), adapter=adapter)
    named = load_encoder(adapter, num_frames=4)
    torch.testing.assert_close(named.encode_video(VIDEOS), adapted.encode_video(VIDEOS))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"r": 10**9}, r"asks for r=1,000,000,000, and its weights have .* rank 2; copy it again"),
        ({"rank_pattern": {".*": 5000}}, "asks for r=5,000, and its weights have"),
        ({"layers_to_transform": [10**9]}, "asks for layers_to_transform=1,000,000,000"),
        ({"modules_to_save": "x" * 50_000}, "has 50,000 modules_to_save; copy it again"),
        ({"target_modules": 3}, "cannot be opened as a model|does not fit"),
        ({"base_model_name_or_path": {"a": 1}}, "names no model as its base but"),
        ({"peft_type": "none"}, r"cannot be opened as a model \(KeyError"),
    ],
    ids=lambda value: str(value)[:80],
)
def test_an_adapter_that_asks_for_more_than_its_weights_is_refused(adapter, folder_of, tmp_path, fields, message):
    folder = shutil.copytree(adapter, tmp_path / "adapter")
    change(folder, "adapter_config.json", **fields)
    with pytest.raises(ValueError, match=message):
        load_encoder(folder_of(clip), adapter=str(folder))


def test_an_adapter_has_no_module_run(adapter, folder_of, tmp_path, monkeypatch):
    """PEFT imports `megatron.core` where a configuration asks for it; in a working directory it is anyone's."""
    folder = shutil.copytree(adapter, tmp_path / "adapter")
    (tmp_path / "megatron").mkdir()
    (tmp_path / "megatron/core.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    change(folder, "adapter_config.json", megatron_config={"a": 1}, megatron_core="megatron.core")
    with pytest.raises(ValueError, match=r"asks PEFT to run the module 'megatron\.core'"):
        load_encoder(folder_of(clip), adapter=str(folder))
    assert not (tmp_path / "ran").exists()


def test_weights_of_torch_are_compared_with_the_configuration_too(copy_of, adapter, tmp_path):
    folder = copy_of(clip)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    load_encoder(str(folder))
    config = json.loads((folder / "config.json").read_text())
    change(folder, "config.json", text_config={**config["text_config"], "vocab_size": 10_000_000})
    with pytest.raises(ValueError, match=r"asks for 160,\d{3},\d{3} weights, and its files hold"):
        load_encoder(str(folder))
    torch.save({"a": torch.zeros(1).expand(10**9)}, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"describes weights of 4,000,000,000; it is damaged or hostile"):
        load_encoder(str(folder))
    lora = shutil.copytree(adapter, tmp_path / "lora")
    torch.save(load_file(lora / "adapter_model.safetensors"), lora / "adapter_model.bin")
    (lora / "adapter_model.safetensors").unlink()
    with opening(lora):
        change(lora, "adapter_config.json", r=10**9)
    with pytest.raises(ValueError, match="asks for r=1,000,000,000"), opening(lora):
        pytest.fail("it was opened")


def qwen_2_vl_2b():
    vision = {"depth": 32, "embed_dim": 1280, "hidden_size": 1536, "num_heads": 16}
    text = {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12}
    text |= {"num_key_value_heads": 2, "vocab_size": 151_936, "tie_word_embeddings": True}
    return Qwen2VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, dtype="bfloat16")


def llava_next_llama_3_8b():
    vision = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
    vision |= {"image_size": 336, "patch_size": 14, "model_type": "clip_vision_model"}
    text = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14_336, "num_hidden_layers": 32}
    text |= {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128_320}
    whole = {"dtype": "bfloat16", "architectures": ["LlavaNextForConditionalGeneration"]}
    return LlavaNextConfig(text_config=text, vision_config=vision, **whole)


@pytest.mark.parametrize(
    ("config", "parameters", "gigabytes"),
    [
        (CLIPConfig(text_config={}, vision_config={}), 151_277_313, 0.605),  # openai/clip-vit-base-patch32
        (qwen_2_vl_2b(), 2_208_985_600, 4.418),  # Alibaba-NLP/gme-Qwen2-VL-2B-Instruct
        (llava_next_llama_3_8b(), 7_829_500_000, 16.71),  # royokong/e5-v, the first without its language head
    ],
    ids=["CLIP ViT-B/32", "GME-2B", "E5-V"],
)
def test_estimates_are_those_of_the_released_models(config, parameters, gigabytes):
    kind = ENCODERS[config.model_type]
    cost = estimate_model(config, kind.model_class, 15)
    assert cost.parameters == pytest.approx(parameters, rel=1e-4)
    assert cost.download_bytes / 1e9 == pytest.approx(gigabytes, rel=1e-3)
    size = 4 if config.model_type == "clip" else 2
    assert size * cost.parameters < cost.memory_bytes < 2 * size * cost.parameters + 2e9


def test_an_estimate_counts_what_is_then_loaded(folder_of, encoder_of, family):
    cost = estimate(folder_of(family))
    assert cost.parameters == sum(weight.numel() for weight in encoder_of(family).model.parameters())
    files = sum(path.stat().st_size for path in Path(folder_of(family)).glob("*.safetensors"))
    assert cost.download_bytes == pytest.approx(files, rel=0.5)
    assert cost.memory_bytes > cost.parameters * 4


def test_a_gpu_that_is_too_small_is_said_before_loading(folder_of, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (10**8, 8 * 10**9))
    monkeypatch.setattr("hf_models.encoders.loading.load_whole", lambda *_: pytest.fail("it was loaded"))
    with pytest.raises(ValueError, match=r"0\.6 GB at batch size 1, and cuda:0 has 0\.1 GB free of 8\.0; take a"):
        load_encoder(folder_of(clip), "cuda:0")
    check_memory(estimate(folder_of(clip)), "cpu", "any")


@pytest.mark.parametrize(
    ("make", "name", "place", "value", "message"),
    [
        (gme, "config.json", ["image_token_id"], 0, "has image_token_id=12, and the model reads 0; save the processor"),
        (gme, "config.json", ["vision_config", "spatial_merge_size"], -1, "has merge_size=1, and the model reads -1"),
        (gme, "processor_config.json", ["image_processor", "patch_size"], 8, "has patch_size=8, and the model reads 4"),
        (v_jepa_2, "config.json", ["frames_per_clip"], 200_000, "asks for 200,000 frames of a clip"),
        (x_clip, "processor_config.json", ["image_processor", "crop_size", "width"], 10**7, "makes frames with width="),
    ],
)
def test_a_processor_of_other_patches_sizes_or_frames_is_refused(copy_of, make, name, place, value, message):
    folder = copy_of(make)
    fields = json.loads((folder / name).read_text())
    *parents, last = place
    reduce(dict.__getitem__, parents, fields)[last] = value
    (folder / name).write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=message):
        load_encoder(str(folder))


def test_a_panic_of_a_tokenizer_is_an_error_that_names_the_folder_and_an_interrupt_is_none():
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(ValueError, match=r"a/b cannot be opened as a model \(PanicException: no entry"), opening("a/b"):
        raise panic("no entry found for key")
    with pytest.raises(KeyboardInterrupt), opening("a/b"):
        raise KeyboardInterrupt
