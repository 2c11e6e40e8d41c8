"""Encoders against what the models' own classes, model cards and released scripts compute."""

import pytest
import torch
from small_encoders import (
    PLACES,
    blip,
    blip_2,
    clip,
    e5_v,
    gme,
    perception_encoder,
    qwen_3_vl,
    random_videos,
    siglip,
    siglip_2,
    v_jepa_2,
    videoprism,
    x_clip,
)
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import (
    AutoModel,
    AutoProcessor,
    AutoVideoProcessor,
    Blip2ForImageTextRetrieval,
    BlipForImageTextRetrieval,
    LlavaNextForConditionalGeneration,
    Qwen2VLForConditionalGeneration,
    Qwen3VLForConditionalGeneration,
)

TEXTS = ["a dog runs then a dog sits", "dog", "a dog sits"]
FRAMES = [video[0] for video in random_videos(2, 1, 32)]
NEAR = {"atol": 1e-5, "rtol": 1e-4}


def similarities(encoder):
    """Of two videos of one frame with the texts."""
    return encoder.compare(encoder.encode_video([frame[None] for frame in FRAMES]), encoder.encode_text(TEXTS))


@pytest.mark.parametrize("make", [clip, siglip, siglip_2])
def test_image_models_compare_as_their_logits(encoder_of, folder_of, make):
    model, processor = AutoModel.from_pretrained(folder_of(make)), AutoProcessor.from_pretrained(folder_of(make))
    padding = True if make is clip else "max_length"
    images = processor.image_processor(FRAMES, return_tensors="pt")
    texts = processor.tokenizer(TEXTS, padding=padding, return_tensors="pt")
    logits = model(**images, **texts).logits_per_image - getattr(model, "logit_bias", 0)
    assert_close(similarities(encoder_of(make)), logits / model.logit_scale.exp(), **NEAR)


def test_blip_compares_as_its_contrastive_scores(encoder_of, folder_of):
    model = BlipForImageTextRetrieval.from_pretrained(folder_of(blip))
    processor = AutoProcessor.from_pretrained(folder_of(blip))
    inputs = processor(images=FRAMES, text=TEXTS, padding=True, return_tensors="pt")
    assert_close(similarities(encoder_of(blip)), model.eval()(**inputs, use_itm_head=False).itm_score, **NEAR)


def test_a_query_of_blip_is_what_its_matching_head_sees_with_enc_first(encoder_of, folder_of):
    model = BlipForImageTextRetrieval.from_pretrained(folder_of(blip)).eval()
    processor = AutoProcessor.from_pretrained(folder_of(blip))
    for text in TEXTS:
        inputs = processor(images=FRAMES[0], text=text, return_tensors="pt")
        inputs["input_ids"][:, 0] = len(processor.tokenizer) + 1  # after [DEC]
        seen = model(**inputs).question_embeds[:, 0]
        query = encoder_of(blip).encode_query([FRAMES[0][None]], [text])
        assert_close(query, F.normalize(model.text_proj(seen), dim=-1), **NEAR)


def test_blip_2_compares_as_its_contrastive_scores_with_the_best_query(encoder_of, folder_of):
    model = Blip2ForImageTextRetrieval.from_pretrained(folder_of(blip_2)).eval()
    encoder = encoder_of(blip_2, pooling="max")
    tokens = encoder.processor.tokenizer(TEXTS, padding=True, return_tensors="pt")
    images = encoder.processor.image_processor(FRAMES, return_tensors="pt")
    output = model(**images, input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"])
    assert_close(similarities(encoder), output.logits_per_image, **NEAR)
    means = F.normalize(output.image_embeds.mean(1), dim=-1) @ output.text_embeds.T
    assert_close(similarities(encoder_of(blip_2)), means, **NEAR)


def test_blip_2_refuses_a_query_where_a_video_has_several_vectors(encoder_of):
    with pytest.raises(ValueError, match="take 'mean'"):
        encoder_of(blip_2, pooling="max").encode_query([FRAMES[0][None]], ["dog"])
    with pytest.raises(ValueError, match="'mean' or 'max', not 'best'"):
        encoder_of(blip_2, pooling="best")


def test_x_clip_compares_as_its_logits(encoder_of, folder_of):
    model, encoder = AutoModel.from_pretrained(folder_of(x_clip)).eval(), encoder_of(x_clip)
    videos = random_videos(2, PLACES, 32)
    pixels = encoder.processor.image_processor([list(video) for video in videos], return_tensors="pt")["pixel_values"]
    output = model(pixel_values=pixels.reshape(2, PLACES, 3, 16, 16), **encoder.tokens(TEXTS))
    similarity = encoder.compare(encoder.encode_video(videos), encoder.encode_text(TEXTS))
    assert_close(similarity, output.logits_per_video / model.logit_scale.exp(), **NEAR)


def test_videoprism_compares_as_its_forward_pass(encoder_of, folder_of):
    model = AutoModel.from_pretrained(folder_of(videoprism)).eval()
    processor = AutoProcessor.from_pretrained(folder_of(videoprism))
    videos, encoder = random_videos(2, PLACES, 32), encoder_of(videoprism)
    inputs = processor(text=TEXTS, videos=videos, do_sample_frames=False, padding=True, return_tensors="pt")
    wanted = {name: inputs[name] for name in ("input_ids", "attention_mask", "pixel_values_videos")}
    similarity = encoder.compare(encoder.encode_video(videos), encoder.encode_text(TEXTS))
    assert_close(similarity.softmax(0), model(**wanted, temperature=1.0).logits_per_video, **NEAR)


def test_perception_encoder_compares_as_its_logits(encoder_of, folder_of):
    model = AutoModel.from_pretrained(folder_of(perception_encoder)).eval()
    processor = AutoProcessor.from_pretrained(folder_of(perception_encoder))
    videos, encoder = random_videos(2, PLACES, 32), encoder_of(perception_encoder)
    inputs = processor(text=TEXTS, videos=videos, do_sample_frames=False, padding=True, return_tensors="pt")
    similarity = encoder.compare(encoder.encode_video(videos), encoder.encode_text(TEXTS))
    logits = model(**inputs).logits_video_text - model.text_video_logit_bias
    assert_close(similarity, logits / model.text_video_logit_scale, **NEAR)


def test_v_jepa_2_is_the_mean_of_its_encoder_output(encoder_of, folder_of):
    model = AutoModel.from_pretrained(folder_of(v_jepa_2)).eval()
    processor = AutoVideoProcessor.from_pretrained(folder_of(v_jepa_2))
    videos = random_videos(2, 4, 32)
    states = model(**processor(videos, do_sample_frames=False, return_tensors="pt")).last_hidden_state
    assert_close(encoder_of(v_jepa_2).encode_video(videos), F.normalize(states.mean(1), dim=-1), **NEAR)


def last_states(model_class, folder, texts, padding_side, **inputs):
    """The output at the last place of whole prompts, as the released scripts take it."""
    processor = AutoProcessor.from_pretrained(folder)
    processor.tokenizer.padding_side = padding_side
    model = model_class.from_pretrained(folder).eval()
    batch = processor(text=texts, padding=True, return_tensors="pt", **inputs)
    states = model(**batch, output_hidden_states=True).hidden_states[-1]
    last = batch["attention_mask"].shape[1] - 1 - batch["attention_mask"].flip(1).argmax(1)
    return F.normalize(states[torch.arange(len(texts)), last], dim=-1)


def test_gme_is_its_released_script(encoder_of, folder_of):
    encoder, folder = encoder_of(gme), folder_of(gme)

    def prompt(content):
        system = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        return f"{system}<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n<|endoftext|>"

    texts = last_states(Qwen2VLForConditionalGeneration, folder, [prompt(text) for text in TEXTS], "left")
    assert_close(encoder.encode_text(TEXTS), texts, **NEAR)
    image, sizes = "<|vision_start|><|image_pad|><|vision_end|>", {"shortest_edge": 256 * 16, "longest_edge": 1280 * 16}
    both = [prompt(image + text) for text in TEXTS[:2]]
    options = {"images": FRAMES, "images_kwargs": {"size": sizes}}
    fused = last_states(Qwen2VLForConditionalGeneration, folder, both, "left", **options)
    assert_close(encoder.encode_query([frame[None] for frame in FRAMES], TEXTS[:2]), fused, **NEAR)


def test_e5_v_is_its_model_card(encoder_of, folder_of):
    encoder, folder = encoder_of(e5_v), folder_of(e5_v)
    template = (
        "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n \n"
    )
    prompts = [template.format(f"{text}\nSummary above sentence in one word: ") for text in TEXTS]
    assert_close(
        encoder.encode_text(TEXTS), last_states(LlavaNextForConditionalGeneration, folder, prompts, "left"), **NEAR
    )
    prompts = [template.format("<image>\nSummary above image in one word: ")] * 2
    images = last_states(LlavaNextForConditionalGeneration, folder, prompts, "left", images=FRAMES)
    assert_close(encoder.encode_video([frame[None] for frame in FRAMES]), images, **NEAR)


def test_qwen_3_vl_is_its_released_script(encoder_of, folder_of):
    encoder, folder = encoder_of(qwen_3_vl), folder_of(qwen_3_vl)

    def prompt(content):
        system = "<|im_start|>system\nRepresent the user's input.<|im_end|>\n"
        return f"{system}<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"

    texts = last_states(Qwen3VLForConditionalGeneration, folder, [prompt(text) for text in TEXTS], "right")
    assert_close(encoder.encode_text(TEXTS), texts, **NEAR)
    videos = random_videos(2, 4, 32)
    times = [{"total_num_frames": 4, "fps": 1.0, "frames_indices": [0, 1, 2, 3]}] * 2
    both = [prompt(f"<|video_pad|>{text}") for text in TEXTS[:2]]
    options = {"do_sample_frames": False, "video_metadata": times, "cap_pixels_per_frame": True}
    fused = last_states(Qwen3VLForConditionalGeneration, folder, both, "right", videos=videos, **options)
    assert_close(encoder.encode_query(videos, TEXTS[:2]), fused, **NEAR)


def test_each_time_of_a_video_stands_once_between_marks_for_qwen_3_vl(encoder_of, monkeypatch):
    encoder, seen = encoder_of(qwen_3_vl), []
    monkeypatch.setattr(encoder, "last_token", lambda inputs: seen.append(inputs["input_ids"][0]) or torch.zeros(1, 16))
    encoder.encode_query(random_videos(1, 4, 32), ["dog"])
    marks = ["<|vision_start|>", "<|video_pad|>", "<|vision_end|>"]
    ids = encoder.processor.tokenizer.convert_tokens_to_ids(marks)
    found = [marks[ids.index(token)] for token in seen[0].tolist() if token in ids]
    assert found == [marks[0], *marks[1:2] * 4, marks[2]] * 2
