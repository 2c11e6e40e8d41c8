"""XML, ReLoCLNet and HERO: shapes, properties that their papers imply, saving and loading, and bad input."""

import pytest
import torch
from loads_equal import assert_loads_equal
from small_moment_models import LABELS, MODELS, both_streams, every_model, inputs, small
from transformers import RobertaConfig, RobertaModel

from hf_models import HEROForMomentRetrieval, XMLConfig, XMLForMomentRetrieval
from hf_models.moments.losses import span_loss


@every_model
@both_streams
def test_every_query_is_scored_against_every_video(name, subtitles):
    output = small(name, subtitles=subtitles)(**inputs(subtitles=subtitles))
    assert output.video_scores.shape == (3, 3)
    assert output.start_logits.shape == output.end_logits.shape == (3, 3, 9)
    assert output.loss is None
    assert (output.video_scores.abs() <= 1 + 1e-5).all()
    assert (output.start_logits[:, 1, 6:] == -1e10).all()
    assert (output.end_logits[:, 0] > -1e9).all()


@every_model
@both_streams
def test_padding_changes_nothing(name, subtitles):
    model, batch = small(name, subtitles=subtitles), inputs(subtitles=subtitles)
    padded = model(**batch)
    alone = {key: value[1:2] for key, value in batch.items()}
    alone["query_features"], alone["query_mask"] = alone["query_features"][:, :3], alone["query_mask"][:, :3]
    for key in {"video_features", "video_mask", "subtitle_features"} & alone.keys():
        alone[key] = alone[key][:, :6]
    output = model(**alone)
    torch.testing.assert_close(output.video_scores[0, 0], padded.video_scores[1, 1], atol=1e-5, rtol=0)
    torch.testing.assert_close(output.start_logits[0, 0], padded.start_logits[1, 1, :6], atol=1e-4, rtol=0)
    torch.testing.assert_close(output.end_logits[0, 0], padded.end_logits[1, 1, :6], atol=1e-4, rtol=0)


@every_model
@both_streams
def test_the_span_loss_is_that_of_each_query_in_its_own_video(name, subtitles):
    model = small(name, subtitles=subtitles, span_loss_weight=1.0, span_loss_probability=1.0)
    batch, rows, targets = inputs(subtitles=subtitles), torch.arange(3), torch.tensor([1, 1, 2])
    output = model(**batch, **LABELS, target_indices=targets)
    start, end = output.start_logits[rows, targets], output.end_logits[rows, targets]
    expected = span_loss(start, end, LABELS["start_positions"], LABELS["end_positions"])
    torch.testing.assert_close(output.loss_parts["span"], expected.detach())
    training = model.train()(**batch, **LABELS, target_indices=targets)
    assert training.start_logits is training.end_logits is None
    assert training.loss_parts["span"] > 0


def test_the_released_predictors_read_the_padding_and_ours_do_so_on_request():
    clean, leaking = (small("xml", mask_similarity=choice)(**inputs()) for choice in (True, False))
    torch.testing.assert_close(clean.start_logits[:, 0], leaking.start_logits[:, 0])
    assert (clean.start_logits[:, 1, 5] - leaking.start_logits[:, 1, 5]).abs().max() > 1e-3


@every_model
@both_streams
def test_gradients_reach_every_weight(name, subtitles):
    model = small(
        name, subtitles=subtitles, hidden_dropout=0.0, input_dropout=0.0, span_loss_probability=1.0, margin=3.0
    ).train()
    model(**inputs(subtitles=subtitles), **LABELS).loss.backward()
    unused = {key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()}
    # Softmax ignores what is added to all keys alike, and HERO's words stay unread where features are given.
    unused = {key for key in unused if not key.endswith(".key.bias")}
    assert all("word_embeddings" in key for key in unused), unused


@every_model
def test_loss_is_the_sum_of_its_named_parts(name):
    output = small(name)(**inputs(), **LABELS)
    expected = {"span", "video_ranking", "query_ranking"}
    expected |= {"frame_contrast", "video_contrast"} if name == "reloclnet" else set()
    assert output.loss_parts.keys() == expected
    torch.testing.assert_close(sum(output.loss_parts.values()), output.loss)


def test_two_queries_of_one_video_are_not_negatives_of_each_other():
    model, batch = small("xml", margin=5.0), inputs(num_videos=1)
    output = model(**batch, **LABELS, target_indices=torch.zeros(3, dtype=torch.long))
    assert output.loss_parts["video_ranking"] == output.loss_parts["query_ranking"] == 0
    assert output.loss_parts["span"] > 0
    with pytest.raises(ValueError, match="3 queries and 1 videos are no pairs"):
        model(**batch, **LABELS)


def test_hero_drops_the_span_loss_of_most_training_steps():
    model = small("hero").train()
    torch.manual_seed(0)
    steps = [model(**inputs(), **LABELS).loss_parts for _ in range(40)]
    assert 2 <= sum(bool(parts["span"]) for parts in steps) <= 18
    assert model.eval()(**inputs(), **LABELS).loss_parts["span"] > 0


def test_xml_of_video_only_has_the_parameters_of_the_released_model():
    with torch.device("meta"):
        assert XMLForMomentRetrieval(XMLConfig()).num_parameters() == 1_882_122


def test_hero_takes_every_other_layer_of_a_roberta(tmp_path):
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 30}
    roberta = RobertaModel(RobertaConfig(**sizes, num_hidden_layers=4, type_vocab_size=1, max_position_embeddings=20))
    roberta.save_pretrained(tmp_path)
    model = HEROForMomentRetrieval.from_roberta(tmp_path, num_cross_modal_layers=2, video_feature_size=10)
    for mine, theirs in ((0, 1), (1, 3)):  # the release: range(gap - 1, 4, gap), gap 2
        expected = roberta.encoder.layer[theirs].state_dict()
        found = model.cross_modal.encoder.layer[mine].state_dict()
        assert all(torch.equal(found[key], value) for key, value in expected.items())
    tokens = torch.tensor([[0, 5, 6], [0, 7, 1]])
    assert model.encode_query(tokens, tokens != 1).shape == (2, 1, 16)
    with pytest.raises(ValueError, match="has 4 layers, fewer than 5"):
        HEROForMomentRetrieval.from_roberta(tmp_path, num_cross_modal_layers=5)


def test_a_hero_starts_from_one_of_other_features_and_other_lengths(tmp_path):
    start = small("hero", positions_from_zero=True)
    start.save_pretrained(tmp_path)
    clips = start.config.max_video_clips
    model = HEROForMomentRetrieval.from_hero(tmp_path, video_feature_size=23, max_video_clips=clips + 2)
    assert model.config.positions_from_zero
    assert model.config.video_feature_size == 23
    before, found = start.state_dict(), model.state_dict()
    other = {name for name in found if found[name].shape != before[name].shape}
    tables = {"frame_embeddings.positions.weight", "positions.embedding.weight"}
    assert all(torch.equal(found[name][:clips], before[name]) for name in tables)
    assert {name.rpartition(".")[0] for name in other - tables} == {
        "frame_embeddings.input_norm", "frame_embeddings.dense", "frame_projection.layer_norm",
        "frame_projection.dense",
    }  # fmt: skip
    assert all(torch.equal(found[name], before[name]) for name in found.keys() - other)
    shorter = HEROForMomentRetrieval.from_hero(tmp_path, max_video_clips=3).state_dict()
    assert all(torch.equal(shorter[name], before[name][:3]) for name in tables)


def test_hero_counts_text_positions_from_zero_on_request_as_the_released_code_does():
    tokens = torch.tensor([[0, 5, 6, 7]])
    ours, released = (small("hero", query_feature_size=None, positions_from_zero=zero) for zero in (False, True))
    places = released.cross_modal.embeddings.position_embeddings.weight
    with torch.no_grad():
        expected = ours.encode_query(tokens, tokens >= 0)
        assert (released.encode_query(tokens, tokens >= 0) - expected).abs().max() > 1e-3
        places.copy_(places.roll(-2, 0))  # place 0 of the one is place 2 of the other
        torch.testing.assert_close(released.encode_query(tokens, tokens >= 0), expected)
        videos = torch.rand(1, 5, 10, generator=torch.Generator().manual_seed(3)), torch.ones(1, 5)
        clips = [model.encode_video(*videos).localization for model in (ours, released)]
    torch.testing.assert_close(*clips)


@torch.no_grad()
def test_where_predictors_read_the_padding_no_transformer_of_hero_has_written_into_it():
    """Clips of zeros behind the end give a projection that is the same for all of them, as in the released code."""
    model, batch = small("hero", mask_similarity=False), inputs()
    batch["video_features"][1, 6:] = 0
    seen = []
    model.positions.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model(**batch)
    expected = model.frame_projection(torch.zeros(3, 10))
    torch.testing.assert_close(seen[0][1, 6:], expected)


@every_model
@both_streams
def test_a_saved_model_loads_equal_through_every_class(tmp_path, name, subtitles):
    batch = inputs(subtitles=subtitles)
    assert_loads_equal(small(name, subtitles=subtitles), tmp_path, lambda model: model(**batch).start_logits)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query_features": torch.zeros(3, 7, 12)}, "query_features has length 7, the model reads at most 6"),
        ({"query_features": torch.zeros(3, 5, 11)}, r"query_features .*must be float of shape .*12"),
        ({"video_features": torch.zeros(3, 10, 10)}, "video_features has length 10, the model reads at most 9"),
        ({"video_features": torch.zeros(3, 9, 10, dtype=torch.long)}, "must be float"),
        ({"video_mask": torch.ones(3, 8)}, "video_mask has shape"),
        ({"subtitle_features": torch.zeros(3, 9, 7)}, "has no subtitle_features"),
        ({"query_mask": torch.ones(3, 4)}, r"query_mask has shape \(3, 4\), query_features .*must be \(3, 5\)"),
        ({"start_positions": torch.tensor([0, 0, 0])}, "start_positions came without end_positions"),
        ({"end_positions": torch.tensor([0, 0, 0])}, "end_positions came without start_positions"),
        (
            {**LABELS, "start_positions": torch.tensor([2, 6, 8])},
            r"start_positions\[1\] is 6, in the padding of a video of 6 clips; .*between 0 and 5: .*clip_labels",
        ),
        ({**LABELS, "end_positions": torch.tensor([5, 8, 8])}, r"end_positions\[1\] is 8, in the padding"),
        ({**LABELS, "end_positions": torch.tensor([5, 3, 9])}, r"end_positions is \[5, 3, 9\]; each must .*0 and 8"),
        ({**LABELS, "start_positions": torch.tensor([2, -100, 8])}, r"start_positions is \[2, -100, 8\]; each"),
        ({**LABELS, "start_positions": torch.tensor([2, 0])}, r"start_positions is torch.int64 of shape \(2,\)"),
        ({**LABELS, "start_positions": torch.rand(3)}, r"start_positions is torch.float32 of shape \(3,\); .*integers"),
        ({**LABELS, "target_indices": torch.tensor([0, 1, 3])}, r"target_indices is \[0, 1, 3\]; each .*0 and 2"),
    ],
)
@every_model
def test_inputs_that_do_not_fit_are_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        small(name)(**{**inputs(), **changes})


@every_model
def test_a_model_with_subtitles_needs_one_for_each_clip(name):
    model = small(name, subtitles=True)
    with pytest.raises(ValueError, match="needs subtitle_features"):
        model(**inputs())
    with pytest.raises(ValueError, match=r"subtitle_features has shape \(3, 8, 7\).*one subtitle for each clip"):
        model(**inputs(), subtitle_features=torch.zeros(3, 8, 7))


def test_a_hero_of_tokens_refuses_a_mask_of_another_length():
    tokens = torch.tensor([[0, 5, 6]])
    with pytest.raises(ValueError, match=r"query_mask has shape \(1, 2\), query_features \(1, 3\)"):
        small("hero", query_feature_size=None).encode_query(tokens, torch.ones(1, 2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden_size": 15},
        {"conv_kernel_size": 4},
        {"max_video_clips": 0},
        {"hidden_dropout": 1.0},
        {"span_loss_probability": 1.5},
        {"end_convention": "both"},
        {"margin": "wide"},
    ],
    ids=str,
)
@every_model
def test_a_contradictory_configuration_is_refused(name, wrong):
    with pytest.raises(Exception, match=next(iter(wrong))):
        MODELS[name][0](**{"num_attention_heads": 2, **wrong})
