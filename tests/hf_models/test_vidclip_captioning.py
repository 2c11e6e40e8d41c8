"""VidCLIP with CoCa's captioning loss: the loss, what each token may see, and that without it nothing changes."""

from pathlib import Path

import pytest
import torch
from loads_equal import assert_loads_equal
from quiet_trainer import QUIET
from safetensors import safe_open
from small_encoders import random_videos
from small_vidclip import END, FRAMES, clip_model, inputs, make_processor, sentences, small_vidclip
from torch.nn import functional as F
from transformers import Trainer, TrainingArguments

from hf_models import VidCLIPModel, VidCLIPProcessor
from hf_models.encoders import load_encoder
from hf_models.vidclip.layers_vidclip_captioning import text_lengths

MINIATURE = Path(__file__).parents[2] / "recipes/weights/miniature-vidclip"


def captioning(**changes):
    return small_vidclip(**{"num_captioning_layers": 2, "loss": "clip", **changes})


def ragged(rows=3):
    """Videos with texts of several lengths, padded with the end-of-text token as OpenAI's tokenizer does."""
    data = inputs(rows)
    tokens, mask = data["input_ids"], torch.ones_like(data["input_ids"])
    for row in range(1, rows):
        tokens[row, 8 - 2 * row :], mask[row, 9 - 2 * row :] = END, 0
    return {"pixel_values": data["pixel_values"], "input_ids": tokens, "attention_mask": mask}


@pytest.fixture
def model():
    return captioning()


@pytest.fixture
def video_tokens(model):
    return model.get_video_tokens(model.get_frame_tokens(inputs()["pixel_values"])).detach()


def plain_log_probabilities(logits, tokens):
    """Of each token after the first up to the first end-of-text token, one by one."""
    found = []
    for place in range(1, len(tokens)):
        found.append(-F.cross_entropy(logits[place - 1], tokens[place]))
        if tokens[place] == END:
            break
    return found


def test_the_loss_is_the_contrastive_one_and_the_weighted_cross_entropy_of_each_next_token(model, video_tokens):
    data = ragged()
    logits = model.get_caption_logits(video_tokens, data["input_ids"], data["attention_mask"])
    texts = zip(logits, data["input_ids"], strict=True)
    each = [one for text, tokens in texts for one in plain_log_probabilities(text, tokens)]
    assert len(each) == data["attention_mask"].sum() - len(logits)
    output = model(**data, return_loss=True)
    torch.testing.assert_close(output.caption_loss, -torch.stack(each).mean())
    model.config.captioning_weight = 0.0
    alone = model(**data, return_loss=True)
    assert alone.caption_loss is None
    torch.testing.assert_close(output.loss, alone.loss + 2.0 * output.caption_loss)


def test_the_score_of_a_text_is_the_mean_log_probability_of_its_tokens_given_each_video(model, video_tokens):
    data = ragged()
    scores = model.get_text_scores(video_tokens, data["input_ids"], data["attention_mask"])
    for row, video in enumerate(video_tokens):
        for column, tokens in enumerate(data["input_ids"]):
            (logits,) = model.get_caption_logits(video[None], tokens[None])
            expected = torch.stack(plain_log_probabilities(logits, tokens)).mean()
            torch.testing.assert_close(scores[row, column], expected)
    assert (scores[0] - scores[1]).abs().max() > 1e-4  # the video matters


def test_logits_depend_on_no_later_token_and_on_every_earlier_one(model, video_tokens):
    tokens = sentences(3, 9)
    logits = model.get_caption_logits(video_tokens, tokens)
    for place in range(8):
        changed = tokens.clone()
        changed[:, place] = tokens[:, place] % 36 + 1
        difference = (model.get_caption_logits(video_tokens, changed) - logits).abs().amax((0, 2))
        assert (difference[:place] < 1e-5).all()
        assert (difference[place:] > 1e-4).all(), difference


def test_padding_changes_neither_logits_nor_loss_nor_scores(model, video_tokens):
    data = ragged()
    padded = data | {name: F.pad(data[name], (0, 6)) for name in ("input_ids", "attention_mask")}
    for function in (model.get_caption_logits, model.get_text_scores):
        found, expected = (
            function(video_tokens, one["input_ids"], one["attention_mask"])[:, :9] for one in (padded, data)
        )
        torch.testing.assert_close(found, expected)
    expected = model(**data, return_loss=True)
    torch.testing.assert_close(model(**padded, return_loss=True).loss, expected.loss)
    without_mask = model(**data | {"attention_mask": None}, return_loss=True)
    torch.testing.assert_close(without_mask.caption_loss, expected.caption_loss)


def test_the_end_of_a_text_is_where_clips_tower_finds_it():
    tokens = torch.tensor([[1, 5, END, END], [1, 5, 6, END]])
    assert text_lengths(tokens, END).tolist() == text_lengths(tokens, 2).tolist() == [3, 4]


def test_gradients_reach_every_weight_and_checkpointing_gives_the_same_ones():
    gradients = []
    for checkpointing in (False, True):
        model = captioning(class_token_residual=True).train()
        torch.nn.init.constant_(model.video_pooler.video_pooler.layernorm.weight, 0.1)
        if checkpointing:
            model.gradient_checkpointing_enable()
            assert all(layer.gradient_checkpointing for layer in model.captioner.layers)
        model(**ragged(), return_loss=True).loss.backward()
        gradients.append({name: one.grad for name, one in model.named_parameters()})
    torch.testing.assert_close(*gradients)
    for name, gradient in gradients[0].items():
        assert name.endswith("k_proj.bias") or (gradient is not None and gradient.any()), name


@torch.no_grad()
def test_each_attention_implementation_gives_the_same_logits(model, video_tokens):
    data, found = ragged(), {}
    for name in ("sdpa", "eager"):
        model.set_attn_implementation(name)
        assert {layer.cross_attn.config._attn_implementation for layer in model.captioner.layers} == {name}
        found[name] = model.get_caption_logits(video_tokens, data["input_ids"], data["attention_mask"])
    counted = data["attention_mask"].bool()
    torch.testing.assert_close(found["sdpa"][counted], found["eager"][counted])


@torch.no_grad()
def test_a_bfloat16_model_has_a_float32_loss_close_to_the_exact_one(model):
    exact = model(**ragged(), return_loss=True)
    rough = model.bfloat16()(**ragged(), return_loss=True)
    assert rough.loss.dtype == rough.caption_loss.dtype == torch.float32
    torch.testing.assert_close(rough.caption_loss, exact.caption_loss, atol=0.05, rtol=0)


def test_a_saved_model_loads_equal_and_carries_the_code_of_its_decoder(tmp_path, model):
    assert_loads_equal(model, tmp_path, lambda model: model(**ragged(), return_loss=True).to_tuple())
    assert "class CaptionDecoder" in (tmp_path / "layers_vidclip_captioning.py").read_text()


@torch.no_grad()
def test_a_model_saved_before_there_was_captioning_loads_as_it_was():
    assert "captioning" not in (MINIATURE / "config.json").read_text()
    model, processor = VidCLIPModel.from_pretrained(MINIATURE), VidCLIPProcessor.from_pretrained(MINIATURE)
    with safe_open(MINIATURE / "model.safetensors", "pt") as weights:
        assert set(weights.keys()) == model.state_dict().keys()
    assert (model.captioner, model.config.num_captioning_layers) == (None, 0)
    pixels = torch.linspace(-1, 1, 2 * 16 * 3 * 48 * 48).view(2, 16, 3, 48, 48).sin() * 2
    texts = processor(text=["A vault with 2 turns, then a dive.", "A jump."])
    output = model(pixels, **texts, return_loss=True)
    assert list(output) == ["loss", "logits_per_video", "logits_per_text", "video_embeds", "text_embeds"]
    # What version 0.2 gave before the decoder was added, bit for bit on the machine that wrote this.
    assert output.loss.item() == pytest.approx(0.62048465, abs=1e-5)
    expected = torch.tensor([[1.23854244, -4.73210716], [-0.06410173, -2.11141610]])
    torch.testing.assert_close(output.logits_per_video, expected, atol=1e-4, rtol=0)
    added = VidCLIPModel.from_pretrained(MINIATURE, num_captioning_layers=1)
    torch.testing.assert_close(added(pixels, **texts).logits_per_video, output.logits_per_video)


def test_transformers_trainer_evaluates_it(tmp_path, model):
    whole = inputs(rows=6)
    rows = [{name: whole[name][row] for name in ("pixel_values", "input_ids")} for row in range(6)]
    shapes = []
    trainer = Trainer(
        model,
        TrainingArguments(tmp_path, per_device_eval_batch_size=3, **QUIET),
        eval_dataset=rows,
        data_collator=lambda batch: (
            {name: torch.stack([row[name] for row in batch]) for name in batch[0]} | {"return_loss": True}
        ),
        compute_metrics=lambda prediction: shapes.extend(one.shape for one in prediction.predictions) or {},
    )
    assert trainer.evaluate()["eval_loss"] > 0
    assert shapes[-1] == (2,)  # the captioning loss of each batch


def test_a_larger_vocabulary_reaches_the_decoders_head(model):
    model.resize_token_embeddings(45)
    data = ragged()
    data["input_ids"][:, 1] = 44
    assert model(**data, return_loss=True).caption_loss > 0
    assert model.captioner.head.weight.shape == (45, 16)


def test_a_clip_becomes_a_vidclip_with_a_decoder(tmp_path):
    clip_model().save_pretrained(tmp_path)
    model = VidCLIPModel.from_clip(tmp_path, num_frames=FRAMES, num_captioning_layers=1, loss="clip")
    assert model(**ragged(), return_loss=True).caption_loss > 0


def test_without_a_decoder_captions_are_refused_with_the_cure(video_tokens):
    with pytest.raises(ValueError, match=r"num_captioning_layers is 0.*--captioning_weight 2"):
        small_vidclip().get_text_scores(video_tokens, sentences(3, 9))


@pytest.fixture
def saved(tmp_path):
    def save(model):
        model.save_pretrained(tmp_path)
        make_processor().save_pretrained(tmp_path)
        return str(tmp_path)

    return save


@torch.no_grad()
def test_an_encoder_compares_by_likelihood_and_embeds_as_without(saved, model):
    folder = saved(model)
    plain, likely = load_encoder(folder), load_encoder(folder, options={"score": "likelihood"})
    videos = random_videos(2, FRAMES, 16)
    texts = ["a dog runs then sits", "a dog", "sits then a dog runs"]
    shown, told = likely.encode_video(videos), likely.encode_text(texts)
    likely.texts_at_a_time = 2
    compared = likely.compare(shown, told)
    tokens = likely.model.get_frame_tokens(**likely.videos(videos))
    expected = likely.model.get_text_scores(likely.model.get_video_tokens(tokens), **likely.tokens(texts))
    torch.testing.assert_close(compared, expected)
    assert plain.compare(plain.encode_video(videos), plain.encode_text(texts)).shape == compared.shape
    torch.testing.assert_close(likely.embeds(shown), plain.encode_video(videos))
    torch.testing.assert_close(likely.embeds(told), plain.encode_text(texts))
    query = likely.encode_query(videos, texts[:2])
    torch.testing.assert_close(query, plain.encode_query(videos, texts[:2]))
    torch.testing.assert_close(
        likely.compare_queries(query, shown), plain.compare_queries(query, plain.encode_video(videos))
    )
    assert (plain.depends_on, likely.depends_on) == ({}, {"score": "likelihood"})


def test_an_empty_text_has_no_likelihood(saved, model):
    encoder = load_encoder(saved(model), options={"score": "likelihood"})
    with pytest.raises(ValueError, match="a text is empty"):
        encoder.encode_text(["a dog", ""])


@pytest.mark.parametrize(
    ("layers", "score", "message"), [(0, "likelihood", "trained without"), (1, "cosine", "'embedding' or 'likelihood'")]
)
def test_a_score_that_the_model_cannot_give_is_refused(saved, layers, score, message):
    with pytest.raises(ValueError, match=message):
        load_encoder(saved(captioning(num_captioning_layers=layers)), options={"score": score})
